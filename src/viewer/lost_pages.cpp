// Overview: the handler of SIGBUS puts a page of zeros where the file has none any more, notes the address, and lets
// the read go on. It runs on whichever thread has read, so it takes no lock but a spinning one that nobody holds while
// reading mapped memory, and calls nothing but mmap, which is a plain system call.
#include "viewer/lost_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace tenscope::viewer {
namespace {

struct Range {
  std::uintptr_t begin = 0, end = 0;
};

std::atomic_flag is_taken = ATOMIC_FLAG_INIT;
std::array<Range, 1024> ranges;
std::size_t range_count = 0;
std::atomic<std::size_t> page_count = 0;
std::uintptr_t page_bytes = 4096;

class Turn {
 public:
  Turn() noexcept {
    while (is_taken.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Turn() { is_taken.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

// Pages that lie beside each other are one range. With more than there is room for, the last one grows to hold all.
void remember(std::uintptr_t page) noexcept {
  const Turn turn;
  const Range added{page, page + page_bytes};
  for (std::size_t i = 0; i < range_count; ++i) {
    Range& range = ranges[i];
    if (range.end != added.begin && range.begin != added.end) continue;
    range = {std::min(range.begin, added.begin), std::max(range.end, added.end)};
    return;
  }
  if (range_count < ranges.size()) {
    ranges[range_count++] = added;
    return;
  }
  Range& last = ranges.back();
  last = {std::min(last.begin, added.begin), std::max(last.end, added.end)};
}

void handle(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(page_bytes - 1);
  void* const address = reinterpret_cast<void*>(page);  // NOLINT(performance-no-int-to-ptr): it came as one
  const bool is_beyond_file = info->si_code == BUS_ADRERR;
  if (is_beyond_file && ::mmap(address, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                               0) != MAP_FAILED) {
    remember(page);
    page_count.fetch_add(1, std::memory_order_release);
  } else {
    ::signal(signal, SIG_DFL);  // it happens again, and ends the program
  }
  errno = error;
}

}  // namespace

void keep_going_without_lost_pages() noexcept {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

bool has_lost_pages(const void* data, std::size_t size_bytes) noexcept {
  if (page_count.load(std::memory_order_acquire) == 0) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(data), end = begin + size_bytes;
  const Turn turn;
  return std::any_of(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(range_count),
                     [&](const Range& range) { return begin < range.end && range.begin < end; });
}

std::size_t lost_page_count() noexcept { return page_count.load(std::memory_order_acquire); }

}  // namespace tenscope::viewer
