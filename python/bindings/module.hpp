#pragma once

#include <nanobind/nanobind.h>

#include "tenscope/error.hpp"

namespace nb = nanobind;

// One init_x per file of bindings/ and tracer/; each only converts types and hands on to the core.
void init_errors(nb::module_& m);
void init_against(nb::module_& m);
void init_run(nb::module_& m);
void init_reader(nb::module_& m);
void init_arrow(nb::module_& m);
void init_format(nb::module_& m);
void init_probe(nb::module_& m);
void init_tracer(nb::module_& m);
void init_rundiff(nb::module_& m);
void init_viewer(nb::module_& m);
void init_compare(nb::module_& m);
void init_suggest(nb::module_& m);
void init_fetch(nb::module_& m);
void init_held_code(nb::module_& m);

// Sets the Python exception for an error of the core. nanobind's functions need not call it: they translate by
// themselves.
void set_python_error(const tenscope::Error& error) noexcept;
