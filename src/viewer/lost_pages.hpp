#pragma once

#include <cstddef>

namespace tenscope::viewer {

// Files are read as memory. Where one is cut short in place while it is read, the system ends the program (SIGBUS)
// unless it is told otherwise. From keep_going_without_lost_pages() on, such pages read as zeros and are remembered, so
// that whoever has used them can say so. For the whole process: a program of our own calls it, a library does not.
void keep_going_without_lost_pages() noexcept;

// Whether some of these bytes lie in a page that was lost since.
bool has_lost_pages(const void* data, std::size_t size_bytes) noexcept;

// How many were lost so far.
std::size_t lost_page_count() noexcept;

}  // namespace tenscope::viewer
