#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.hpp"
#include "viewer/export.hpp"

using namespace nb::literals;
using namespace tenscope;

void init_viewer(nb::module_& m) {
  m.def(
      "export_page",
      [](const std::string& a, const std::string& b, std::vector<std::string> map, std::optional<double> tolerance,
         bool prefix, std::vector<std::string> rows, std::vector<int> ranks, std::string shown_a, std::string shown_b,
         std::size_t most_bytes, const std::optional<std::string>& noise) {
        nb::gil_scoped_release release;
        viewer::Viewer viewer(a, b,
                              {.diff = {.map = std::move(map),
                                        .tolerance = tolerance,
                                        .rows = std::move(rows),
                                        .ranks = std::move(ranks),
                                        .allow_prefix = prefix,
                                        .noise = noise},
                               .shown_paths = {std::move(shown_a), std::move(shown_b)}});
        return viewer::export_page(viewer, {.most_bytes = most_bytes});
      },
      "a"_a, "b"_a, "map"_a, "tolerance"_a.none(), "prefix"_a, "rows"_a, "ranks"_a, "shown_a"_a, "shown_b"_a,
      "most_bytes"_a, "noise"_a.none() = "", "What `tenscope view` shows, as one page.");
}
