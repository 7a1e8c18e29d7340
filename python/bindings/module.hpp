#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

// One init_x per file of bindings/ and tracer/; each only converts types and hands on to the core.
