#pragma once

#include <cstddef>

#include "tenscope/summary.hpp"

namespace tenscope::kernels {

// XXH3-128, compiled once for each vector unit (hash_*.cpp): the table of one of them.
struct HashTarget {
  void (*reset)(std::byte* state);
  void (*update)(std::byte* state, const std::byte* bytes, std::size_t size);
  Fingerprint (*digest)(const std::byte* state);
  Fingerprint (*hash)(const std::byte* bytes, std::size_t size);
};

extern const HashTarget kHashBaseline;
#if defined(__x86_64__)
extern const HashTarget kHashAvx2;
extern const HashTarget kHashAvx512;
#endif

// The fastest for this CPU, or what TENSCOPE_SIMD asks for.
const HashTarget& hash_target() noexcept;

// Streaming XXH3-128: equal to hashing all bytes at once.
class Hasher {
 public:
  explicit Hasher(const HashTarget& target = hash_target()) noexcept : target_(target) { target_.reset(state_); }
  void update(const std::byte* bytes, std::size_t size) noexcept { target_.update(state_, bytes, size); }
  Fingerprint digest() const noexcept { return target_.digest(state_); }

 private:
  alignas(64) std::byte state_[640];
  const HashTarget& target_;
};

}  // namespace tenscope::kernels
