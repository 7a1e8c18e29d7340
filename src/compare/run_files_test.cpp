// diff_runs and diff_ranks on recordings.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "store/journal_reader.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;

class RunFiles : public ::testing::Test {
 protected:
  fs::path record(const std::string& name, const std::function<void(tenscope::Run&)>& program, int rank = 0,
                  int ranks = 1) {
    tenscope::Run run(folder_.path(),
                      {.name = name, .rank = rank, .world_size = ranks, .join = ranks > 1, .strict = true});
    program(run);
    return folder_.path() / name;
  }

  template <class T>
  fs::path record_values(const std::string& name, const std::vector<T>& values, Values keep = Values::Full) {
    return record(name, [&](tenscope::Run& run) {
      run.record({.name = "x"}, view(values.data(), {static_cast<std::int64_t>(values.size())}), keep);
    });
  }

 private:
  store::ScratchFolder folder_;
};

std::vector<float> ramp(std::size_t count, float factor = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = factor * std::sin(static_cast<float>(i));
  return values;
}

// As a run that was recorded without sketches.
fs::path without_sketches(const fs::path& run) {
  const fs::path journal = run / "rank-0" / "journal.jsonl";
  std::ifstream file(journal);
  std::string text, line;
  while (std::getline(file, line)) {
    std::string body = line.substr(0, line.rfind(R"(,"sum":)"));
    if (const auto begin = body.find(R"(,"sketch":")"); begin != std::string::npos)
      body.erase(begin, body.find('"', begin + 11) + 1 - begin);
    text += store::sealed_line(body);
  }
  file.close();
  std::ofstream(journal) << text;
  return run;
}

TEST_F(RunFiles, WithoutBytesADifferenceIsEstimated) {
  const std::vector<float> x = ramp(100);
  std::vector<float> flipped(x.rbegin(), x.rend()), larger = ramp(100, 1.5F), near = ramp(100, 1 + 0x1p-23F);
  const fs::path a = record_values("a", x, Values::Stats);
  for (const Values keep : {Values::Stats, Values::Full}) {
    const std::string end = keep == Values::Stats ? "_stats" : "_full";
    for (const auto* values : {&flipped, &larger}) {
      const RunDiff diff = diff_runs(a, record_values(std::to_string(values->front()) + end, *values, keep));
      EXPECT_EQ(diff.verdict, DiffVerdict::Differs);
      ASSERT_TRUE(diff.first_divergence);
      const DiffMetrics& metrics = diff.first_divergence->metrics;
      EXPECT_EQ(metrics.obstacle, DiffObstacle::OnlySketches);
      EXPECT_NEAR(metrics.rel_l2, values == &larger ? 0.5 : std::sqrt(2), 4 * metrics.rel_l2_error);
    }
    EXPECT_EQ(diff_runs(a, record_values("near" + end, near, keep)).verdict, DiffVerdict::Noise);
  }
}

TEST_F(RunFiles, WithoutBytesAndSketchesADifferenceIsUnknownOrProven) {
  const std::vector<float> x = ramp(100);
  std::vector<float> flipped(x.rbegin(), x.rend()), larger = ramp(100, 1.5F);
  const fs::path a = without_sketches(record_values("a", x, Values::Stats));
  EXPECT_EQ(diff_runs(a, record_values("same", x, Values::Stats)).verdict, DiffVerdict::Equal);
  for (const Values keep : {Values::Stats, Values::Full}) {
    const std::string end = keep == Values::Stats ? "_stats" : "_full";
    const RunDiff unknown = diff_runs(a, record_values("flipped" + end, flipped, keep));
    EXPECT_EQ(unknown.verdict, DiffVerdict::Unknown);
    EXPECT_EQ(unknown.unknown, 1U);
    ASSERT_TRUE(unknown.first_unknown);
    EXPECT_EQ(unknown.first_unknown->name, "x");
    EXPECT_FALSE(unknown.within_tolerance());
    const RunDiff proven = diff_runs(a, record_values("larger" + end, larger, keep));
    EXPECT_EQ(proven.verdict, DiffVerdict::Differs);
    ASSERT_TRUE(proven.first_divergence);
    EXPECT_EQ(proven.first_divergence->metrics.obstacle, DiffObstacle::OnlyStatistics);
  }
  const std::vector<std::int64_t> tokens = {1, 2, 3}, others = {3, 2, 1};
  EXPECT_EQ(diff_runs(record_values("t", tokens, Values::Stats), record_values("u", others, Values::Stats)).verdict,
            DiffVerdict::Differs);
}

// Ranks are read on several threads: each time the answer is that of its only rank that differs, and of its own names.
TEST_F(RunFiles, ManyRanksAreComparedAsOne) {
  constexpr int kRanks = 24, kWrong = 17;
  const auto record_ranks = [&](const std::string& name, int wrong) {
    fs::path run;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto program = [&](tenscope::Run& recording) {
        for (int i = 0; i < 8; ++i) {
          const std::vector<float> values = ramp(64, static_cast<float>(rank + i + (rank == wrong && i == 5 ? 3 : 1)));
          recording.record({.name = "of" + std::to_string(rank % 5) + "." + std::to_string(i)},
                           view(values.data(), {64}));
        }
      };
      run = record(name, program, rank, kRanks);
    }
    return run;
  };
  const fs::path a = record_ranks("a", -1), b = record_ranks("b", kWrong);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(diff_runs(a, a).verdict, DiffVerdict::Equal);
    const RunDiff diff = diff_runs(a, b);
    EXPECT_EQ(diff.compared, 8U * kRanks);
    EXPECT_EQ(diff.bit_equal, 8U * kRanks - 1);
    ASSERT_EQ(diff.origins.size(), 1U);
    EXPECT_EQ(diff.origins[0].place.rank, kWrong);
    EXPECT_EQ(diff.origins[0].place.name, "of2.5");
  }
}

