#pragma once

#include <cstdint>
#include <optional>

#include "kernels/look.hpp"

namespace tenscope::kernels {

// Which elements of a look are looked for.
struct Wanted {
  enum class Kind : std::uint8_t {
    Nan,
    Inf,
    Bad,        // NaN and infinities
    Nonzero,    // of a pair: those that differ
    Magnitude,  // |element| == magnitude
    Mismatch,   // of Difference: not within the tolerance of the reference, or different and not finite
  };
  Kind kind = Kind::Bad;
  double magnitude = 0;
  Tolerance tolerance;
};

// The next such element in C order behind `from` (all elements, where there is none), round the end once, so that
// `from` itself comes last; or the one before. Stops there. -1 where there is none.
std::int64_t find_next(const Look& look, const Wanted& wanted, std::optional<std::int64_t> from, bool is_backward);

std::int64_t count_wanted(const Look& look, const Wanted& wanted, int threads = 0);

// The largest magnitude of a finite element; -1 where there is none.
double largest_magnitude(const Look& look, int threads = 0);

}  // namespace tenscope::kernels
