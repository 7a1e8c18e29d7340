#include "core/suggest.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.hpp"
#include "core/printable.hpp"

void init_suggest(nb::module_& m) {
  m.def(
      "nearest",
      [](const std::string& word, const std::vector<std::string>& candidates, std::size_t limit) {
        return tenscope::nearest(word, candidates, limit);
      },
      nb::arg("word"), nb::arg("candidates"), nb::arg("limit") = 3,
      "The candidates most like the word, best first; none where nothing is near.");
  m.def(
      "printable", [](const std::string& text) { return tenscope::printable(text); }, nb::arg("text"),
      "A name as it can be shown in one line: what a terminal would obey is written out.");
}
