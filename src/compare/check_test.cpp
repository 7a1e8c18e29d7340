#include "tenscope/check.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "store/run_fixture.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<float> kSound{0, 1, 2, 3};
const std::vector<float> kIll{kNan, 1, 2, 3};

// A run as the module hooks write it, by hand.
class Recording {
 public:
  explicit Recording(const std::filesystem::path& base, int rank = 0, int world_size = 1)
      : run_(base, {.name = "run", .rank = rank, .world_size = world_size, .strict = true}) {}

  void enter(std::string_view module, std::int64_t call = 0) {
    run_.record(info(EventKind::Enter, module, "", "", "forward", call), EventValue());
  }
  void exit(std::string_view module, std::int64_t call = 0) {
    run_.record(info(EventKind::Exit, module, "", "", "forward", call), EventValue());
  }
  void value(std::string_view module, std::string_view tail, const std::vector<float>& values, std::string_view io,
             std::string_view phase = "forward", std::int64_t call = 0, std::vector<std::int64_t> shape = {}) {
    if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
    run_.record(info(EventKind::Value, module, tail, io, phase, call), TensorView{values.data(), DType::F32, shape});
  }
  void number(std::string_view name, double number, std::string_view io) {
    run_.record(info(EventKind::Value, "", name, io, "forward", 0), EventValue(number));
  }
  // A module call with one input and one output.
  void call(std::string_view module, const std::vector<float>& input, const std::vector<float>& output,
            std::int64_t call = 0) {
    enter(module, call);
    value(module, "input.0", input, "input", "forward", call);
    value(module, "output", output, "output", "forward", call);
    exit(module, call);
  }
  void step() { run_.step(); }
  tenscope::Run& run() { return run_; }

 private:
  EventInfo info(EventKind kind, std::string_view module, std::string_view tail, std::string_view io,
                 std::string_view phase, std::int64_t call) {
    name_ =
        module.empty() || tail.empty() ? std::string(module) + std::string(tail) : fmt::format("{}.{}", module, tail);
    return {.kind = kind,
            .name = name_,
            .call = call,
            .scope = module,
            .io = parse_io(io),
            .phase = parse_phase(phase),
            .root = "Net#0"};
  }

  tenscope::Run run_;
  std::string name_;
};

class Check : public ::testing::Test {
 protected:
  CheckReport report(const CheckOptions& options = {}) const { return check_run(scratch_.path() / "run", options); }
  std::vector<CheckFinding> chains() const { return report({.only = {"nan", "inf"}}).findings; }
  const std::filesystem::path& folder() const { return scratch_.path(); }

 private:
  store::ScratchFolder scratch_;
};

void expect(const CheckFinding& finding, std::string_view code, std::string_view module, std::string_view name,
            std::size_t count) {
  EXPECT_EQ(finding.code, code) << finding.message;
  EXPECT_EQ(finding.place.module, module) << finding.message;
  EXPECT_EQ(finding.place.name, name) << finding.message;
  EXPECT_EQ(finding.count, count) << finding.message;
}

TEST_F(Check, InfinityAndNanAreOneChain) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.call("log", kSound, {-kInf, 1, 2, 3});
    recording.call("act", {-kInf, 1, 2, 3}, kIll);
    recording.value("", "output", kIll, "output");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "inf", "log", "log.output", 4);
  EXPECT_EQ(found[0].message,
            "log.output has 1 -Inf of 4 elements at step 0, call 0: it arises in log; its input log.input.0 is finite: "
            "min 0, max 3");
  EXPECT_EQ(found[0].others, (std::vector<std::string>{"act.output (NaN)", "output (NaN)"}));
}

TEST_F(Check, OfTwoOriginsEachHasWhatFollowsFromIt) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.call("first", kSound, {kInf, 1, 2, 3});  // taken out by the code of the model
    recording.call("second", kSound, {-kInf, 1, 2, 3});
    recording.call("act", {-kInf, 1, 2, 3}, kIll);
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 2U);
  expect(found[0], "inf", "first", "first.output", 1);
  expect(found[1], "inf", "second", "second.output", 3);
  EXPECT_EQ(found[1].others, (std::vector<std::string>{"act.output (NaN)"}));
}

