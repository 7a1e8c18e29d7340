#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <set>

#include "bindings/module.hpp"
#include "compare/checkpoint_diff.hpp"
#include "compare/noise_profile.hpp"
#include "compare/op_diff.hpp"
#include "compare/oracle.hpp"
#include "compare/run_diff.hpp"
#include "report/checkpoint_diff.hpp"
#include "report/layout.hpp"
#include "report/op_diff.hpp"
#include "report/oracle.hpp"
#include "report/run_diff.hpp"
#include "store/run_folder.hpp"
#include "tenscope/diff.hpp"

using namespace nb::literals;
using namespace tenscope;

namespace {

using Report = std::tuple<std::string, std::string, std::string>;  // text, JSON document, HTML
using Noise = std::optional<std::string>;                          // as RunDiffOptions::noise

Report report_of(const RunDiff& diff, std::size_t top, bool strict, bool color = false, std::size_t width = 80) {
  const report::RunDiffTextOptions options{.color = color, .top = top, .strict = strict, .width = width};
  return {report::run_diff_text(diff, options), report::run_diff_json(diff), report::run_diff_html(diff, options)};
}

void init_partial_diff(nb::module_& m) {
  using compare::PartialDiff;
  nb::class_<PartialDiff>(m, "PartialDiff", "What was found of some ranks of two runs.")
      .def_rw("a", &PartialDiff::a)
      .def_rw("b", &PartialDiff::b)
      .def_prop_ro("ranks", [](const PartialDiff& diff) { return std::vector(diff.ranks.begin(), diff.ranks.end()); })
      .def("merge", &PartialDiff::merge, "other"_a, "Takes what was found of other ranks in.")
      .def(
          "report",
          [](const PartialDiff& diff, std::size_t top, bool strict) {
            nb::gil_scoped_release release;
            return report_of(diff.result(), top, strict);
          },
          "top"_a, "strict"_a)
      .def(
          "settled_report",
          [](const PartialDiff& diff, const std::string& a, const std::string& b, std::vector<std::string> map,
             std::optional<double> tolerance, bool prefix, std::size_t top, bool strict, const Noise& noise) {
            nb::gil_scoped_release release;
            const RunDiffOptions options{
                .map = std::move(map), .tolerance = tolerance, .allow_prefix = prefix, .noise = noise};
            return report_of(compare::settle(diff.result(), a, b, options), top, strict);
          },
          "a"_a, "b"_a, "map"_a, "tolerance"_a.none(), "prefix"_a, "top"_a, "strict"_a, "noise"_a.none() = "",
          "The report where all ranks of both runs were compared.")
      .def("__getstate__",
           [](const PartialDiff& diff) {
             const std::string bytes = diff.to_bytes();
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("__setstate__", [](PartialDiff& diff, const nb::bytes& bytes) {
        new (&diff) PartialDiff(PartialDiff::from_bytes({bytes.c_str(), bytes.size()}));
      });
  m.def(
      "diff_some_ranks",
      [](const std::string& a, const std::string& b, std::vector<int> ranks, std::vector<std::string> map,
         std::optional<double> tolerance, bool prefix, const Noise& noise) {
        nb::gil_scoped_release release;
        return compare::diff_some_ranks(a, b,
                                        {.map = std::move(map),
                                         .tolerance = tolerance,
                                         .ranks = std::move(ranks),
                                         .allow_prefix = prefix,
                                         .noise = noise});
      },
      "a"_a, "b"_a, "ranks"_a, "map"_a, "tolerance"_a.none(), "prefix"_a, "noise"_a.none() = "");
  m.def(
      "are_laid_out_alike",
      [](const std::string& a, const std::string& b) {
        nb::gil_scoped_release release;
        return compare::are_laid_out_alike(a, b);
      },
      "a"_a, "b"_a, "Whether each rank of two runs can be compared with itself.");
  m.def(
      "run_ranks",
      [](const std::string& path) {
        nb::gil_scoped_release release;
        const std::filesystem::path run = store::resolve_run(path);
        std::set<int> ranks;
        for (const store::WriterFolder& folder : store::writer_folders(run)) ranks.insert(folder.rank);
        return std::pair(run.string(), std::vector(ranks.begin(), ranks.end()));
      },
      "path"_a, "The folder of the run that a path stands for, and the ranks that have a folder in it.");
}

void init_noise_profile(nb::module_& m) {
  using compare::NoiseProfile, compare::NoiseRun;
  nb::class_<NoiseRun>(m, "NoiseRun", "A program run again with other roundings.")
      .def_ro("changes", &NoiseRun::changes)
      .def_ro("compared", &NoiseRun::compared)
      .def_ro("moved", &NoiseRun::moved)
      .def_ro("missing", &NoiseRun::missing)
      .def_ro("initial_units", &NoiseRun::initial_units);
  nb::class_<NoiseProfile>(m, "NoiseProfile", "How far each place of a program moves by rounding alone.")
      .def_static("read", &NoiseProfile::read, "path"_a)
      .def(nb::init<>())
      .def("write", &NoiseProfile::write, "path"_a)
      .def("add", nb::overload_cast<const NoiseProfile&>(&NoiseProfile::add), "other"_a)
      .def("__len__", &NoiseProfile::size)
      .def_ro("runs", &NoiseProfile::runs)
      .def(
          "places",
          [](const NoiseProfile& profile) {
            nb::list places;
            profile.each([&](const compare::NoisePlace& place, const compare::PlaceNoise& noise) {
              nb::dict one;
              one["rank"] = place.rank;
              one["name"] = place.name;
              one["io"] = place.io;
              one["phase"] = place.phase;
              one["step"] = place.step;
              one["call"] = place.call;
              one["rel_max"] = noise.rel_max;
              one["rel_l2"] = noise.rel_l2;
              one["systematic"] = noise.systematic;
              one["flipped"] = noise.flipped;
              places.append(one);
            });
            return places;
          },
          "How far each place moved.");
}

}  // namespace

// Runs are compared without the GIL; the result crosses as the report and the JSON document.
void init_rundiff(nb::module_& m) {
  init_partial_diff(m);
  init_noise_profile(m);
  m.def(
      "diff_runs",
      [](const std::string& a, const std::string& b, std::vector<std::string> map, std::optional<double> tolerance,
         std::size_t top, bool strict, bool prefix, std::vector<std::string> rows, std::vector<int> ranks,
         const std::optional<nb::callable>& progress, bool budget, const Noise& noise, bool color, std::size_t width) {
        RunDiffOptions options{.map = std::move(map),
                               .tolerance = tolerance,
                               .rows = std::move(rows),
                               .ranks = std::move(ranks),
                               .allow_prefix = prefix,
                               .noise = noise,
                               .with_budget = budget};
        if (progress)
          options.on_progress = [&progress](double done) {
            nb::gil_scoped_acquire acquire;
            (*progress)(done);
          };
        nb::gil_scoped_release release;
        return report_of(diff_runs(a, b, options), top, strict, color, width);
      },
      "a"_a, "b"_a, "map"_a, "tolerance"_a.none(), "top"_a, "strict"_a, "prefix"_a, "rows"_a, "ranks"_a,
      "progress"_a.none(), "budget"_a = false, "noise"_a.none() = "", "color"_a = false, "width"_a = 80);
  m.def(
      "measure_noise",
      [](const std::string& run, const std::string& again, std::vector<std::string> changes) {
        nb::gil_scoped_release release;
        compare::NoiseProfile profile;
        compare::measure_noise(run, again, std::move(changes), profile);
        return profile;
      },
      "run"_a, "again"_a, "changes"_a, "How far each place of a run moved when the same program was run again.");
  m.def(
      "diff_operations",
      [](const std::string& a, const std::string& b, std::optional<std::int64_t> step, std::optional<int> rank,
         std::optional<std::string> called_a, std::optional<std::string> called_b, bool color) {
        nb::gil_scoped_release release;
        const OpDiff diff = diff_operations(a, b, {step, rank, std::move(called_a), std::move(called_b)});
        return std::pair(report::op_diff_text(diff, color), report::op_diff_json(diff));
      },
      "a"_a, "b"_a, "step"_a.none(), "rank"_a.none(), "called_a"_a.none() = nb::none(),
      "called_b"_a.none() = nb::none(), "color"_a = false);
  m.def(
      "judge_by_oracle",
      [](const std::string& a, const std::string& b, std::optional<int> rank, bool color) {
        nb::gil_scoped_release release;
        const OracleDiff diff = judge_by_oracle(a, b, rank);
        return std::pair(report::oracle_text(diff, color), report::oracle_json(diff));
      },
      "a"_a, "b"_a, "rank"_a.none(), "color"_a = false);
  m.def(
      "fitted",
      [](const std::string& text, std::size_t width) {
        std::string all;
        for (std::size_t begin = 0; begin < text.size();) {
          const std::size_t end = std::min(text.find('\n', begin), text.size());
          all += report::fitted(text.substr(begin, end - begin), width) + '\n';
          begin = end + 1;
        }
        return all;
      },
      "text"_a, "width"_a, "The lines of a report in the width of a terminal; 0: any width.");
  m.def(
      "are_checkpoints",
      [](const std::string& a, const std::string& b) {
        nb::gil_scoped_release release;
        return compare::are_checkpoints(a, b);
      },
      nb::arg("a"), nb::arg("b"));
  m.def(
      "diff_checkpoints",
      [](const std::string& a, const std::string& b, std::vector<std::string> map, std::size_t top, std::size_t width) {
        nb::gil_scoped_release release;
        const compare::CheckpointDiff diff =
            compare::diff_checkpoints(a, b, {.map = std::move(map), .on_progress = {}});
        const report::Document shown = report::checkpoint_diff_report(diff, top);
        return Report(shown.text(false, width), report::checkpoint_diff_json(diff), shown.html());
      },
      nb::arg("a"), nb::arg("b"), nb::arg("map"), nb::arg("top"), nb::arg("width"));
}
