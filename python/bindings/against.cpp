#include "compare/against.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>

#include "bindings/module.hpp"

using namespace nb::literals;
using namespace tenscope;

namespace {

const char* word_of(compare::Suspicion suspicion) {
  constexpr std::array<const char*, 3> kWords{"", "bits", "differs"};
  return kWords[static_cast<std::size_t>(suspicion)];
}

}  // namespace

// What is compared while it is recorded; Run.set_against has it asked for each value.
void init_against(nb::module_& m) {
  using compare::Against;
  nb::class_<Against>(m, "Against", "A finished recording that another is compared with while it is made.")
      .def(nb::init<const std::filesystem::path&, int, std::optional<double>>(), "reference"_a, "rank"_a,
           "tolerance"_a.none(), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("reference", &Against::reference)
      .def_prop_ro("has_rank", &Against::has_rank)
      .def("__len__", &Against::size)
      .def_prop_ro(
          "suspicion", [](const Against& self) { return word_of(self.suspicion()); },
          "The gravest that was seen since it was last taken: \"differs\", \"bits\" or nothing.")
      .def("take", [](Against& self) { return word_of(self.take().suspicion); })
      .def("excuse", &Against::excuse, "What was suspected so far is harmless.")
      .def_prop_ro("counts", [](const Against& self) {
        const compare::AgainstCounts counts = self.counts();
        nb::dict result;
        result["equal"] = counts.equal;
        result["noise"] = counts.noise;
        result["differs"] = counts.differs;
        result["unknown"] = counts.unknown;
        result["not_in_reference"] = counts.not_in_reference;
        return result;
      });
}
