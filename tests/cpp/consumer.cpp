// Uses all of the public C++ API that a program in C++17 may use, and says what it saw: consumer RUNS
#include <array>
#include <cstdio>
#include <string>
#include <tenscope/check.hpp>
#include <tenscope/diff.hpp>
#include <tenscope/explain.hpp>
#include <tenscope/tenscope.hpp>
#include <variant>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  ++failures;
}

std::string record(const std::string& base, const char* name, float factor) {
  tenscope::RunOptions options;
  options.name = name;
  options.on_warning = [](const std::string& warning) { expect(false, warning.c_str()); };
  tenscope::Run run(base, options);
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::vector<float> y;
  for (const float value : x) y.push_back(factor * value);
  const std::size_t rows = 2;
  const std::vector<std::size_t> shape{rows, 3};
  const std::array<int, 2> strides{1, 2};

  tenscope::EventInfo info;
  info.name = "weight";
  info.io = "param";
  run.record(info, tenscope::view(&factor, {1}));
  run.record("x", tenscope::view(x.data(), {rows, 3}));
  info = {};
  info.name = "y";
  info.io = tenscope::Io::Output;
  info.phase = tenscope::Phase::Forward;
  info.meta = R"({"op": "scale"})";
  info.inputs = {"x", "weight"};
  const auto recorded = run.record(info, tenscope::view(y.data(), shape));
  expect(recorded.kept && recorded.summary.stats.max == 6 * factor, "what record returns");
  run.record("strided", tenscope::view(y.data(), shape, strides));
  run.record("rows", rows);
  run.record("count", 6);
  run.record("factor", factor);
  run.record("is_last", true);
  run.record("engine", "consumer");
  expect(run.step() == 1, "the next step");
  run.record("loss", 0.25);
  run.close();
  return run.path().string();
}

void read(const std::string& path) {
  const tenscope::Reader reader(path);
  expect(reader.problems().empty() && reader.writers().size() == 1 && reader.writers()[0].closed, "a closed run");
  expect(tenscope::run_state(reader.writers()) == tenscope::RunState::Closed, "its state");
  const auto find = [&](const char* name) {
    tenscope::Query query;
    query.name = name;
    return reader.find(query).at(0);
  };
  const auto y = reader.tensor(find("y"));
  expect(y.view.shape.size() == 2 && y.view.shape[0] == 2 && y.view.shape.back() == 3, "a shape");
  expect(static_cast<const float*>(y.view.data)[5] == 12, "an element");
  const auto event = reader.event(find("y"));
  expect(event.io == tenscope::Io::Output && event.meta == R"({"inputs":["x","weight"],"op": "scale"})", "an event");
  expect(std::holds_alternative<tenscope::TensorRecord>(event.value), "a tensor");
  expect(std::get<std::int64_t>(reader.event(find("rows")).value) == 2, "a size_t");
  expect(std::get<double>(reader.event(find("factor")).value) == 2, "a float");
  expect(std::get<bool>(reader.event(find("is_last")).value), "a bool");
  expect(std::get<std::string>(reader.event(find("engine")).value) == "consumer", "a text");
  expect(tenscope::matches_glob("blk.3.attn_q", "blk.*.attn_?"), "a glob");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string a = record(argv[1], "a", 2), b = record(argv[1], "b", 3);
  read(a);

  const auto diff = tenscope::diff_runs(a, b);
  expect(!diff.equal() && diff.first_divergence.has_value(), "two runs that differ");
  expect(tenscope::diff_runs(a, a).equal(), "a run and itself");
  expect(tenscope::check_run(a).is_healthy() && !tenscope::check_rules().empty(), "a healthy run");
  const std::vector<float> p{1, -2, 3, 5, 7, 11}, q{3, -6, 9, 15, 21, 33};
  const auto relation = tenscope::explain(tenscope::view(p.data(), {6}), tenscope::view(q.data(), {6}));
  expect(relation.relation == "scaled", relation.relation.c_str());
  expect(tenscope::verify(a).empty(), "no damage");

  try {
    tenscope::Reader reader(std::string(argv[1]) + "/none");
    expect(false, "an error");
  } catch (const tenscope::Error& error) {
    expect(error.code() == tenscope::ErrorCode::NotFound, "an error's code");
  }
  if (failures == 0) std::printf("as expected, with __cplusplus %ld\n", static_cast<long>(__cplusplus));
  return failures;
}