TEST_F(RunFiles, IntegersAndTypesAreExact) {
  constexpr std::int64_t kBig = std::int64_t{1} << 60;
  const auto numbers = [&](const std::string& name, const EventValue& value) {
    return record(name, [&](tenscope::Run& run) { run.record(EventInfo{.name = "n"}, value); });
  };
  const RunDiff integers = diff_runs(numbers("i", kBig), numbers("j", kBig + 1));
  EXPECT_EQ(integers.verdict, DiffVerdict::Differs);
  const RunDiff types = diff_runs(numbers("t", true), numbers("o", 1.0));
  EXPECT_EQ(types.verdict, DiffVerdict::Noise);
  EXPECT_EQ(types.bit_equal, 0U);
  EXPECT_EQ(types.same_values, 1U);
  ASSERT_EQ(types.notes.size(), 1U);
  EXPECT_EQ(types.notes[0].kind, DiffNote::Kind::OtherDtype);
  const RunDiff tensors = diff_runs(record_values("a", std::vector<std::int64_t>{kBig, 0}),
                                    record_values("b", std::vector<std::int64_t>{kBig + 1, 0}));
  ASSERT_TRUE(tensors.first_divergence);
  EXPECT_EQ(tensors.first_divergence->metrics.differing, 1);
}

TEST_F(RunFiles, NothingIsNotEqual) {
  const fs::path empty = record("empty", [](tenscope::Run&) {}), other = record("other", [](tenscope::Run&) {});
  const fs::path full = record_values("full", ramp(10));
  const fs::path unlike = record("unlike", [](tenscope::Run& run) { run.record("y", 1.0); });
  EXPECT_EQ(diff_runs(empty, other).verdict, DiffVerdict::Nothing);
  EXPECT_EQ(diff_runs(empty, full).verdict, DiffVerdict::Nothing);
  EXPECT_EQ(diff_runs(full, empty).verdict, DiffVerdict::Nothing);
  EXPECT_EQ(diff_runs(full, unlike).verdict, DiffVerdict::Nothing);
}

