#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "bindings/module.hpp"
#include "bindings/tensor_adapter.hpp"
#include "bindings/value_adapter.hpp"
#include "compare/value_diff.hpp"
#include "format/format.hpp"
#include "kernels/simd_target.hpp"
#include "report/value_diff.hpp"
#include "tenscope/explain.hpp"

namespace {

using namespace tenscope;

// One side of a comparison: a tree of values, from a file or from Python objects.
struct Side {
  Value value;
};

kernels::CompareOptions compare_options(double atol, double rtol, bool equal_nan) {
  kernels::CompareOptions options;
  options.tolerance = {atol, rtol};
  options.equal_nan = equal_nan;
  return options;
}

DiffOptions diff_options(std::optional<double> atol, std::optional<double> rtol, std::optional<std::uint64_t> ulp,
                         bool equal_nan) {
  DiffOptions options;
  options.atol = atol;
  options.rtol = rtol;
  options.ulps = ulp;
  options.equal_nan = equal_nan;
  return options;
}

template <class F>
auto without_gil(F&& f) {
  const nb::gil_scoped_release release;
  return f();
}

// A pair of tensors without a tree around it: the quick way. None where one of them is no tensor.
nb::object tensors_close(nb::handle a, nb::handle b, double atol, double rtol, bool equal_nan) {
  python::BorrowedTensor x;
  python::BorrowedTensor y;
  if (!python::is_tensor_like(a.ptr()) || !python::is_tensor_like(b.ptr())) return nb::none();
  for (auto [borrowed, object] : {std::pair{&x, a}, std::pair{&y, b}}) {
    if (borrowed->borrow(object.ptr()) != python::Borrowed::Ok) {
      throw Error(ErrorCode::Unsupported, "cannot compare this tensor: " + borrowed->reason);
    }
  }
  const auto options = compare_options(atol, rtol, equal_nan);
  return nb::cast(without_gil([&] { return kernels::all_close(x.view, y.view, options); }));
}

// (relation, words, numpy, [(name, shape, values, are they integers)]).
nb::tuple explain_tensors(nb::handle a, nb::handle b) {
  python::BorrowedTensor x;
  python::BorrowedTensor y;
  for (auto [borrowed, object] : {std::pair{&x, a}, std::pair{&y, b}}) {
    if (borrowed->borrow(object.ptr()) != python::Borrowed::Ok) {
      throw Error(ErrorCode::Unsupported, "cannot explain this tensor: " + borrowed->reason);
    }
  }
  const Explanation found = without_gil([&] { return explain(x.view, y.view); });
  nb::list arrays;
  for (const ExplanationArray& array : found.arrays)
    arrays.append(nb::make_tuple(array.name, array.shape, array.values, array.is_integer));
  return nb::make_tuple(found.relation, found.words, found.numpy, arrays);
}

}  // namespace

void init_compare(nb::module_& m) {
  const nb::class_<Side> side(m, "Side", "What one side of a comparison holds.");
  m.def(
      "side_from_file", [](const std::string& path) { return Side{without_gil([&] { return load(path); })}; },
      nb::arg("path"));
  m.def(
      "side_from_object",
      [](nb::handle object, nb::handle reduce) {
        return Side{python::value_of(object, python::ValueFor::Comparison, reduce)};
      },
      nb::arg("object").none(), nb::arg("reduce"));
  m.def(
      "is_tensor_like", [](nb::handle object) { return python::is_tensor_like(object.ptr()); },
      nb::arg("object").none());
  m.def("is_loadable", [](const std::string& path) { return is_loadable(path); }, nb::arg("path"));
  m.def("tensors_close", &tensors_close, nb::arg("a"), nb::arg("b"), nb::arg("atol"), nb::arg("rtol"),
        nb::arg("equal_nan"),
        nb::sig("def tensors_close(a: object, b: object, atol: float, rtol: float, equal_nan: bool) -> bool | None"));
  m.def(
      "sides_close",
      [](const Side& a, const Side& b, double atol, double rtol, bool equal_nan) {
        const auto options = compare_options(atol, rtol, equal_nan);
        return without_gil([&] { return same_values(a.value, b.value, options); });
      },
      nb::arg("a"), nb::arg("b"), nb::arg("atol"), nb::arg("rtol"), nb::arg("equal_nan"));

  nb::class_<ValueDiff>(m, "ValueDiff", "How two values, files or folders differ; see tenscope.diff.")
      .def_prop_ro("is_different", &ValueDiff::is_different)
      .def_prop_ro("is_single_tensor",
                   [](const ValueDiff& diff) {
                     return diff.entries.size() == 1 && diff.values == 0 && diff.entries[0].tensor &&
                            diff.entries[0].name.empty();
                   })
      .def(
          "text", [](const ValueDiff& diff, int top) { return report::value_diff_report(diff, top).text(false); },
          nb::arg("top"))
      .def(
          "html", [](const ValueDiff& diff, int top) { return report::value_diff_report(diff, top).html(); },
          nb::arg("top"))
      .def("json", [](const ValueDiff& diff) {
        std::string text;
        JsonWriter json(text);
        write_json(json, diff);
        return text;
      });
  m.def(
      "diff_sides",
      [](const Side& a, const Side& b, std::optional<double> atol, std::optional<double> rtol,
         std::optional<std::uint64_t> ulp, bool equal_nan) {
        const auto options = diff_options(atol, rtol, ulp, equal_nan);
        return without_gil([&] { return diff_values(a.value, b.value, options); });
      },
      nb::arg("a"), nb::arg("b"), nb::arg("atol").none(), nb::arg("rtol").none(), nb::arg("ulp").none(),
      nb::arg("equal_nan"));
  m.def(
      "diff_paths",
      [](const std::string& a, const std::string& b, std::optional<double> atol, std::optional<double> rtol,
         std::optional<std::uint64_t> ulp, bool equal_nan) {
        const auto options = diff_options(atol, rtol, ulp, equal_nan);
        return without_gil([&] { return diff_paths(a, b, options); });
      },
      nb::arg("a"), nb::arg("b"), nb::arg("atol").none(), nb::arg("rtol").none(), nb::arg("ulp").none(),
      nb::arg("equal_nan"));
  m.def(
      "explain", &explain_tensors, nb::arg("a"), nb::arg("b"),
      nb::sig(
          "def explain(a: object, b: object) -> tuple[str, str, str, list[tuple[str, list[int], list[float], bool]]]"));
  m.def("simd_target", &kernels::simd_target);
}
