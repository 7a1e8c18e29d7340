#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/compare.hpp"

// The histograms' bins, one number at a time; compare_simd.cpp has the same for vectors.
namespace tenscope::kernels {

inline constexpr std::size_t kErrorBinsWithZero = kErrorBins + 1;  // the last is for pairs without error

// 10^kErrorBinBase and up, as the compiler rounds the literals.
inline constexpr std::array<double, kErrorBins + 1> kDecades = {
    1e-40, 1e-39, 1e-38, 1e-37, 1e-36, 1e-35, 1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28,
    1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15,
    1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,
    1e-1,  1e0,   1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,
    1e12,  1e13,  1e14,  1e15,  1e16,  1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24};

// The decade of an error: from its exponent of 2 (78913 / 2^18 is log10(2), near enough for every exponent of a
// double), and one comparison. What lies below the first decade or above the last is counted there; 0 has the bin
// kErrorBins.
inline int error_bin(double error) noexcept {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(error) >> 52) - 1023;
  const int decade = ((exponent * 78913) >> 18) - kErrorBinBase;
  const int next = std::clamp(decade + 1, 0, kErrorBins);
  const int bin = std::clamp(decade + (error >= kDecades[static_cast<std::size_t>(next)] ? 1 : 0), 0, kErrorBins - 1);
  return error == 0 ? kErrorBins : bin;
}

// 0 has bin 0; from 1 on there are eight bins to each doubling, by the exponent and the upper bits of the number as a
// float.
inline int ulp_bin(std::uint64_t ulps) noexcept {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(static_cast<double>(ulps)) >> 49;
  return ulps == 0 ? 0 : static_cast<int>(bits) - (1023 << 3) + 1;
}

// The largest number in a bin.
inline std::uint64_t ulp_bin_top(int bin) noexcept {
  if (bin == 0) return 0;
  const int exponent = (bin - 1) / 8;
  const auto eighths = static_cast<std::uint64_t>((bin - 1) % 8 + 8);
  if (exponent < 3) return eighths >> (3 - exponent);
  if (exponent >= 63 && eighths == 15) return ~std::uint64_t{0};
  return ((eighths + 1) << (exponent - 3)) - 1;
}

}  // namespace tenscope::kernels
