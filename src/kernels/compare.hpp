#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/compare_table.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

struct CompareOptions {
  Tolerance tolerance;
  bool equal_nan = false;
  // Pairs at most this many ULPs apart agree as well, where both tensors have the same float type.
  std::optional<std::uint64_t> ulps;
  int threads = 0;  // 0: as many as the machine has, for large tensors
  // Called now and then, by one thread, with the elements done so far.
  std::function<void(std::int64_t)> progress;
};

// True where the shapes are the same and |value - reference| <= atol + rtol * |reference| for every pair: NumPy's
// allclose(value, reference). Equal infinities agree; NaN agrees with NaN only if `equal_nan`. Types may differ: pairs
// are compared in a type that holds both, so that integers are exact. Complex numbers by the magnitude of their
// difference. Stops at the first disagreement.
bool all_close(const TensorView& value, const TensorView& reference, const CompareOptions& options = {});

// Where mismatches are along one axis. Axes longer than kMaxAxisBins have bins of several indices.
struct AxisMismatches {
  std::int64_t size = 0;
  std::int64_t bin_width = 1;
  std::vector<std::int64_t> count;  // per bin
  std::vector<std::int64_t> low;    // per bin, the lowest and highest index with a mismatch; only where bin_width > 1
  std::vector<std::int64_t> high;
};

inline constexpr std::int64_t kMaxAxisBins = 4096;
inline constexpr int kErrorBins =
    64;  // decades: bin i holds errors in [10^(i + kErrorBinBase), 10^(i + 1 + kErrorBinBase))
inline constexpr int kErrorBinBase = -40;
inline constexpr int kUlpBins = 520;  // exact up to 15, then eight bins to each doubling

// Every measure of how a tensor differs from a reference of the same shape. Errors are over the pairs that are finite
// on both sides, relative ones |value - reference| / |reference| over those of them whose reference is not 0. NaN where
// there is no such pair. Where a difference overflows, the largest is infinite, and what would be summed is NaN.
struct ElementDiff {
  std::int64_t count = 0;
  bool bit_equal = false;  // same type and same bytes
  std::int64_t mismatches = 0;
  std::int64_t finite = 0;     // pairs finite on both sides, whose difference is, too
  std::int64_t overflows = 0;  // pairs finite on both sides that are further apart than a double can be
  double max_abs = 0;
  double mean_abs = 0;
  double max_rel = 0;
  double mean_rel = 0;
  double cosine = 0;              // of the two as vectors
  double relative_l2 = 0;         // |value - reference| / |reference|
  std::int64_t first_index = -1;  // of the first mismatch, in C order
  std::int64_t worst_index = -1;  // of the largest error, mismatch or not; first_index where no pair is finite
  std::int64_t nan_only_value = 0;
  std::int64_t nan_only_reference = 0;
  std::int64_t nan_both = 0;
  std::int64_t inf_only_value = 0;  // infinite there, and on the other side finite, or infinite with the other sign
  std::int64_t inf_only_reference = 0;
  std::int64_t inf_both = 0;
  std::int64_t first_nonfinite_index = -1;                 // of the first mismatch that is not finite on both sides
  std::int64_t zero_error = 0;                             // finite pairs without any error
  std::array<std::int64_t, kErrorBins> error_histogram{};  // of the errors above 0

  bool has_ulps = false;  // both of the same real float type
  std::uint64_t max_ulps = 0;
  std::array<std::int64_t, kUlpBins> ulp_histogram{};

  std::vector<AxisMismatches> axes;  // one for each axis

  // The distance that a share of the pairs does not exceed: exact up to 15, above to one part in eight.
  std::uint64_t ulp_quantile(double share) const;
};

// How far a value is from its reference, as few numbers as the comparison of runs needs: d = value - reference over the
// pairs that are finite on both sides. NaN equals NaN, and 0.0 equals -0.0. Of complex numbers magnitudes count.
struct ElementDistance {
  std::int64_t count = 0;
  std::int64_t differing = 0;        // pairs that are not equal, finite or not
  std::int64_t other_nonfinite = 0;  // pairs that differ and are not finite on both sides
  double max_difference = 0;         // largest |d|; infinite where that is no number of 64 bits
  double max_reference = 0;          // largest |reference|
  double difference_l2 = 0;          // Euclidean norm of d
  double reference_l2 = 0;           // of the reference
  double dot = 0;                    // sum of d * reference
};

// One pass over both, with less to find than diff(). Types may differ, and integers are exact, as with diff().
// Throws InvalidArgument where the shapes differ.
ElementDistance distance(const TensorView& value, const TensorView& reference);

// One pass over both. Throws InvalidArgument where the shapes differ.
ElementDiff diff(const TensorView& value, const TensorView& reference, const CompareOptions& options = {});

}  // namespace tenscope::kernels
