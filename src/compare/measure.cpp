#include "compare/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "compare/exact_integer.hpp"
#include "compare/places.hpp"
#include "compare/shape.hpp"
#include "compare/tensor_diff.hpp"
#include "compare/thresholds.hpp"
#include "kernels/compare.hpp"

namespace tenscope::compare {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PairError not_comparable(DiffObstacle obstacle) {
  PairError error;
  error.is_comparable = false;
  error.obstacle = obstacle;
  return error;
}

// A long double holds every integer of 64 bits and every double; larger integers are rounded.
long double wide_number(const Item& item, const Interner& interner) {
  switch (item.value) {
    case ValueKind::Float:
      return item.number;
    case ValueKind::BigInteger:
      return std::strtold(std::string(interner.text(item.text)).c_str(), nullptr);
    default:
      return static_cast<long double>(item.integer);
  }
}

// Not the same bit for bit: is it the same number all the same? 1 and True and 1.0 are.
bool is_same_number(const Item& a, const Item& b, const Interner& interner) {
  if (a.value == ValueKind::BigInteger)
    return b.value == ValueKind::Float && is_integer(b.number, interner.text(a.text));
  if (b.value == ValueKind::BigInteger) return is_same_number(b, a, interner);
  const long double x = wide_number(a, interner), y = wide_number(b, interner);
  return x == y || (std::isnan(x) && std::isnan(y));
}

}  // namespace

double PairError::relative(double floor) const {
  if (!is_comparable || has_other_finite) return std::numeric_limits<double>::infinity();
  if (max_abs == 0) return 0;
  return max_abs / std::max(scale, floor);
}

PairError PairError::at_least() const {
  PairError error = *this;
  if (uncertainty == 0) return error;
  const double factor = 1 - thresholds::kEstimateErrors * uncertainty;
  error.max_abs *= factor;
  error.rel_l2 *= factor;
  const double doubt = thresholds::kEstimateErrors * (1 - correlation * correlation) * std::sqrt(2) * uncertainty;
  error.correlation = std::copysign(std::max(0.0, std::abs(correlation) - doubt), correlation);
  return error;
}

PairError PairError::at_most() const {
  PairError error = *this;
  if (!is_estimate) return error;
  const double factor = 1 + thresholds::kEstimateErrors * uncertainty;
  error.max_abs *= factor;
  error.rel_l2 *= factor;
  error.differing = std::max(differing, differing_at_most);
  error.has_other_finite |= may_hide_nonfinite;
  return error;
}

PairError measure(const TensorView& a, const TensorView& b) {
  if (!std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end()))
    return not_comparable(DiffObstacle::Shapes);
  const kernels::ElementDistance distance = kernels::distance(b, a);
  PairError error;
  error.count = distance.count;
  error.differing = distance.differing;
  error.has_other_finite = distance.other_nonfinite > 0;
  error.max_abs = distance.max_difference;
  error.scale = distance.max_reference;
  if (distance.difference_l2 > 0) {
    error.rel_l2 = distance.difference_l2 / distance.reference_l2;
    if (distance.reference_l2 > 0) error.correlation = distance.dot / distance.reference_l2 / distance.difference_l2;
  }
  return error;
}

bool is_exact(DType dtype) { return kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex; }

