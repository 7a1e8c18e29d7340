#pragma once

#include "tracer/watcher.hpp"

namespace tenscope::python {

// A change as an event of the current run, where there is one.
void record_change(const Watcher& watcher, const CallLog& log, const ChangeItem& change, PyObject* value);
void record_left_out(const CallLog& log);

// A part of a watched value that was not compared: a note in the run, or a warning where nothing is recorded.
void tell_not_compared(const Watcher& watcher, const CodeInfo& code, PyObject* name, const std::string& reason);

}  // namespace tenscope::python