TEST_F(Check, InputOfASubmoduleBlamesItsCaller) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.enter("block");
    recording.value("block", "input.0", kSound, "input");
    recording.call("block.a", kSound, kSound);
    recording.call("block.b", kIll, kIll);
    recording.value("block", "output", kIll, "output");
    recording.exit("block");
    recording.value("", "output", kIll, "output");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "block", "block.b.input.0", 4);
}

TEST_F(Check, MasksAreOnPurpose) {
  {
    Recording recording(folder());
    recording.value("attn", "mask", {0, -kInf, 0, 0}, "buffer", "init", 0, {2, 2});
    recording.value("attn", "min", {kInf}, "buffer", "init");
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.value("", "input.1", {0, -kInf, 0, 0}, "input", "forward", 0, {2, 2});
    recording.enter("attn");
    recording.value("attn", "input.1", {0, -kInf, 0, 0}, "input", "forward", 0, {2, 2});
    recording.enter("attn.softmax");
    recording.value("attn.softmax", "input.0", {5, -kInf, 6, 7}, "input", "forward", 0, {1, 2, 2});
    recording.value("attn.softmax", "output", {1, 0, 0.5, 0.5}, "output", "forward", 0, {1, 2, 2});
    recording.exit("attn.softmax");
    recording.value("attn", "output", kSound, "output");
    recording.exit("attn");
    recording.value("", "output", kSound, "output");
    recording.exit("");
  }
  EXPECT_TRUE(report({.only = {"nan", "inf"}}).is_healthy());
}

TEST_F(Check, NanUnderAMaskBlamesTheModule) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.value("", "input.1", {0, -kInf, 0, 0}, "input", "forward", 0, {2, 2});
    recording.enter("attn");
    recording.value("attn", "input.0", kSound, "input");
    recording.value("attn", "input.1", {0, -kInf, 0, 0}, "input", "forward", 0, {2, 2});
    recording.value("attn", "output", kIll, "output");
    recording.exit("attn");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "attn", "attn.output", 1);
  EXPECT_NE(found[0].message.find("a mask is at hand: attn.input.1"), std::string::npos) << found[0].message;
}

TEST_F(Check, MaskDoesNotExcuseAnotherShape) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.1", {0, -kInf, 0, 0}, "input", "forward", 0, {2, 2});
    recording.enter("b");
    recording.value("b", "input.0", {1, -kInf, 2, 3, 4, 5}, "input", "forward", 0, {2, 3});
    recording.value("b", "output", kIll, "output");
    recording.exit("b");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "inf", "", "b.input.0", 2);
}

TEST_F(Check, InfiniteNumbersAndRangesAreMeant) {
  {
    Recording recording(folder());
    recording.value("observer", "low", {kInf}, "buffer", "init");
    recording.value("observer", "high", {-kInf}, "buffer", "init");
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.number("input.limit", static_cast<double>(kInf), "input");
    recording.value("", "output", kIll, "output");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "", "output", 1);
}

TEST_F(Check, ATableOfLogarithmsIsNoMask) {
  {
    Recording recording(folder());
    recording.value("prior", "table", {-kInf, -1, -2}, "buffer", "init");
    recording.call("prior", kSound, kIll);
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "inf", "prior", "prior.table", 2);
}

TEST_F(Check, OutputsAlone) {
  {
    Recording recording(folder());
    recording.enter("");
    for (const char* module : {"a", "log", "act"}) {
      recording.enter(module);
      recording.value(module, "output", module == std::string("a") ? kSound : kIll, "output");
      recording.exit(module);
    }
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "log", "log.output", 2);
}

