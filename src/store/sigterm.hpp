#pragma once

namespace tenscope::store {

// From now on runs `action` in a thread of its own when SIGTERM comes, then lets the signal end the process as it does
// by default. A second SIGTERM ends it at once, and so does the first in a forked child. Does nothing (and returns
// false) where the program has a SIGTERM handler of its own, or ignores it.
bool at_sigterm(void (*action)());

}  // namespace tenscope::store
