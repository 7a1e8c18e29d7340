#pragma once

#include <cstdint>
#include <limits>

namespace tenscope::kernels {

// What a pass over finite numbers finds.
struct ValueSums {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double squares = 0;
  std::int64_t nonzero = 0;
};

// Where the finite numbers of a block lie.
struct Extremes {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::int64_t nonzero = 0;
  std::int64_t above = 0;     // how many magnitudes were stored
  std::int64_t at_limit = 0;  // how many magnitudes are the limit
};

// What zeros and numbers that are not finite have instead of a key of their own (see `keys`).
inline constexpr std::uint16_t kZeroKey = 0x7FFF;
inline constexpr std::uint16_t kNanKey = 0x7FFE;
inline constexpr std::uint16_t kPositiveInfKey = 0x7FFD;
inline constexpr std::uint16_t kNegativeInfKey = 0x7FFC;

// The kernels of look_simd.cpp for one vector unit: loops over blocks of doubles in the first-level cache.
struct LookTable {
  bool (*all_finite)(const double* values, std::int64_t count);
  // b - a
  void (*subtract)(const double* a, const double* b, std::int64_t count, double* out);
  // |b - a| / |a|; 0 where they are equal. The pairs are finite.
  void (*relative)(const double* a, const double* b, std::int64_t count, double* out);
  // Each of count finite numbers into places of its own.
  void (*accumulate)(const double* values, std::int64_t count, double* min, double* max, double* sum);
  void (*accumulate_squares)(const double* values, std::int64_t count, double* squares, double* nonzero);
  // Finite numbers, all into one.
  ValueSums (*reduce)(const double* values, std::int64_t count);
  // Joins columns: cell i takes the minima, maxima and sums of the columns from bounds[i] - base to
  // bounds[i + 1] - base into its own.
  void (*join_columns)(const double* min, const double* max, const double* sum, const std::int64_t* bounds,
                       std::int64_t base, std::int64_t cells, double* cell_min, double* cell_max, double* cell_sum);
  // Finite numbers; those whose magnitude is above `limit` are stored, as magnitudes, in `above` (room for count).
  Extremes (*extremes)(const double* values, std::int64_t count, double limit, double* above);
  // Rounded; finite numbers stay finite.
  void (*to_floats)(const double* values, std::int64_t count, float* out);
  // The upper 16 bits of each number: sign, exponent and four bits of the mantissa; or one of the keys above.
  void (*keys)(const double* values, std::int64_t count, std::uint16_t* out);
  // Widens [min, max] by the finite numbers that are not 0.
  void (*nonzero_range)(const double* values, std::int64_t count, double& min, double& max);
  // How many are not 0 and of a magnitude below `limit`.
  std::int64_t (*count_below)(const double* values, std::int64_t count, double limit);
};

const LookTable& look_table();

}  // namespace tenscope::kernels
