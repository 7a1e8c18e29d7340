#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/look.hpp"

namespace tenscope::kernels {

inline constexpr std::int64_t kMaxProfileBins = 4096;

// A look along one axis, over all others. min, max, mean and l2 are over the finite elements and NaN where there is
// none.
struct Profile {
  std::int64_t size = 0;
  std::int64_t bin_width = 1;  // indices of the axis to a bin; the last may have fewer
  std::vector<double> min, max, mean, l2;
  std::vector<std::int64_t> bad;      // NaN and infinities
  std::vector<std::int64_t> nonzero;  // all but zeros, finite or not: of a pair the elements that differ
};

// `shape` is that of the look's tensor, `axis` one of its axes.
Profile make_profile(const Look& look, std::span<const std::int64_t> shape, std::size_t axis, int threads = 0);

}  // namespace tenscope::kernels
