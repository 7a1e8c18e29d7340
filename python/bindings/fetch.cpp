#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "bindings/module.hpp"
#include "tenscope/reader.hpp"

// Readers call what Python gave from threads of their own, with the GIL or without it, and may be the last to hold it.
namespace tenscope::python {
namespace {

using namespace nb::literals;

std::shared_ptr<const nb::callable> shared(nb::callable function) {
  return {new nb::callable(std::move(function)), [](const nb::callable* last) {
            if (!nb::is_alive()) return;
            const nb::gil_scoped_acquire acquire;
            delete last;
          }};
}

ErrorCode code_of(const nb::python_error& error) {
  return error.matches(PyExc_FileNotFoundError) ? ErrorCode::NotFound : ErrorCode::Io;
}

Fetch fetch_of(nb::callable function) {
  return [function = shared(std::move(function))](const std::filesystem::path& file, std::uint64_t offset,
                                                  std::uint64_t size_bytes) {
    const nb::gil_scoped_acquire acquire;
    try {
      (*function)(file.string(), offset, size_bytes);
    } catch (const nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // again, when this call is over
        throw Error(ErrorCode::Io, "interrupted");
      }
      throw Error(code_of(error), nb::str(error.value()).c_str());
    }
  };
}

// A FetchScope for a `with` block of Python.
struct Fetching {
  std::filesystem::path folder;
  nb::callable fetch;
  std::unique_ptr<FetchScope> scope;
};

}  // namespace
}  // namespace tenscope::python

void init_fetch(nb::module_& m) {
  using namespace tenscope::python;
  nb::class_<Fetching>(m, "Fetching",
                       "While entered, readers that are opened of runs in `folder` call fetch(file, offset, size) "
                       "before they read, and keep it.")
      .def(
          "__init__",
          [](Fetching* self, std::filesystem::path folder, nb::callable fetch) {
            new (self) Fetching{std::move(folder), std::move(fetch), nullptr};
          },
          "folder"_a, "fetch"_a)
      .def("__enter__",
           [](Fetching& self) {
             self.scope = std::make_unique<tenscope::FetchScope>(self.folder, fetch_of(self.fetch));
           })
      .def("__exit__", [](Fetching& self, const nb::args&) { self.scope.reset(); }, "args"_a);
}