TEST_F(RunFiles, WeightsAloneSayNothingOfOutputs) {
  const std::vector<float> w = ramp(10);
  const auto model = [&](const std::string& name, const std::string& output) {
    return record(name, [&, output](tenscope::Run& run) {
      run.record({.name = "fc.weight", .scope = "fc", .io = Io::Param, .phase = Phase::Init, .root = "Net#0"},
                 view(w.data(), {10}));
      run.record(EventInfo{.name = output}, view(w.data(), {2, 5}));
    });
  };
  const RunDiff diff = diff_runs(
      model("a", "logits"), record("b", [&](tenscope::Run& run) {
        run.record({.name = "fc.weight", .scope = "fc", .io = Io::Param, .phase = Phase::Init, .root = "Net#0"},
                   view(w.data(), {10}));
      }));
  EXPECT_EQ(diff.verdict, DiffVerdict::Unknown);
  EXPECT_EQ(diff.compared, 1U);
  EXPECT_EQ(diff.total_a, 2U);
  EXPECT_TRUE(std::any_of(diff.notes.begin(), diff.notes.end(),
                          [](const DiffNote& note) { return note.kind == DiffNote::Kind::NoOutputs; }));
}

// More modules and calls than any packing of both into one number holds.
TEST_F(RunFiles, ManyModulesAndCallsAreToldApart) {
  constexpr int kModules = 600, kCalls = 3, kWrong = 517;
  const auto run_model = [&](const std::string& name, int first_call, bool is_wrong) {
    return record(name, [&, first_call, is_wrong](tenscope::Run& run) {
      for (int call = 0; call < kCalls; ++call)
        for (int i = 0; i < kModules; ++i) {
          const std::string path = "m" + std::to_string(i);
          const auto event = [&](std::string_view tail, EventKind kind, Io io, float value) {
            const std::string full = tail.empty() ? path : path + "." + std::string(tail);
            const EventInfo info{.kind = kind,
                                 .name = full,
                                 .step = call,
                                 .call = first_call + call,
                                 .scope = path,
                                 .io = io,
                                 .phase = Phase::Forward,
                                 .root = "Net#0",
                                 .cls = "Linear"};
            if (kind == EventKind::Value)
              run.record(info, view(&value, {1}));
            else
              run.record(info, EventValue{});
          };
          const float input = static_cast<float>(call * kModules + i);
          event("", EventKind::Enter, Io::None, 0);
          event("input.0", EventKind::Value, Io::Input, input);
          event("output", EventKind::Value, Io::Output, is_wrong && call == 1 && i == kWrong ? -1 : input + 0.5F);
          event("", EventKind::Exit, Io::None, 0);
        }
    });
  };
  const RunDiff diff = diff_runs(run_model("a", 0, false), run_model("b", 0, true));
  ASSERT_TRUE(diff.first_divergence);
  EXPECT_EQ(diff.origin_count, 1U);
  EXPECT_EQ(diff.consequences, 0U);
  EXPECT_EQ(diff.first_divergence->place.module, "m517");
  EXPECT_EQ(diff.first_divergence->place.call, 1);
}

TEST_F(RunFiles, RanksThatPartAreNamedAndOthersAreCounted) {
  const std::vector<float> w = ramp(8), other = ramp(8, 2);
  const auto program = [&](bool is_off) {
    return [&, is_off](tenscope::Run& run) {
      for (std::int64_t step = 0; step < 3; ++step)
        run.record({.name = "w", .step = step, .io = Io::Param, .phase = Phase::Optimizer, .root = "Net#0"},
                   view((is_off && step == 2 ? other : w).data(), {8}));
    };
  };
  const fs::path run = record("ranks", program(false), 0, 2);
  record("ranks", program(true), 1, 2);
  const std::vector<RankDifference> differences = diff_ranks(run);
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].place.name, "w");
  EXPECT_EQ(differences[0].place.step, 2);
  EXPECT_EQ(differences[0].ranks, std::vector<int>{1});

  const fs::path one = record("one", program(false));
  const RunDiff diff = diff_runs(run, one);
  EXPECT_EQ(diff.verdict, DiffVerdict::Unknown);  // rank 1 has nothing to be compared with
}

}  // namespace
}  // namespace tenscope
