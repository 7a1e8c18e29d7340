#include "format/format.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.hpp"
#include "bindings/value_adapter.hpp"

void init_format(nb::module_& m) {
  using namespace tenscope;
  m.def(
      "load_file",
      [](const std::string& path, bool map, bool verify_checksums, std::uint64_t max_inflated_bytes) {
        LoadOptions options;
        options.map = map;
        options.verify_checksums = verify_checksums;
        options.max_inflated_bytes = max_inflated_bytes;
        Value value;
        {
          nb::gil_scoped_release release;
          value = load(path, options);
        }
        return python::object_of(value);
      },
      nb::arg("path"), nb::arg("map"), nb::arg("verify_checksums"), nb::arg("max_inflated_bytes"));
  m.def(
      "save_file",
      [](const std::string& path, nb::handle object, bool compress,
         std::vector<std::pair<std::string, std::string>> metadata) {
        const nb::object describe = nb::module_::import_("tenscope.files").attr("_describe");
        const Value value = python::value_of(object, python::ValueFor::File, describe);
        nb::gil_scoped_release release;
        save(path, value, {compress, std::move(metadata)});
      },
      nb::arg("path"), nb::arg("object").none(), nb::arg("compress"), nb::arg("metadata"));
}