PairError measure_statistics(const TensorRecord& a, const TensorRecord& b) {
  if (without_ones(a.shape) != without_ones(b.shape)) return not_comparable(DiffObstacle::Shapes);
  if (a.stats.count == 0 && b.stats.count == 0) return {};
  const Stats &x = a.stats, &y = b.stats;
  PairError error;
  error.obstacle = DiffObstacle::OnlyStatistics;
  error.is_lower_bound = true;
  error.count = x.count;
  // Integers and bools with other bytes have other values; floats may differ by the sign of a zero alone.
  error.differing = a.dtype == b.dtype && is_exact(a.dtype) && has_fingerprint(a) && has_fingerprint(b) ? 1 : 0;
  error.has_other_finite = x.nan != y.nan || x.pos_inf != y.pos_inf || x.neg_inf != y.neg_inf;
  error.scale = x.abs_max;
  const auto raise = [&](double bound) {
    if (std::isfinite(bound)) error.max_abs = std::max(error.max_abs, bound);
  };
  raise(std::abs(x.min - y.min));
  raise(std::abs(x.max - y.max));
  // The mean, the deviation and the norm move by no more than the elements do.
  const double slack = thresholds::kStatisticsError * std::max(x.abs_max, y.abs_max);
  const auto elements = static_cast<double>(std::max<std::int64_t>(1, x.count - x.nan - x.pos_inf - x.neg_inf));
  if (!error.has_other_finite) {
    raise(std::abs(x.mean - y.mean) - slack);
    raise(std::abs(x.std - y.std) - slack);
    raise(std::abs(x.l2 - y.l2) / std::sqrt(elements) - slack);
  }
  if (error.max_abs > 0 || error.has_other_finite || x.zero != y.zero)
    error.differing = std::max<std::int64_t>(1, error.differing);
  if (x.l2 > 0) error.rel_l2 = std::max(0.0, std::abs(x.l2 - y.l2) / x.l2 - thresholds::kStatisticsError);
  return error;
}

PairError measure_values(const Item& a, const Item& b, const Interner& interner) {
  if (a.is_tensor() != b.is_tensor()) return not_comparable(DiffObstacle::Kinds);
  if (!a.is_number() || !b.is_number()) return not_comparable(DiffObstacle::Texts);
  PairError error;
  error.count = 1;
  if (is_same_value(a, b) || is_same_number(a, b, interner)) return error;
  const long double x = wide_number(a, interner), y = wide_number(b, interner);
  error.differing = 1;
  error.has_other_finite = !(std::isfinite(x) && std::isfinite(y));
  if (error.has_other_finite) return error;
  error.max_abs = static_cast<double>(std::abs(y - x));
  if (error.max_abs == 0) error.max_abs = 1;  // of integers that round to the same
  error.scale = static_cast<double>(std::abs(x));
  error.rel_l2 = error.relative();
  return error;
}

DiffMetrics describe(const TensorView& a, const TensorView& b) {
  DiffMetrics metrics;
  metrics.dtype_a = to_string(a.dtype);
  metrics.dtype_b = to_string(b.dtype);
  metrics.shape_a.assign(a.shape.begin(), a.shape.end());
  metrics.shape_b.assign(b.shape.begin(), b.shape.end());
  const PairError error = measure(a, b);
  metrics.obstacle = error.obstacle;
  if (!error.is_comparable) {
    metrics.max_abs = metrics.rel_max = metrics.rel_l2 = metrics.correlation = kNan;
    metrics.relation = find_relation(a, b, &metrics.relation_numpy);
    return metrics;
  }
  metrics.count = error.count;
  metrics.differing = error.differing;
  metrics.max_abs = error.max_abs;
  metrics.rel_max = error.max_abs == 0 ? 0 : error.max_abs / error.scale;
  metrics.rel_l2 = error.rel_l2;
  metrics.correlation = error.correlation;
  if (error.differing == 0) return metrics;

  const kernels::ElementDiff diff = kernels::diff(b, a, {.tolerance = {0, 0}, .equal_nan = true});
  metrics.nan_a = diff.nan_only_reference + diff.nan_both;
  metrics.nan_b = diff.nan_only_value + diff.nan_both;
  metrics.inf_a = diff.inf_only_reference + diff.inf_both;
  metrics.inf_b = diff.inf_only_value + diff.inf_both;
  for (const AxisPlaces& axis : find_places(diff.axes))
    metrics.ranges.push_back({axis.ranges.empty() ? 0 : axis.ranges.front().first, axis.end});
  // A NaN or infinity on one side only is worse than any difference.
  if (const auto worst = pair_at(a, b, error.has_other_finite ? diff.first_nonfinite_index : diff.worst_index)) {
    metrics.worst_index = worst->index;
    metrics.worst_a = worst->a;
    metrics.worst_b = worst->b;
  }
  metrics.relation = find_relation(a, b, &metrics.relation_numpy);
  return metrics;
}

}  // namespace tenscope::compare
