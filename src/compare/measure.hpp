#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// How far two values are apart. The elements are compared by kernels::distance, as files are.
struct PairError {
  bool is_comparable = true;        // false: other shapes, texts, a tensor against a number
  bool is_lower_bound = false;      // from statistics alone: the true difference is at least this
  bool is_estimate = false;         // from sketches
  bool has_other_finite = false;    // a NaN or infinity on one side only
  bool may_hide_nonfinite = false;  // of an estimate: NaN or infinities may be elsewhere in the other
  std::int64_t count = 0;
  std::int64_t differing = 0;          // 0: the values are equal, though perhaps of another dtype
  double max_abs = 0;                  // largest |b - a|
  double scale = 0;                    // largest |a|
  double rel_l2 = 0;                   // |b - a| / |a|
  double correlation = 0;              // cosine between b - a and a
  double uncertainty = 0;              // of an estimate: the standard error of max_abs and rel_l2 as a part of them
  std::int64_t differing_at_most = 0;  // of an estimate of integers or bools
  DiffObstacle obstacle = DiffObstacle::None;

  // The largest difference as a part of the largest value, which counts as `floor` at least.
  double relative(double floor = 0) const;

  // The least and the most that an estimate leaves open, to some standard errors; else the same.
  PairError at_least() const;
  PairError at_most() const;
};

// Tells how far two events' values are apart; only called where they are not the same bit for bit.
using Measure = std::function<PairError(const Item& a, const Item& b)>;

// One pass over both tensors. NaN equals NaN. The dtypes need not be equal.
PairError measure(const TensorView& a, const TensorView& b);

bool is_exact(DType dtype);  // integers and bools, of which a difference is none of rounding

// Not what was put together of parts without their bytes (part_summary.hpp).
inline bool has_fingerprint(const TensorRecord& tensor) { return tensor.fingerprint != Fingerprint(); }

// From statistics alone. Every measure is a lower bound of the true one.
PairError measure_statistics(const TensorRecord& a, const TensorRecord& b);

// Numbers, texts, None. Integers are exact, also beyond 2^53.
PairError measure_values(const Item& a, const Item& b, const Interner& interner);

// Everything a report says of the difference: worst index, slices, a relation between the two if there is a simple one.
DiffMetrics describe(const TensorView& a, const TensorView& b);

// A simple relation by which b, which differs from a, follows from it, in words, or nothing: "b = 4 a", "b is a,
// flipped along axis 1". With `numpy` also as a statement that needs nothing but a.
std::string find_relation(const TensorView& a, const TensorView& b, std::string* numpy = nullptr);

}  // namespace tenscope::compare
