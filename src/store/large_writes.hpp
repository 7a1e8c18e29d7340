#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tenscope::store {

// How a large tensor goes to its file: through the page cache or past it, straight from its memory (O_DIRECT). Through
// the cache costs a copy, which is the fastest there is while free pages are at hand; but where those are dear (a
// virtual machine whose host takes free memory back, a cache full of what the disk has not taken yet), the disk itself
// is faster, and it leaves the processor and everyone else's cache alone. So both are measured as they are used: the
// cache is left only when it is slow, and the other way is tried again now and then. Thread-safe.
class LargeWrites {
 public:
  enum class Way : std::uint8_t { Cached, Direct };
  enum class Policy : std::uint8_t { Measured, Cached, Direct };

  explicit LargeWrites(Policy policy = Policy::Measured) noexcept : policy_(policy) {}

  Way choose() noexcept;
  void learn(Way way, std::uint64_t size_bytes, std::int64_t elapsed_ns) noexcept;
  void give_up_direct() noexcept { direct_works_ = false; }

 private:
  const Policy policy_;
  std::atomic<bool> direct_works_{true};
  std::array<std::atomic<double>, 2> ns_per_byte_{};  // running averages; 0: not measured yet
  std::atomic<std::uint32_t> choices_{0};
};

}  // namespace tenscope::store
