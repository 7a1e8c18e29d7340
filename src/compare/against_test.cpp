#include "compare/against.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "store/scratch_folder.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

std::vector<float> ramp(std::size_t count, float factor = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = factor * std::sin(static_cast<float>(i));
  return values;
}

ShapedView view_of(const std::vector<float>& values) {
  return view(values.data(), {static_cast<std::int64_t>(values.size())});
}

// A module "fc" that is called once in each step: what goes in and what comes out.
struct Step {
  std::vector<float> input, output;
};

void record_steps(Recorder& run, const std::vector<Step>& steps, Values values = Values::Full) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    const EventInfo base{.step = step, .call = step, .scope = "fc", .phase = Phase::Forward, .root = "M#0"};
    const auto info = [&](EventKind kind, std::string_view name, Io io) {
      EventInfo result = base;
      result.kind = kind;
      result.name = name;
      result.io = io;
      return result;
    };
    run.record(info(EventKind::Enter, "fc", Io::None), EventValue());
    run.record(info(EventKind::Value, "fc.input.0", Io::Input), view_of(steps[i].input), values);
    run.record(info(EventKind::Value, "fc.output", Io::Output), view_of(steps[i].output), values);
    run.record(info(EventKind::Exit, "fc", Io::None), EventValue());
  }
}

class AgainstTest : public ::testing::Test {
 protected:
  fs::path record(const std::string& name, const std::vector<Step>& steps, Values values = Values::Full) {
    Recorder run(folder_.path(), {.name = name, .strict = true});
    record_steps(run, steps, values);
    return run.path();
  }

  // Records against a reference, and leaves what it has seen in `against`.
  fs::path record_against(const std::string& name, const std::vector<Step>& steps, const fs::path& reference) {
    against = std::make_shared<Against>(reference, 0, std::nullopt);
    Recorder run(folder_.path(), {.name = name, .strict = true});
    run.record({.kind = EventKind::Note, .name = kAgainstNote}, EventValue(reference.string()));
    run.set_watcher(against);
    record_steps(run, steps);
    return run.path();
  }

  static bool has_bytes(const Reader& reader, const std::string& name, std::int64_t step) {
    const auto found = reader.find({.name = name, .step = step});
    EXPECT_EQ(found.size(), 1U);
    return reader.has_bytes(found[0], std::get<TensorRecord>(reader.event(found[0]).value));
  }

  std::shared_ptr<Against> against;

 private:
  store::ScratchFolder folder_;
};

// Beyond the size from which summaries are read from the reference, and below it.
class AgainstSizes : public AgainstTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(AgainstSizes, WhatIsEqualHasItsSummaryButNoBytes) {
  const std::vector<Step> steps{{ramp(GetParam()), ramp(GetParam(), 2)}, {ramp(GetParam(), 3), ramp(GetParam(), 4)}};
  const fs::path a = record("a", steps), b = record_against("b", steps, a);
  EXPECT_EQ(against->counts().equal, 4U);
  EXPECT_EQ(against->suspicion(), Suspicion::None);
  const Reader x(a), y(b);
  for (const std::int64_t step : {0, 1}) EXPECT_FALSE(has_bytes(y, "fc.output", step));
  const EventId in_a = x.find({.name = "fc.output", .step = 1})[0], in_b = y.find({.name = "fc.output", .step = 1})[0];
  const auto of_a = std::get<TensorRecord>(x.event(in_a).value), of_b = std::get<TensorRecord>(y.event(in_b).value);
  EXPECT_EQ(of_a.fingerprint, of_b.fingerprint);
  EXPECT_EQ(of_a.stats.mean, of_b.stats.mean);
  EXPECT_EQ(of_a.stats.abs_max, of_b.stats.abs_max);
  EXPECT_FALSE(of_b.is_cut);
  ASSERT_TRUE(x.sketch(in_a) && y.sketch(in_b));
  EXPECT_EQ(x.sketch(in_a)->sums, y.sketch(in_b)->sums);
  EXPECT_EQ(diff_runs(a, b).verdict, DiffVerdict::Equal);
}
INSTANTIATE_TEST_SUITE_P(SmallAndLarge, AgainstSizes, ::testing::Values(100, 40000));

