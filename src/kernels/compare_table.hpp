#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenscope/dtype.hpp"

namespace tenscope::kernels {

// |a - b| <= absolute + relative * |b|: b is the reference.
struct Tolerance {
  double absolute = 1e-8;
  double relative = 1e-5;
};

// What the vector pass over one block of pairs finds. Sums are over the pairs that are finite on both sides.
struct BlockDiff {
  double sum_error = 0;
  double sum_relative = 0;
  double max_error = 0;
  double max_relative = 0;
  double sum_aa = 0;
  double sum_bb = 0;
  double sum_ab = 0;
  double sum_squared_error = 0;
  std::int64_t finite = 0;
  std::int64_t relative_count = 0;  // finite pairs with b != 0
  std::int64_t outside = 0;         // finite pairs outside the tolerance
};

// How far the pairs of one block are apart, seen from a. Says nothing where `all_finite` is false.
struct PairSums {
  double dd = 0, aa = 0, da = 0;  // of d = b - a
  double max_d = 0, max_a = 0;    // magnitudes
  std::int64_t differing = 0;
  bool all_finite = true;
};

// The kernels of compare_simd.cpp for one vector unit. Blocks hold at most kCompareBlock elements.
inline constexpr std::int64_t kCompareBlock = 512;

struct CompareTable {
  // True only where every element of a equals its partner in b, and so none is NaN. Of one dtype.
  std::array<bool (*)(const std::byte* a, const std::byte* b, std::int64_t count), kDTypeCount> equal;
  // Elements as doubles; of complex types the components, 2 * count of them. int64 and uint64 are rounded.
  std::array<void (*)(const std::byte* bytes, std::int64_t count, double* out), kDTypeCount> widen;
  bool (*close)(const double* a, const double* b, std::int64_t count, Tolerance tolerance, bool equal_nan);
  void (*absolute_error)(const double* a, const double* b, std::int64_t count, double* error);
  BlockDiff (*measure)(const double* a, const double* b, const double* error, std::int64_t count, Tolerance tolerance);
  BlockDiff (*measure_equal)(const double* a, std::int64_t count);
  PairSums (*sum_pairs)(const double* a, const double* b, std::int64_t count);
  // outside[i] = 1 where the pair is not within the tolerance; a pair that is not finite counts as outside.
  void (*mark_outside)(const double* b, const double* error, std::int64_t count, Tolerance tolerance,
                       std::uint8_t* outside);
  // Steps between neighbouring numbers of the type, for real float types only (else null).
  std::array<void (*)(const std::byte* a, const std::byte* b, std::int64_t count, std::uint64_t* ulps), kDTypeCount>
      ulps;
  // The same as bins of the histogram (see ulp_bin); returns the largest distance.
  std::array<std::uint64_t (*)(const std::byte* a, const std::byte* b, std::int64_t count, std::int32_t* bins),
             kDTypeCount>
      bin_ulps;
  // How many bins are `bin`.
  std::int64_t (*count_bin)(const std::int32_t* bins, std::int64_t count, std::int32_t bin);
  // Adds finite errors to a histogram of kErrorBinsWithZero counters (see error_bin). `max_error` is their largest.
  void (*count_errors)(const double* error, std::int64_t count, double max_error, std::int64_t* histogram);
};

const CompareTable& compare_table();

}  // namespace tenscope::kernels
