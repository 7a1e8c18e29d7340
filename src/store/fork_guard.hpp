#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tenscope::store {

// How a forked child is kept away from its parent's files. Every object that belongs to a process remembers the
// generation it was made in; in a child the generation is higher, and the object does nothing any more, in its
// destructor too. Descriptors opened for recording are closed in the child at once: an inherited one would keep the
// journal's lock alive after the parent's death.
class ForkGuard {
 public:
  static std::uint32_t generation() noexcept { return generation_.load(std::memory_order_relaxed); }

  // Held while a descriptor is opened and listed, so that no fork falls between the two.
  [[nodiscard]] static std::unique_lock<std::mutex> lock();
  static void list(int fd);            // under lock()
  static void close(int fd) noexcept;  // closes and unlists: again no fork falls between the two

 private:
  static void install();
  static std::atomic<std::uint32_t> generation_;
};

}  // namespace tenscope::store
