#include "compare/run_diff.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "compare/backward_order.hpp"
#include "compare/noise.hpp"
#include "compare/sequence.hpp"
#include "compare/update.hpp"

namespace tenscope::compare {
namespace {

std::vector<IndexPair> align_texts(std::string_view a, std::string_view b) {
  const std::vector<std::uint64_t> tokens_a(a.begin(), a.end()), tokens_b(b.begin(), b.end());
  return align_sequences(tokens_a, tokens_b, [&](std::size_t i, std::size_t j) { return a[i] == b[j] ? 1 : 0; }).pairs;
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
  const auto aligned = align_sequences(a, b, [&](std::size_t i, std::size_t j) { return a[i] == b[j] ? 1 : 0; });
  EXPECT_EQ(aligned.pairs.size(), 4950U);
  EXPECT_FALSE(aligned.is_rough);
  const std::vector<std::uint64_t> alike_a(3000, 7), alike_b(3000, 8);  // no anchors: too many pairs to try
  EXPECT_TRUE(align_sequences(alike_a, alike_b, [](std::size_t, std::size_t) { return 1; }).is_rough);
}

TEST(Noise, TellsRoundingFromMistakes) {
  const NoiseJudge judge{std::nullopt};
  const auto is_noise = [&](PairError error, Trust inputs = {}, DType dtype = DType::F32) {
    error.count = 1000;
    error.scale = 1;
    return judge.is_noise(error, {.dtype = dtype}, inputs);
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
    ++calls_[path];
  }
  void enter(const std::string& path) { add(path, EventKind::Enter, Io::None, 0); }
  void value(const std::string& path, Io io, std::uint64_t fingerprint, const std::string& tail = {}) {
    add(path, EventKind::Value, io, fingerprint, tail);
  }
  void exit(const std::string& path) {
    add(path, EventKind::Exit, Io::None, 0);
    ++calls_[path];
  }
  const Timeline& timeline() const { return timeline_; }

 private:
  void add(const std::string& path, EventKind kind, Io io, std::uint64_t fingerprint, const std::string& tail = {}) {
    Item item;
    item.call = calls_[path];
    item.kind = kind;
    item.io = io;
    item.phase = Phase::Forward;
    item.root = interner_.text("Net#0");
    item.scope = interner_.text(path);
    item.tail = interner_.text(tail.empty() ? to_string(io) : tail);
    item.name = interner_.text(join_path(path, interner_.text(item.tail)));
    item.parameter = item.tail;
    item.value = kind == EventKind::Value ? ValueKind::Tensor : ValueKind::None;
    item.fingerprint.low = fingerprint;
    timeline_.lanes[0].items.push_back(item);
  }

  Interner& interner_;
  Timeline timeline_;
  std::map<std::string, std::int64_t> calls_;
};

RunDiff diff(const TwoLayers& a, const TwoLayers& b, Interner& interner, const RunDiffOptions& options = {}) {
  const auto far_apart = [](const Item&, const Item&) {
    return PairError{.count = 1, .differing = 1, .max_abs = 1, .scale = 1, .rel_l2 = 1};
  };
  Known known(options.max_origins);
  return diff_rank({.rank = 0, .a = a.timeline(), .b = b.timeline()}, interner,
                   {.pair = far_apart, .update = {}, .distribution = {}, .is_same_mask = {}, .release = {}},
                   {.pair = [](const Item&, const Item&) { return DiffMetrics{}; }, .update = {}}, options, known)
      .result();
}

TEST(RunDiff, BlamesTheFirstPlaceWhoseInputsAgree) {
  Interner interner;
  TwoLayers a(interner), same(interner), wrong_output(interner), wrong_input(interner);
  a.call("fc1", 1, 2), a.call("fc2", 2, 3);
  same.call("fc1", 1, 2), same.call("fc2", 2, 3);
  wrong_output.call("fc1", 1, 7), wrong_output.call("fc2", 7, 8);
  wrong_input.call("fc1", 1, 2), wrong_input.call("fc2", 9, 10);

  EXPECT_TRUE(diff(a, same, interner).equal());
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

// A model that gives `state` to its layer, or nothing.
TwoLayers with_state(Interner& interner, std::optional<std::uint64_t> state, std::uint64_t output) {
  TwoLayers model(interner);
  model.enter("");
  model.value("", Io::Input, 1);
  model.enter("rnn");
  model.value("rnn", Io::Input, 2, "input.0");
  if (state) model.value("rnn", Io::Input, *state, "input.1");
  model.value("rnn", Io::Output, output);
  model.exit("rnn");
  model.value("", Io::Output, output + 1);
  model.exit("");
  return model;
}

TEST(RunDiff, AnInputInOneRunOnlyBlamesTheCallerWhereItMatters) {
  Interner interner;
  const TwoLayers a = with_state(interner, {}, 5);
  EXPECT_FALSE(diff(a, with_state(interner, 3, 5), interner).first_divergence);
  const RunDiff leak = diff(a, with_state(interner, 3, 7), interner);
  ASSERT_TRUE(leak.first_divergence);
  EXPECT_EQ(leak.first_divergence->place.module, "");
  EXPECT_EQ(leak.first_divergence->place.name, "rnn.input.1");
  EXPECT_EQ(leak.first_divergence->place.io, "input");
}

// Two branches read one tensor; the first may change it in place.
TwoLayers two_branches(Interner& interner, std::optional<std::uint64_t> after, std::uint64_t right) {
  TwoLayers model(interner);
  model.enter("");
  model.value("", Io::Input, 1);
  model.enter("left");
  model.value("left", Io::Input, 2, "input.0");
  if (after) model.value("left", Io::Output, *after, "input.0.after");
  model.value("left", Io::Output, 3);
  model.exit("left");
  model.call("right", right, right + 1);
  model.exit("");
  return model;
}

TEST(RunDiff, ATensorChangedInPlaceBlamesTheModuleThatDidIt) {
  Interner interner;
  const TwoLayers a = two_branches(interner, {}, 2);
  EXPECT_FALSE(diff(a, two_branches(interner, 9, 2), interner).first_divergence);
  const RunDiff changed = diff(a, two_branches(interner, 9, 9), interner);
  ASSERT_TRUE(changed.first_divergence);
  EXPECT_EQ(changed.first_divergence->place.module, "left");
  EXPECT_EQ(changed.first_divergence->place.name, "right.input");
  const RunDiff other = diff(two_branches(interner, 8, 8), two_branches(interner, 9, 9), interner);
  ASSERT_TRUE(other.first_divergence);
  EXPECT_EQ(other.first_divergence->place.name, "left.input.0.after");
}

// A model that hands a mask to both of its layers.
TwoLayers with_mask(Interner& interner, std::uint64_t mask, std::uint64_t first, std::uint64_t second,
                    std::uint64_t result = 9, std::uint64_t loss = 10) {
  TwoLayers model(interner);
  model.enter("");
  model.value("", Io::Input, 1);
  for (const auto& [path, output] : {std::pair{"one", first}, {"two", second}}) {
    model.enter(path);
    model.value(path, Io::Input, 2, "input.0");
    model.value(path, Io::Input, mask, "input.mask");
    model.value(path, Io::Output, output);
    model.exit(path);
  }
  model.value("", Io::Output, result);
  model.exit("");
  model.value("", Io::Loss, loss);
  return model;
}

TEST(RunDiff, AnInputOfWhichNothingComesIsANote) {
  Interner interner;
  const TwoLayers a = with_mask(interner, 5, 6, 7);
  const RunDiff idle = diff(a, with_mask(interner, 50, 6, 7), interner);
  EXPECT_EQ(idle.verdict, DiffVerdict::Noise);
  EXPECT_EQ(idle.idle, 2U);
  ASSERT_EQ(idle.notes.size(), 1U);
  EXPECT_EQ(idle.notes[0].kind, DiffNote::Kind::IdleInput);
  EXPECT_EQ(idle.notes[0].subject, "one.input.mask");
  // What one layer makes nothing of may matter to the next: it is one difference, and begins where it was first given.
  const RunDiff matters = diff(a, with_mask(interner, 50, 6, 70, 90), interner);
  ASSERT_TRUE(matters.first_divergence);
  EXPECT_EQ(matters.origin_count, 1U);
  EXPECT_EQ(matters.first_divergence->place.name, "one.input.mask");
  // An output that differs beside it is that module's own.
  const RunDiff other = diff(a, with_mask(interner, 5, 60, 7, 90), interner);
  ASSERT_TRUE(other.first_divergence);
  EXPECT_EQ(other.first_divergence->place.module, "one");
}

TEST(RunDiff, AnOutputOfWhichNothingComesIsANote) {
  Interner interner;
  const TwoLayers a = with_mask(interner, 5, 6, 7);
  const RunDiff idle = diff(a, with_mask(interner, 5, 60, 7), interner);
  EXPECT_EQ(idle.verdict, DiffVerdict::Noise);
  EXPECT_EQ(idle.idle, 1U);
  // It may have been kept for the loss: then it is where that begins.
  const RunDiff kept = diff(a, with_mask(interner, 5, 60, 7, 9, 100), interner);
  ASSERT_TRUE(kept.first_divergence);
  EXPECT_EQ(kept.first_divergence->place.module, "one");
}

TwoLayers calls_of(Interner& interner, std::initializer_list<std::uint64_t> inputs, std::uint64_t wrong = 0) {
  TwoLayers model(interner);
  for (const std::uint64_t input : inputs) {
    model.enter("");
    model.value("", Io::Input, input);
    model.call("fc", input + 100, input + (input == wrong ? 999 : 200));
    model.exit("");
  }
  return model;
}

TEST(RunDiff, ACallMoreInOneRunShiftsTheOthers) {
  Interner interner;
  const TwoLayers a = calls_of(interner, {1, 2, 3});
  for (const auto& inputs : {std::initializer_list<std::uint64_t>{9, 1, 2, 3}, {1, 9, 2, 3}, {1, 9, 2, 9, 3}}) {
    const RunDiff there = diff(a, calls_of(interner, inputs), interner),
                  back = diff(calls_of(interner, inputs), a, interner);
    EXPECT_FALSE(there.first_divergence);
    EXPECT_FALSE(back.first_divergence);
    EXPECT_EQ(there.verdict, DiffVerdict::Noise);  // what has no partner is told
    EXPECT_EQ(there.notes.size(), 1U);
    EXPECT_EQ(there.compared, 9U);
  }
  const RunDiff wrong = diff(a, calls_of(interner, {9, 1, 2, 3}, 2), interner);
  ASSERT_TRUE(wrong.first_divergence);
  EXPECT_EQ(wrong.first_divergence->place.module, "fc");
  EXPECT_EQ(wrong.first_divergence->place.call, 1);
  const RunDiff shuffled = diff(a, calls_of(interner, {2, 3, 1}), interner);
  ASSERT_TRUE(shuffled.first_divergence);
  EXPECT_EQ(shuffled.first_divergence->place.call, 0);
}

TEST(RunDiff, TheEndOfARunIsADifference) {
  Interner interner;
  const TwoLayers a = calls_of(interner, {1, 2, 3}), shorter = calls_of(interner, {1, 2});
  for (const auto& [x, y, ended] : {std::tuple{&a, &shorter, 1}, {&shorter, &a, 0}}) {
    const RunDiff cut = diff(*x, *y, interner);
    ASSERT_TRUE(cut.first_divergence);
    EXPECT_EQ(cut.verdict, DiffVerdict::Differs);
    EXPECT_EQ(cut.first_divergence->reason.cause, DiffCause::End);
    EXPECT_EQ(cut.first_divergence->reason.ended, ended);
    EXPECT_EQ(cut.first_divergence->place.call, 2);
    EXPECT_TRUE(diff(*x, *y, interner, {.allow_prefix = true}).within_tolerance());
  }
}

TEST(Update, TellsAWrongOptimizerFromNoiseInGradients) {
  constexpr std::int64_t kCount = 1000;
  std::vector<float> before(kCount), gradient(kCount), noisy(kCount), right(kCount), flipped(kCount), wrong(kCount),
      decayed(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double x = std::sin(static_cast<double>(i) * 1.7),
                 g = std::cos(static_cast<double>(i) * 0.9) * (i % 7 == 0 ? 1e-9 : 1);
    before[at] = static_cast<float>(x);
    gradient[at] = static_cast<float>(g);
    noisy[at] = static_cast<float>(g + 1e-7 * std::sin(static_cast<double>(i)));
    // Adam's first step: the sign of the gradient, whatever its size.
    right[at] = static_cast<float>(x - 1e-3 * (gradient[at] > 0 ? 1 : -1));
    flipped[at] = static_cast<float>(x - 1e-3 * (noisy[at] > 0 ? 1 : -1));
    wrong[at] = static_cast<float>(x - 1.02e-3 * (noisy[at] > 0 ? 1 : -1));
    decayed[at] = static_cast<float>(x - 1e-3 * (noisy[at] > 0 ? 1 : -1) - 1e-5 * x);
  }
  const std::array<std::int64_t, 1> shape{kCount};
  const auto update = [&](const std::vector<float>& after, const std::vector<float>& of) {
    const auto tensor = [&](const std::vector<float>& values) {
      return TensorView{.data = values.data(), .dtype = DType::F32, .shape = shape};
    };
    return UpdateTensors{tensor(before), tensor(after), tensor(of)};
  };
  EXPECT_FALSE(measure_update(update(right, gradient), update(flipped, noisy)).is_mistake());
  EXPECT_TRUE(measure_update(update(right, gradient), update(wrong, noisy)).is_mistake());
  EXPECT_TRUE(measure_update(update(right, gradient), update(decayed, noisy)).is_mistake());
}

}  // namespace
}  // namespace tenscope::compare