TEST_F(Check, AnInnerModuleWhoseCallerWasNotRecorded) {
  {
    Recording recording(folder());
    recording.call("blocks.0.attn", kSound, kSound);
    recording.call("blocks.1.attn", kIll, kIll);
    recording.call("blocks.2.attn", kIll, kIll);
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "", "blocks.1.attn.input.0", 4);
  EXPECT_NE(found[0].message.find("code that was not recorded"), std::string::npos) << found[0].message;
}

TEST_F(Check, AnEvaluationRecoversWithinAStep) {
  {
    Recording recording(folder());
    recording.value("", "weight.grad", kSound, "grad", "backward");
    for (std::int64_t call = 0; call < 5; ++call) {
      const bool is_ill = call == 1 || call == 3;
      recording.enter("", call);
      recording.value("", "input.0", is_ill ? kIll : kSound, "input", "forward", call);
      recording.value("", "output", is_ill ? kIll : kSound, "output", "forward", call);
      recording.exit("", call);
    }
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 2U);
  expect(found[0], "nan", "", "input.0", 2);
  expect(found[1], "nan", "", "input.0", 2);
  EXPECT_EQ(found[1].place.call, 3);
}

TEST_F(Check, MaskedOutputsAreSaidToBePerhapsMeant) {
  {
    Recording recording(folder());
    recording.call("head", kSound, {-kInf, 1, 2, -kInf});
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].message.find("it may be meant, as a mask"), std::string::npos) << found[0].message;
}

TEST_F(Check, GradientThatReachesAModuleIsFollowedOutwards) {
  {
    Recording recording(folder());
    recording.enter("");
    recording.value("", "input.0", kSound, "input");
    recording.call("b", kSound, kSound);
    recording.value("", "output", kSound, "output");
    recording.exit("");
    recording.value("b", "grad_output.0", kIll, "grad_output", "backward");
    recording.value("", "grad_output.0", kIll, "grad_output", "backward");
    recording.value("b", "grad_input.0", kIll, "grad_input", "backward");
    recording.value("b", "weight.grad", kIll, "grad", "backward");
    recording.value("b", "weight", kIll, "param", "optimizer");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "", "grad_output.0", 5);
  EXPECT_NE(found[0].message.find("the program's own code"), std::string::npos) << found[0].message;
}

TEST_F(Check, GradientsOfParametersAloneNameTheModuleCalledLast) {
  {
    Recording recording(folder());
    recording.enter("");
    for (const char* module : {"a", "b", "c"}) recording.call(module, kSound, kSound);
    recording.exit("");
    recording.value("c", "weight.grad", kSound, "grad", "backward");
    recording.value("a", "weight.grad", kIll, "grad", "backward");
    recording.value("b", "weight.grad", kIll, "grad", "backward");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "b", "b.weight.grad", 2);
}

TEST_F(Check, BackwardOfAModuleWithoutParameters) {
  {
    Recording recording(folder());
    recording.enter("");
    for (const char* module : {"a", "sqrt", "b"}) recording.call(module, kSound, kSound);
    recording.exit("");
    recording.value("", "grad_output.0", kSound, "grad_output", "backward");
    recording.value("b", "grad_output.0", kSound, "grad_output", "backward");
    recording.value("b", "grad_input.0", kSound, "grad_input", "backward");
    recording.value("sqrt", "grad_output.0", kSound, "grad_output", "backward");
    recording.value("sqrt", "grad_input.0", {kInf, 1, 2, 3}, "grad_input", "backward");
    recording.value("a", "grad_output.0", {kInf, 1, 2, 3}, "grad_output", "backward");
    recording.value("a", "weight.grad", kIll, "grad", "backward");
    recording.value("b", "weight.grad", kSound, "grad", "backward");
    recording.value("a", "weight", kIll, "param", "optimizer");
    recording.value("b", "weight", kSound, "param", "optimizer");
    recording.step();
    recording.call("a", kSound, kIll, 1);
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "inf", "sqrt", "sqrt.grad_input.0", 5);
}

