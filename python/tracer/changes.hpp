#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "tracer/watcher.hpp"

namespace tenscope::python {

// The Python objects made of a log; null on failure, with no error set.
Ref make_changes(const std::shared_ptr<CallLog>& log);
Ref make_change(const std::shared_ptr<CallLog>& log, const ChangeItem& item);

std::string current_task_name();  // of asyncio; empty outside a task

// Trouble inside the tracer: the pending Python error, or an exception, is told once per kind on stderr and dropped;
// where errors raise (is_strict) it is kept for the door, which raises it in the program (Thread::raise_failure).
void note_failure(const char* where) noexcept;
void note_exception(const std::exception& error) noexcept;

}  // namespace tenscope::python
