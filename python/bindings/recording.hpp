#pragma once

#include <Python.h>

#include "tenscope/run.hpp"

namespace tenscope::python {

// Records any Python object under info.name: tensors and arrays by their bytes, numbers, text and None inline, and
// nests (dict, list, tuple, namedtuple, dataclass, cycles and huge ones bounded) flattened into dotted names. The one
// door through which every Python probe records. Needs the GIL; never leaves a Python error set unless the run is
// strict. Returns the number of events written.
int record_object(Run& run, const EventInfo& info, PyObject* object, Values values = Values::Full);

// Records an event with a value that is no Python object, or with none (monostate): enter, exit, notes. Same promises.
int record_value(Run& run, const EventInfo& info, const EventValue& value);

// Types that tenscope.register() knows: a dict from type to a callable that gives what is recorded in an object's
// place. Kept for ever.
void set_registered(PyObject* types) noexcept;

// The process-wide run that tenscope.init() opened, or null. Borrowed.
Run* current_run() noexcept;

}  // namespace tenscope::python