TEST_F(Check, WeightsAfterTheOptimizer) {
  {
    Recording recording(folder());
    recording.value("a", "weight", kSound, "param", "init");
    recording.call("a", kSound, kSound);
    recording.value("a", "weight.grad", kSound, "grad", "backward");
    recording.value("a", "weight", kIll, "param", "optimizer");
    recording.step();
    recording.call("a", kSound, kIll, 1);
    recording.value("a", "weight.grad", kIll, "grad", "backward", 1);
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "a", "a.weight", 3);
  EXPECT_EQ(found[0].place.phase, "optimizer");
}

TEST_F(Check, GradientsBetweenBackwardAndOptimizer) {
  {
    Recording recording(folder());
    recording.call("a", kSound, kSound);
    recording.value("a", "weight.grad", kSound, "grad", "backward");
    recording.value("a", "weight.grad", kIll, "grad", "optimizer");
    recording.value("a", "weight", kIll, "param", "optimizer");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "a", "a.weight.grad", 2);
  EXPECT_EQ(found[0].place.phase, "optimizer");
}

TEST_F(Check, AnotherStepAfterRecoveryIsAFindingOfItsOwn) {
  {
    Recording recording(folder());
    for (std::int64_t call = 0; call < 6; ++call) {
      const bool is_ill = call == 1 || call == 2 || call == 4;
      recording.enter("", call);
      recording.value("", "input.0", is_ill ? kIll : kSound, "input", "forward", call);
      recording.value("", "output", is_ill ? kIll : kSound, "output", "forward", call);
      recording.exit("", call);
      recording.value("a", "weight.grad", is_ill ? kIll : kSound, "grad", "backward", call);
      recording.value("a", "weight", kSound, "param", "optimizer", call);
      recording.step();
    }
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 2U);
  expect(found[0], "nan", "", "input.0", 5);
  EXPECT_EQ(found[0].again, 1U);
  EXPECT_EQ(found[0].place.step, 1);
  expect(found[1], "nan", "", "input.0", 3);
  EXPECT_EQ(found[1].place.step, 4);
}

TEST_F(Check, RanksAreFindingsOfTheirOwnButForWhatTheyExchange) {
  for (const int rank : {0, 1}) {
    Recording recording(folder(), rank, 2);
    const std::vector<float>& data = rank == 1 ? kIll : kSound;
    recording.enter("");
    recording.value("", "input.0", data, "input");
    recording.value("", "output", data, "output");
    recording.exit("");
    recording.value("", "grad_output.0", data, "grad_output", "backward");
    recording.value("", "weight.grad", kIll, "grad", "backward");  // the mean over both ranks
    recording.value("", "weight", kIll, "param", "optimizer");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 1U);
  expect(found[0], "nan", "", "input.0", 7);
  EXPECT_EQ(found[0].place.rank, 1);
}

TEST_F(Check, EachRankHasItsOwnData) {
  for (const int rank : {0, 1}) {
    Recording recording(folder(), rank, 2);
    recording.enter("");
    recording.value("", "input.0", kIll, "input");
    recording.exit("");
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].place.rank, 0);
  EXPECT_EQ(found[1].place.rank, 1);
}

TEST_F(Check, ValuesRecordedByHand) {
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
    for (const double loss : {1.0, 0.5, double(kInf), double(kNan), 0.25, double(kNan)}) {
      run.record("loss", loss);
      run.step();
    }
  }
  const auto found = chains();
  ASSERT_EQ(found.size(), 2U);
  expect(found[0], "inf", "", "loss", 2);
  EXPECT_EQ(found[0].place.step, 2);
  expect(found[1], "nan", "", "loss", 1);
  EXPECT_EQ(found[1].message, "loss is NaN at step 5, call 0: it arises in the program; loss is 0.25");
}

TEST_F(Check, AnInfiniteLossRecordedByHandIsNoMask) {
  for (const float loss : {kInf, -kInf}) {
    Recording recording(folder());
    recording.value("", "loss", {1}, "");
    recording.step();
    recording.value("", "loss", {loss}, "");
    const CheckReport report = check_run(recording.run().path());
    ASSERT_EQ(report.findings.size(), 1U) << loss;
    EXPECT_EQ(report.findings[0].code, "inf");
    EXPECT_EQ(report.findings[0].place.step, 1);
  }
}

