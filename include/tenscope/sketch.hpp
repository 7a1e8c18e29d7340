#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
namespace tenscope {

// Signed sums of a tensor's elements; which sum an element goes to, and with which sign, follows from its index in the
// whole tensor alone (docs/format.md). So sketches are linear: those of shards, and of the parts of a sum, add up to
// that of the whole, and the squares of a difference of two sketches add up to about the squares of the difference of
// the tensors. Of 64 elements or fewer the sums are the elements themselves.
struct Sketch {
  static constexpr std::size_t kSums = 64;
  std::array<double, kSums> sums{};

  Sketch& add(const Sketch& other, double factor = 1) noexcept {
    for (std::size_t i = 0; i < kSums; ++i) sums[i] += factor * other.sums[i];
    return *this;
  }
  friend bool operator==(const Sketch& a, const Sketch& b) noexcept { return a.sums == b.sums; }
  friend bool operator!=(const Sketch& a, const Sketch& b) noexcept { return !(a == b); }
};

}  // namespace tenscope
#pragma GCC visibility pop
