#include "compare/run_diff.hpp"

#include <gtest/gtest.h>

#include "compare/backward_order.hpp"
#include "compare/noise.hpp"
#include "compare/sequence.hpp"

namespace tenscope::compare {
namespace {

std::vector<IndexPair> align_texts(std::string_view a, std::string_view b) {
  const std::vector<std::uint64_t> tokens_a(a.begin(), a.end()), tokens_b(b.begin(), b.end());
  return align_sequences(tokens_a, tokens_b, [&](std::size_t i, std::size_t j) { return a[i] == b[j] ? 1 : 0; });
}

TEST(Sequence, PairsTheLongestCommonSubsequence) {
  EXPECT_EQ(align_texts("abcd", "abcd").size(), 4U);
  EXPECT_EQ(align_texts("abcd", "axcd"), (std::vector<IndexPair>{{0, 0}, {2, 2}, {3, 3}}));
  EXPECT_EQ(align_texts("xabcy", "abc").size(), 3U);
  EXPECT_TRUE(align_texts("", "abc").empty());
}

TEST(Sequence, LongOnesAreAlignedByAnchors) {
  std::vector<std::uint64_t> a, b;
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    a.push_back(i);
    if (i % 100 != 0) b.push_back(i);
    if (i % 70 == 0) b.push_back(100000 + i);
  }
  const auto pairs = align_sequences(a, b, [&](std::size_t i, std::size_t j) { return a[i] == b[j] ? 1 : 0; });
  EXPECT_EQ(pairs.size(), 4950U);
}

TEST(Noise, TellsRoundingFromMistakes) {
  const NoiseJudge judge{std::nullopt};
  const auto is_noise = [&](PairError error, Trust inputs = {}, DType dtype = DType::F32) {
    error.count = 1000;
    error.scale = 1;
    return judge.is_noise(error, dtype, inputs, Stage::Forward, 0);
  };
  EXPECT_TRUE(is_noise({.max_abs = 1e-6, .rel_l2 = 3e-7}));
  EXPECT_FALSE(is_noise({.max_abs = 1e-4, .rel_l2 = 1e-5}));
  EXPECT_FALSE(is_noise({.max_abs = 5e-6, .rel_l2 = 5e-6, .correlation = 0.9}));  // a factor
  EXPECT_TRUE(is_noise({.max_abs = 1e-4, .rel_l2 = 1e-5}, {.noise = 1e-5}));      // amplified
  EXPECT_FALSE(is_noise({.max_abs = 1e-2, .rel_l2 = 1e-3}, {.noise = 1e-5}));
  EXPECT_FALSE(is_noise({.has_other_finite = true}));
  EXPECT_FALSE(is_noise({.differing = 1, .max_abs = 1}, {}, DType::I64));
  EXPECT_TRUE(is_noise({.differing = 1, .max_abs = 1}, {.noise = 1e-7}, DType::I64));  // a decision that fell otherwise
}

TEST(BackwardOrder, NamesTheModuleBetween) {
  ModuleTree tree;
  for (const char* path : {"", "fc1", "fc2", "fc2.quant", "fc3"}) tree.nodes.push_back({.path = path});
  const std::vector<int> calls = {0, 1, 2, 3, 4};
  EXPECT_EQ(blame_by_order(tree, calls, {{1, true}, {2, false}, {4, false}}), "fc2.quant");
  EXPECT_EQ(blame_by_order(tree, calls, {{1, true}, {2, true}, {4, false}}), "");
  EXPECT_EQ(blame_by_order(tree, calls, {{1, true}, {2, true}, {4, true}}), std::nullopt);
}

// A model of two layers, each with an input and an output, told by made-up fingerprints.
class TwoLayers {
 public:
  explicit TwoLayers(Interner& interner) : interner_(interner) { timeline_.lanes.emplace_back(); }

  void call(const std::string& path, std::uint64_t input, std::uint64_t output) {
    add(path, EventKind::Enter, Io::None, 0);
    add(path, EventKind::Value, Io::Input, input);
    add(path, EventKind::Value, Io::Output, output);
    add(path, EventKind::Exit, Io::None, 0);
  }
  const Timeline& timeline() const { return timeline_; }

 private:
  void add(const std::string& path, EventKind kind, Io io, std::uint64_t fingerprint) {
    Item item;
    item.kind = kind;
    item.io = io;
    item.phase = Phase::Forward;
    item.root = interner_.text("Net#0");
    item.scope = interner_.text(path);
    item.tail = interner_.text(to_string(io));
    item.name = interner_.text(join_path(path, to_string(io)));
    item.is_tensor = kind == EventKind::Value;
    item.fingerprint.low = fingerprint;
    timeline_.lanes[0].items.push_back(item);
  }

  Interner& interner_;
  Timeline timeline_;
};

RunDiff diff(const TwoLayers& a, const TwoLayers& b, Interner& interner) {
  const auto far_apart = [](const Item&, const Item&) {
    return PairError{.count = 1, .max_abs = 1, .scale = 1, .rel_l2 = 1};
  };
  return diff_timelines(a.timeline(), b.timeline(), interner, far_apart,
                        [](const Item&, const Item&) { return DiffMetrics{}; }, {});
}

TEST(RunDiff, BlamesTheFirstPlaceWhoseInputsAgree) {
  Interner interner;
  TwoLayers a(interner), same(interner), wrong_output(interner), wrong_input(interner);
  a.call("fc1", 1, 2), a.call("fc2", 2, 3);
  same.call("fc1", 1, 2), same.call("fc2", 2, 3);
  wrong_output.call("fc1", 1, 7), wrong_output.call("fc2", 7, 8);
  wrong_input.call("fc1", 1, 2), wrong_input.call("fc2", 9, 10);

  EXPECT_TRUE(diff(a, same, interner).equal);
  const RunDiff output = diff(a, wrong_output, interner);
  ASSERT_TRUE(output.first_divergence);
  EXPECT_EQ(output.first_divergence->place.module, "fc1");
  EXPECT_EQ(output.first_divergence->place.name, "fc1.output");
  EXPECT_EQ(output.origin_count, 1U);
  EXPECT_EQ(output.consequences, 2U);
  const RunDiff input = diff(a, wrong_input, interner);
  ASSERT_TRUE(input.first_divergence);
  EXPECT_EQ(input.first_divergence->place.name, "fc2.input");
  EXPECT_EQ(input.first_divergence->place.module, "");
}

}  // namespace
}  // namespace tenscope::compare
