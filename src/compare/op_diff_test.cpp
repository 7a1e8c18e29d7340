// diff_operations on recordings of operations, each as docs/zoom.md has it.
#include "compare/op_diff.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/summarize.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

using Numbers = std::vector<float>;

class Program {
 public:
  explicit Program(Run& run) : run_(run) {}

  // A value that no operation has made; gives it on.
  Numbers input(const Numbers& values) {
    put("input", R"({})", values);
    return values;
  }

  // What `code` does in a call of a module.
  void call(const std::string& module, const std::string& site, const std::function<void()>& code) {
    const std::string meta = "{\"caller\":{\"site\":\"" + site + "\",\"text\":\"y = f(x)\"}}";
    run_.record({.kind = EventKind::Enter, .name = module, .meta = meta}, EventValue());
    code();
    run_.record({.kind = EventKind::Exit, .name = module}, EventValue());
  }

  Numbers operation(const std::string& name, const std::vector<Numbers>& inputs, const Numbers& result,
                    const std::string& args = "") {
    std::vector<std::string> from;
    for (const Numbers& one : inputs) from.push_back(fmt::format("\"{}\"", fingerprint(one)));
    put("out:" + name,
        fmt::format(R"({{"op":"aten.{}.default","args":"{}","from":[{}]}})", name, args, fmt::join(from, ",")), result);
    return result;
  }

 private:
  static TensorView seen(const Numbers& values, const std::int64_t& size) {
    return {values.data(), DType::F32, {&size, 1}};
  }

  static std::string fingerprint(const Numbers& values) {
    const auto size = static_cast<std::int64_t>(values.size());
    return kernels::fingerprint(seen(values, size)).hex();
  }

  void put(const std::string& name, const std::string& meta, const Numbers& values) {
    const auto size = static_cast<std::int64_t>(values.size());
    run_.record({.name = name, .io = Io::Op, .phase = Phase::Forward, .meta = meta}, seen(values, size));
  }

  Run& run_;
};

class OpDiffTest : public ::testing::Test {
 protected:
  using Code = std::function<void(Program&)>;

  OpDiff diff(const Code& a, const Code& b, const OpDiffOptions& options = {}) {
    const auto first = record("a", a), second = record("b", b);
    return diff_operations(first, second, options);
  }

 private:
  std::filesystem::path record(const std::string& name, const Code& code) {
    const std::filesystem::path path = folder_.path() / (name + std::to_string(runs_++));
    tenscope::Run run(folder_.path(), {.name = path.filename().string(), .strict = true});
    Program program(run);
    code(program);
    return path;
  }

  store::ScratchFolder folder_;
  int runs_ = 0;
};

const Numbers kX = {1, 2, 3, 4}, kRelu = {1, 2, 0, 0}, kDoubled = {2, 4, 6, 8}, kSum = {3, 6, 9, 12};

void relu_then_double(Program& program, const Numbers& x = kX, const Numbers& relu = kRelu) {
  program.operation("mul", {program.operation("relu", {program.input(x)}, relu)}, kDoubled, "2");
}

TEST_F(OpDiffTest, EqualOperationsAreTheSame) {
  const OpDiff found = diff([](Program& p) { relu_then_double(p); }, [](Program& p) { relu_then_double(p); });
  EXPECT_EQ(found.verdict, OpVerdict::Same);
  EXPECT_EQ(found.total_a, 2U);  // an input is no operation
  EXPECT_FALSE(found.a || found.b || found.metrics);
}

TEST_F(OpDiffTest, WithoutOperationsNothingIsSaid) {
  const OpDiff found = diff([](Program& p) { p.input(kX); }, [](Program& p) { relu_then_double(p); });
  EXPECT_EQ(found.verdict, OpVerdict::Nothing);
  EXPECT_EQ(found.total_b, 2U);
}

