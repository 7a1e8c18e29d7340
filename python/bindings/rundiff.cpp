#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.hpp"
#include "compare/checkpoint_diff.hpp"
#include "report/checkpoint_diff.hpp"
#include "report/run_diff.hpp"
#include "tenscope/diff.hpp"

using namespace tenscope;

// Runs are compared without the GIL; the result crosses as the report, the page and the JSON document.
void init_rundiff(nb::module_& m) {
  m.def(
      "diff_runs",
      [](const std::string& a, const std::string& b, std::vector<std::string> map, std::optional<double> tolerance,
         std::size_t top, bool strict, bool prefix, std::vector<std::string> rows) {
        nb::gil_scoped_release release;
        const RunDiff diff = diff_runs(
            a, b, {.map = std::move(map), .tolerance = tolerance, .rows = std::move(rows), .allow_prefix = prefix});
        return std::tuple(report::run_diff_text(diff, {.top = top, .strict = strict}), report::run_diff_json(diff),
                          report::run_diff_html(diff));
      },
      nb::arg("a"), nb::arg("b"), nb::arg("map"), nb::arg("tolerance").none(), nb::arg("top"), nb::arg("strict"),
      nb::arg("prefix"), nb::arg("rows"));
  m.def(
      "are_checkpoints",
      [](const std::string& a, const std::string& b) {
        nb::gil_scoped_release release;
        return compare::are_checkpoints(a, b);
      },
      nb::arg("a"), nb::arg("b"));
  m.def(
      "diff_checkpoints",
      [](const std::string& a, const std::string& b, std::vector<std::string> map, std::size_t top) {
        nb::gil_scoped_release release;
        const compare::CheckpointDiff diff =
            compare::diff_checkpoints(a, b, {.map = std::move(map), .on_progress = {}});
        return std::tuple(report::checkpoint_diff_text(diff, false, top), report::checkpoint_diff_json(diff));
      },
      nb::arg("a"), nb::arg("b"), nb::arg("map"), nb::arg("top"));
}