TEST_F(AgainstTest, WhatDiffersIsKeptAndSuspected) {
  std::vector<Step> steps{{ramp(100), ramp(100, 2)}, {ramp(100, 3), ramp(100, 4)}};
  const fs::path a = record("a", steps);
  steps[1].output[7] += 0.5F;
  const fs::path b = record_against("b", steps, a);
  EXPECT_EQ(against->counts().equal, 3U);
  EXPECT_EQ(against->counts().differs, 1U);
  const Suspect suspect = against->take();
  EXPECT_EQ(suspect.suspicion, Suspicion::Differs);
  EXPECT_EQ(suspect.name, "fc.output");
  EXPECT_EQ(suspect.step, 1);
  EXPECT_EQ(against->suspicion(), Suspicion::None);
  const Reader reader(b);
  EXPECT_TRUE(has_bytes(reader, "fc.output", 1));
  EXPECT_FALSE(has_bytes(reader, "fc.output", 0));
  const RunDiff diff = diff_runs(a, b);
  ASSERT_TRUE(diff.first_divergence);
  EXPECT_EQ(diff.first_divergence->place.step, 1);
  EXPECT_EQ(diff.first_divergence->metrics.differing, 1);
}

TEST_F(AgainstTest, RoundingNoiseIsKeptButNotSuspected) {
  std::vector<Step> steps{{ramp(100), ramp(100, 2)}};
  const fs::path a = record("a", steps);
  for (std::size_t i = 0; i < 100; i += 3) steps[0].output[i] = std::nextafter(steps[0].output[i], 5.0F);
  const fs::path b = record_against("b", steps, a);
  EXPECT_EQ(against->counts().noise, 1U);
  EXPECT_EQ(against->take().suspicion, Suspicion::Bits);
  EXPECT_TRUE(has_bytes(Reader(b), "fc.output", 0));
  EXPECT_EQ(diff_runs(a, b).verdict, DiffVerdict::Noise);
}

TEST_F(AgainstTest, NumbersOfOtherTypesAreComparedByValue) {
  const store::ScratchFolder folder;
  fs::path reference;
  {
    Recorder run(folder.path(), {.name = "a", .strict = true});
    reference = run.path();
    run.record({.name = "n"}, EventValue(std::int64_t{1}));
  }
  const auto seen = [&](const EventValue& value) {
    Against fresh(reference, 0, std::nullopt);
    fresh.saw({.name = "n", .step = 0, .call = 0}, value);
    return fresh.counts();
  };
  EXPECT_EQ(seen(EventValue(std::int64_t{1})).equal, 1U);
  EXPECT_EQ(seen(EventValue(1.0)).noise, 1U);
  EXPECT_EQ(seen(EventValue(true)).noise, 1U);
  EXPECT_EQ(seen(EventValue(1.0 + 0x1p-40)).differs, 1U);
  EXPECT_EQ(seen(EventValue(std::string("1"))).differs, 1U);
}

TEST_F(AgainstTest, AReferenceOfStatisticsTellsByItsSketch) {
  std::vector<Step> steps{{ramp(100), ramp(100, 2)}};
  const fs::path a = record("a", steps, Values::Stats);
  record_against("same", steps, a);
  EXPECT_EQ(against->counts().equal, 2U);
  steps[0].output = ramp(100, 3);
  record_against("other", steps, a);
  EXPECT_EQ(against->counts().differs, 1U);
}

TEST_F(AgainstTest, WhatIsNotInTheReferenceIsSaid) {
  const Step step{ramp(100), ramp(100, 2)}, more{ramp(100, 7), ramp(100, 8)};
  const fs::path a = record("a", {step});
  const fs::path b = record_against("b", {step, more, step}, a);
  EXPECT_EQ(against->counts().equal, 2U);
  EXPECT_EQ(against->counts().not_in_reference, 4U);
  EXPECT_EQ(against->suspicion(), Suspicion::Bits);
  const Reader reader(b);
  EXPECT_TRUE(has_bytes(reader, "fc.output", 1));
  EXPECT_FALSE(has_bytes(reader, "fc.output", 2)) << "the reference has these bytes, at another step";
}