TEST_F(OpDiffTest, TheFirstWithAnotherResultIsNamed) {
  const OpDiff found = diff([](Program& p) { relu_then_double(p); },
                            [](Program& p) {
                              const Numbers relu = p.operation("relu", {p.input(kX)}, {1, 2, 0.5F, 0});
                              p.operation("mul", {relu}, {2, 4, 1, 0}, "2");
                            });
  EXPECT_EQ(found.verdict, OpVerdict::Differs);
  ASSERT_TRUE(found.a && found.b && found.metrics);
  EXPECT_EQ(found.a->op, "relu");
  EXPECT_EQ(found.a->full_op, "aten.relu.default");
  EXPECT_TRUE(found.are_inputs_equal);
  EXPECT_EQ(found.metrics->differing, 1);
  EXPECT_EQ(found.metrics->max_abs, 0.5);
}

TEST_F(OpDiffTest, RoundingIsNoiseAndItsConsequencesToo) {
  constexpr float kNext = 1 + std::numeric_limits<float>::epsilon();
  const OpDiff found = diff([](Program& p) { relu_then_double(p); },
                            [](Program& p) {
                              const Numbers relu = p.operation("relu", {p.input(kX)}, {kNext, 2, 0, 0});
                              p.operation("mul", {relu}, {2 * kNext, 4, 6, 8}, "2");
                            });
  EXPECT_EQ(found.verdict, OpVerdict::Noise);
}

TEST_F(OpDiffTest, AnOperationThatOneRunMakesAlone) {
  const auto without = [](Program& p) { p.operation("mul", {p.input(kX)}, kDoubled, "2"); };
  const auto with = [](Program& p) {
    const Numbers more = p.operation("add", {p.input(kX)}, kSum, "1");
    p.operation("mul", {more}, {6, 12, 18, 24}, "2");
  };
  const OpDiff found = diff(without, with);
  EXPECT_EQ(found.verdict, OpVerdict::OnlyInB);
  ASSERT_TRUE(found.b && found.next_a && !found.a);
  EXPECT_EQ(found.b->op, "add");
  EXPECT_EQ(found.next_a->op, "mul");
  EXPECT_EQ(diff(with, without).verdict, OpVerdict::OnlyInA);
}

TEST_F(OpDiffTest, AnotherOperationOfTheSameInputs) {
  const OpDiff found = diff([](Program& p) { p.operation("relu", {p.input(kX)}, kRelu); },
                            [](Program& p) { p.operation("gelu", {p.input(kX)}, kSum); });
  EXPECT_EQ(found.verdict, OpVerdict::Other);
  ASSERT_TRUE(found.a && found.b);
  EXPECT_EQ(found.a->op + found.b->op, "relugelu");
}

TEST_F(OpDiffTest, AnInputThatNobodyMadeIsNoOperationsFault) {
  const OpDiff found =
      diff([](Program& p) { relu_then_double(p); }, [](Program& p) { relu_then_double(p, {4, 3, 2, 1}, kSum); });
  EXPECT_EQ(found.verdict, OpVerdict::OtherInput);
  ASSERT_TRUE(found.a);
  EXPECT_EQ(found.a->op, "relu");
}

TEST_F(OpDiffTest, AModuleThatIsGivenAnotherValueIsToldByTheLineThatCallsIt) {
  const auto program = [](bool is_bug) {
    return [is_bug](Program& p) {
      const Numbers x = p.input(kX);
      p.call("net", "main.py:9", [&] {
        const Numbers relu = p.operation("relu", {x}, kRelu);
        p.call("net.fc", "model.py:5", [&] { p.operation("add", {is_bug ? x : relu}, is_bug ? kDoubled : kSum); });
      });
    };
  };
  const OpDiff found = diff(program(false), program(true), {.called_a = "net.fc", .called_b = "net.fc"});
  EXPECT_TRUE(found.are_inputs_exchanged);
  ASSERT_TRUE(found.a && found.b);
  EXPECT_EQ(found.b->op + " " + found.b->site + " " + found.b->text, "add model.py:5 y = f(x)");
  EXPECT_EQ(found.b->module, "net");
  const OpDiff of_outer = diff(program(false), program(true), {.called_a = "net", .called_b = "net"});
  EXPECT_EQ(of_outer.b->site + of_outer.b->module, "main.py:9");
  const OpDiff of_none = diff(program(false), program(true), {.called_a = "other"});
  EXPECT_TRUE(of_none.a->site.empty() && of_none.b->site.empty());
}

}  // namespace
}  // namespace tenscope