TEST_F(Check, ThresholdsSayWhatIsStillFine) {
  {
    Recording recording(folder());
    recording.call("a", kSound, kIll);
  }
  EXPECT_EQ(chains().size(), 1U);
  EXPECT_TRUE(report({.thresholds = {{"nan", 1}}, .only = {"nan"}}).is_healthy());
  EXPECT_THROW(report({.only = {"nothing"}}), Error);
  EXPECT_THROW(report({.thresholds = {{"nothing", 1}}}), Error);
}

TEST_F(Check, NothingWasLookedAt) {
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
  }
  const CheckReport empty = report();
  EXPECT_FALSE(empty.has_looked());
  EXPECT_FALSE(empty.is_healthy());
  EXPECT_EQ(empty.rules.size(), check_rules().size());
}

TEST_F(Check, CountsWhatItLookedAt) {
  {
    Recording recording(folder());
    recording.value("a", "weight", kSound, "param", "init");
    recording.call("a", kSound, {1, 2, 3, 4});
    recording.run().record("epoch", std::int64_t{3});
    recording.run().record("title", "some words");
  }
  const CheckReport looked = report();
  EXPECT_TRUE(looked.is_healthy());
  EXPECT_EQ(looked.tensors, 3U);
  EXPECT_EQ(looked.numbers, 1U);
  EXPECT_EQ(looked.parameters, 1U);
  EXPECT_EQ(looked.steps, 1U);
  EXPECT_FALSE(report({.only = {"no-gradient"}}).has_looked());
}

TEST_F(Check, WhatWasNotSeenIsSaidInWords) {
  {
    Recording recording(folder());
    recording.call("log", kSound, kSound);
    recording.run().record({.kind = EventKind::Note,
                            .name = kNotSeenNote,
                            .meta = R"({"reason": "never called", "modules": ["", "a", "b.c", "d", "e"]})"},
                           EventValue());
    recording.run().record(
        {.kind = EventKind::Note, .name = kNotSeenNote, .scope = "log", .meta = R"({"reason": "compiled"})"},
        EventValue());
  }
  EXPECT_EQ(report().notes, (std::vector<std::string>{"not seen in log: compiled",
                                                      "not seen: never called (the model, a, b.c, 2 more)"}));
}

TEST(CheckMissing, ARunThatWasNotClosedIsNotCalledHealthy) {
  store::RunFixture run;
  run.add_tensor<float>("x", 0, {1, 2, 3});
  const CheckReport cut = check_run(run.path());
  EXPECT_TRUE(cut.has_looked());
  EXPECT_TRUE(cut.findings.empty());
  ASSERT_EQ(cut.missing.size(), 1U);
  EXPECT_FALSE(cut.is_healthy());
  run.close();
  EXPECT_TRUE(check_run(run.path()).is_healthy());
}

TEST(CheckMissing, ARunThatFailedIsNotCalledHealthy) {
  const store::ScratchFolder scratch;
  {
    Recording recording(scratch.path());
    recording.call("fc", kSound, kSound);
    recording.run().record({.kind = EventKind::Note, .name = kExceptionNote}, EventValue(std::string("KeyError: x")));
    recording.run().record({.kind = EventKind::Note, .name = kExitNote}, EventValue(std::int64_t{3}));
  }
  const CheckReport failed = check_run(scratch.path() / "run");
  EXPECT_TRUE(failed.has_looked() && failed.findings.empty() && failed.missing.empty());
  EXPECT_EQ(failed.failures, std::vector<std::string>{"the program failed: KeyError: x"});
  EXPECT_EQ(failed.notes, std::vector<std::string>{"the program ended with exit code 3"});
  EXPECT_FALSE(failed.is_healthy());
}

}  // namespace
}  // namespace tenscope