TEST_F(AgainstTest, AnExcusedPlaceIsNotSuspectedAgain) {
  std::vector<Step> steps{{ramp(100), ramp(100, 2)}, {ramp(100), ramp(100, 2)}};
  const fs::path a = record("a", steps);
  for (Step& step : steps) step.input[0] = 9;
  against = std::make_shared<Against>(a, 0, std::nullopt);
  Recorder run(a.parent_path(), {.name = "b", .strict = true});
  run.set_watcher(against);
  record_steps(run, {steps[0]});
  EXPECT_EQ(against->take().suspicion, Suspicion::Differs);
  against->excuse();
  record_steps(run, steps);
  EXPECT_EQ(against->suspicion(), Suspicion::Bits);
  steps[1].output[0] = 9;
  record_steps(run, steps);
  EXPECT_EQ(against->suspicion(), Suspicion::Differs);
}

TEST_F(AgainstTest, NumbersAndTextsAreComparedToo) {
  const auto record = [&](Recorder& run, double loss, std::int64_t count, std::string_view text) {
    run.record("loss", loss);
    run.record("count", count);
    run.record("text", text);
  };
  const fs::path base = this->record("a", {}).parent_path();
  fs::path a;
  {
    Recorder run(base, {.name = "numbers"});
    record(run, 0.25, 3, "yes");
    a = run.path();
  }
  const auto seen = [&](double loss, std::int64_t count, std::string_view text) {
    against = std::make_shared<Against>(a, 0, std::nullopt);
    Recorder run(base, {.name = "others"});
    run.set_watcher(against);
    record(run, loss, count, text);
    return against->counts();
  };
  EXPECT_EQ(seen(0.25, 3, "yes").equal, 3U);
  EXPECT_EQ(seen(0.25 + 1e-8, 3, "yes").noise, 1U);
  EXPECT_EQ(seen(0.26, 4, "no").differs, 3U);
  EXPECT_EQ(against->suspicion(), Suspicion::Differs);
}

// The bytes that a run recorded against another does not have are read there: an update is judged by the parameter
// before it, which is equal.
TEST_F(AgainstTest, TheDiffIsThatOfAFullRecording) {
  const auto program = [](Recorder& run, float rate) {
    const std::vector<float> before = ramp(256), gradient = ramp(256, 0.1F);
    std::vector<float> after(256);
    for (std::size_t i = 0; i < after.size(); ++i) after[i] = before[i] - rate * gradient[i];
    const auto put = [&](std::string_view name, Io io, Phase phase, const std::vector<float>& values) {
      run.record({.name = name, .step = 0, .call = 0, .scope = "fc", .io = io, .phase = phase, .root = "M#0"},
                 view_of(values));
    };
    put("fc.weight", Io::Param, Phase::Init, before);
    record_steps(run, {{ramp(100), ramp(100, 2)}});
    put("fc.weight.grad", Io::Grad, Phase::Backward, gradient);
    put("fc.weight", Io::Param, Phase::Optimizer, after);
  };
  const fs::path base = record("none", {}).parent_path();
  const auto run_of = [&](const std::string& name, float rate, const fs::path& reference) {
    Recorder run(base, {.name = name, .strict = true});
    if (!reference.empty()) {
      run.record({.kind = EventKind::Note, .name = kAgainstNote}, EventValue(reference.string()));
      run.set_watcher(std::make_shared<Against>(reference, 0, std::nullopt));
    }
    program(run, rate);
    return run.path();
  };
  const fs::path a = run_of("a", 0.010F, {}), full = run_of("full", 0.011F, {}), b = run_of("b", 0.011F, a);
  const RunDiff expected = diff_runs(a, full), found = diff_runs(a, b);
  ASSERT_TRUE(expected.first_divergence && found.first_divergence);
  EXPECT_EQ(expected.first_divergence->reason.cause, DiffCause::Update);
  EXPECT_EQ(found.first_divergence->reason.cause, DiffCause::Update);
  ASSERT_TRUE(expected.first_divergence->update && found.first_divergence->update);
  EXPECT_EQ(expected.first_divergence->update->ratio, found.first_divergence->update->ratio);
  EXPECT_FALSE(has_bytes(Reader(b), "fc.weight.grad", 0));
}

}  // namespace
}  // namespace tenscope::compare
