#pragma once

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tenscope::viewer {

// After work that has taken several times what is kept of it: the allocator would hold on to it.
inline void give_back_memory() noexcept {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace tenscope::viewer
