#pragma once

#include <atomic>

namespace tenscope::store {

// From now on runs `action` in a thread of its own when SIGTERM comes, whatever the other threads are stuck in, then
// lets the signal end the process as it does by default. A second SIGTERM ends it at once, and so does an action that
// takes longer than ten seconds. Does nothing (and returns false) where the program has a SIGTERM handler of its own,
// or ignores it, and where the system gives no thread.
bool at_sigterm(void (*action)());

// The thread is ended before a fork. Afterwards the parent starts it again, at once or, where `sigterm_thread_is_late`
// was set, with the next record, as a child always does; until then SIGTERM ends the process at once. Cheap to ask.
extern std::atomic<bool> sigterm_thread_is_late;
extern std::atomic<bool> sigterm_thread_is_due;
void restart_sigterm_thread();

}  // namespace tenscope::store
