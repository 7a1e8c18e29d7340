#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tenscope/dtype.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

// XXH3-128 of a tensor's bytes in C order. With dtype and byte count it is a tensor's identity.
struct Fingerprint {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  std::string hex() const;  // 32 digits, the high half first, as xxhsum prints it
  static std::optional<Fingerprint> parse(std::string_view hex) noexcept;
  friend bool operator==(const Fingerprint& a, const Fingerprint& b) noexcept {
    return a.low == b.low && a.high == b.high;
  }
  friend bool operator!=(const Fingerprint& a, const Fingerprint& b) noexcept { return !(a == b); }
};

// Statistics of a tensor's elements. min, max, mean, std, l2 and abs_max are over the finite elements and NaN where
// there is none. std is the population's (NumPy's default). Of a complex tensor the real and imaginary parts count as
// two elements. Bool counts as 0 and 1.
struct Stats {
  std::int64_t count = 0;  // all elements, finite or not
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  double std = std::numeric_limits<double>::quiet_NaN();
  double l2 = std::numeric_limits<double>::quiet_NaN();
  double abs_max = std::numeric_limits<double>::quiet_NaN();
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;
  std::int64_t zero = 0;
  std::int64_t subnormal = 0;
  // Of int64 and uint64, which a double does not hold exactly; uint64 as its bits. 0 for other types.
  std::int64_t exact_min = 0;
  std::int64_t exact_max = 0;
};

struct Summary {
  Fingerprint fingerprint;
  Stats stats;
};

}  // namespace tenscope
#pragma GCC visibility pop
