#pragma once

#include "tracer/watcher.hpp"

namespace tenscope::python {

// A change as an event of the current run, where there is one.
void record_change(const Watcher& watcher, const CallLog& log, const ChangeItem& change, PyObject* value);
void record_left_out(const CallLog& log);

}  // namespace tenscope::python
