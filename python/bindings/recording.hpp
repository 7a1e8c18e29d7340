#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <string_view>

#include "bindings/live_run.hpp"
#include "tenscope/run.hpp"

namespace tenscope::python {

// Records any Python object under info.name: tensors and arrays by their bytes, numbers, text and None inline, and
// nests (dict, list, tuple, namedtuple, dataclass, mappings; cycles and huge ones bounded) flattened into dotted names.
// The one door through which every Python probe records. Needs the GIL. Holds the run, since converters, __str__ and
// the like may run Python code that closes and drops it. Returns the number of events written; -1 with a Python error
// set, which only a strict run or Ctrl-C does.
int record_object(std::shared_ptr<LiveRun> live, const EventInfo& info, PyObject* object, Values values = Values::Full);

// Records an event with a value that is no Python object, or with none (monostate): enter, exit, notes. Same promises.
int record_value(std::shared_ptr<LiveRun> live, const EventInfo& info, const EventValue& value);

// Types that tenscope.register() knows: a dict from type to a callable that gives what is recorded in an object's
// place. Kept for ever.
void set_registered(PyObject* types) noexcept;

// One JSON object with `members` (as `"key":value`) added to those of `meta`, which is one or empty.
std::string with_members(std::string_view meta, const std::string& members);

}  // namespace tenscope::python
