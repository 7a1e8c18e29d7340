#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// How far two tensors (or numbers) are apart.
struct PairError {
  bool is_comparable = true;      // false: other shapes, one side missing, text
  bool has_other_finite = false;  // a NaN or infinity on one side only
  std::int64_t count = 0, differing = 0;
  double max_abs = 0;      // largest |b - a|
  double scale = 0;        // largest |a|
  double rel_l2 = 0;       // |b - a| / |a|
  double correlation = 0;  // cosine between b - a and a
  std::string remark;

  // The largest difference as a part of the largest value, which counts as `floor` at least.
  double relative(double floor = 0) const;
};

// Tells how far two events' values are apart; only called where their fingerprints differ.
using Measure = std::function<PairError(const Item& a, const Item& b)>;

// One pass over both tensors. NaN equals NaN. The shapes must be equal; the dtypes need not be.
PairError measure(const TensorView& a, const TensorView& b);

PairError measure_numbers(double a, double b);

// Everything a report says of the difference: worst index, slices, a relation between the two if there is a simple one.
DiffMetrics describe(const TensorView& a, const TensorView& b);

// A simple relation by which b follows from a, in words, or nothing: "b = 4 a", "b is a, flipped along axis 1".
std::string find_relation(const TensorView& a, const TensorView& b);

}  // namespace tenscope::compare
