// Overview. The squares of the 64 differences of two sketches add up to about the square of the tensors' Euclidean
// distance; the standard error of that is sqrt(2 / 64), of the distance half as much. Of 64 elements or fewer the sums
// are the elements, and the distance is exact. The cosine between b - a and a is that of the sketches, to 1 / 8.
//
// The largest difference is not known, but bounded by two thoughts. A difference that is spread over the tensor, as
// noise is, has the peaks of normal numbers, or those of the tensor itself where these are higher. One that stands out
// by itself makes its sum stand out from the others.
#include "compare/sketch_estimate.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/noise.hpp"
#include "compare/thresholds.hpp"
#include "store/sketch_text.hpp"

namespace tenscope::compare {
namespace {

constexpr auto kSums = static_cast<std::int64_t>(Sketch::kSums);

Sketch difference(const Sketch& y, const Sketch& x, double factor = 1) { return Sketch(y).add(x, -factor); }

double rounding(DType a, DType b) { return std::max(store::sketch_rounding(a), store::sketch_rounding(b)); }

// The largest of |b - a|, which has `count` elements and these sums; `peak`: the largest |a| in its root mean squares.
double largest_difference(const Sketch& sums, std::int64_t count, double peak) {
  std::array<double, Sketch::kSums> sizes;
  std::ranges::transform(sums.sums, sizes.begin(), [](double sum) { return std::abs(sum); });
  const double most = *std::ranges::max_element(sizes);
  if (count <= kSums) return most;
  std::ranges::nth_element(sizes, sizes.begin() + kSums / 2);
  constexpr double kMedianOfNormal = 0.6745;
  const double typical = sizes[kSums / 2] / kMedianOfNormal;  // of a sum, without those that stand out
  const auto n = static_cast<double>(count);
  const double spread =
      typical * std::sqrt(static_cast<double>(kSums) / n) * std::max(std::sqrt(2 * std::log(n)), peak);
  const bool stands_out = most > thresholds::kSumStandsOut * typical;
  return std::max(stands_out ? most : 0, std::min(spread, std::sqrt(dot(sums, sums))));
}

std::int64_t nonfinite_count(const Stats& stats) { return stats.nan + stats.pos_inf + stats.neg_inf; }

// A sketch has nothing of NaN and infinities, as if they were zeros, and the statistics only how many there are. Those
// that changed places with zeros, or with each other, are not seen.
bool may_hide_nonfinite(const Stats& x, const Stats& y) {
  if (nonfinite_count(x) == 0 || x.nan == x.count) return false;
  const int kinds = (x.nan > 0 ? 1 : 0) + (x.pos_inf > 0 ? 1 : 0) + (x.neg_inf > 0 ? 1 : 0);
  return kinds > 1 || x.zero > 0 || y.zero > 0;
}

// Whether sums can be squared: not those of numbers that only 64-bit floats have.
bool have_squares(const Sketch& x, const Sketch& y) {
  double most = 0;
  for (const Sketch* sketch : {&x, &y}) {
    for (const double sum : sketch->sums) {
      if (!(std::abs(sum) < 1 / thresholds::kLeastSquared)) return false;
      most = std::max(most, std::abs(sum));
    }
  }
  return most == 0 || most > thresholds::kLeastSquared;
}

// Integers of which it is not known whether they are the same: one that differs is off by 1 at least.
PairError estimate_unknown_integers(PairError error, double squares, double rounding_error) {
  if (squares <= 0.5 + rounding_error) return error;
  error.is_lower_bound = false;
  error.differing = std::max<std::int64_t>(1, error.differing);
  return error;
}

}  // namespace

double dot(const Sketch& x, const Sketch& y) {
  double sum = 0;
  for (std::size_t i = 0; i < Sketch::kSums; ++i) sum += x.sums[i] * y.sums[i];
  return sum;
}

PairError estimate(const TensorRecord& a, const TensorRecord& b, const Sketch& x, const Sketch& y) {
  PairError error = measure_statistics(a, b);
  if (!error.is_comparable || error.has_other_finite || !error.is_lower_bound || !have_squares(x, y)) return error;
  const Sketch sums = difference(y, x);
  const double unit = rounding(a.dtype, b.dtype), rounding_error = unit * unit / 6 * (dot(x, x) + dot(y, y));
  const double squares = std::max(0.0, dot(sums, sums) - rounding_error);
  const bool is_known_to_differ = has_fingerprint(a) && has_fingerprint(b) && a.dtype == b.dtype;
  if (!is_known_to_differ && (is_exact(a.dtype) || is_exact(b.dtype)))
    return estimate_unknown_integers(error, squares, 8 * rounding_error);
  error.obstacle = DiffObstacle::OnlySketches;
  error.is_lower_bound = false;
  error.is_estimate = true;
  error.may_hide_nonfinite = may_hide_nonfinite(a.stats, b.stats);
  error.uncertainty = error.count <= kSums ? 0 : 1 / std::sqrt(2.0 * static_cast<double>(kSums));
  if (squares > 0) {
    const double elements = static_cast<double>(std::max<std::int64_t>(1, error.count));
    const double peak = a.stats.l2 > 0 ? a.stats.abs_max / a.stats.l2 * std::sqrt(elements) : 1;
    error.rel_l2 = std::max(error.rel_l2, std::sqrt(squares) / a.stats.l2);
    error.max_abs = std::max(error.max_abs, largest_difference(sums, error.count, peak));
    if (const double size = dot(x, x); size > 0)
      error.correlation = std::clamp(dot(sums, x) / std::sqrt(size) / std::sqrt(dot(sums, sums)), -1.0, 1.0);
  }
  const bool is_exact = error.count <= kSums && kind_of(a.dtype) == DTypeKind::Float &&
                        kind_of(b.dtype) == DTypeKind::Float && nonfinite_count(a.stats) == 0;
  if (is_exact && x == y) {
    error.differing = 0;
    return error;
  }
  // An integer that differs is off by 1 at least, a bool by just that.
  error.differing_at_most = std::min<std::int64_t>(error.count, static_cast<std::int64_t>(std::ceil(squares)));
  error.differing = std::max<std::int64_t>(1, error.differing);
  if (a.dtype == DType::Bool && b.dtype == DType::Bool)
    error.differing = std::max(error.differing, static_cast<std::int64_t>(squares));
  return error;
}

UpdateError estimate_update(const UpdateSketches& a, const UpdateSketches& b, DType dtype) {
  const Sketch update = difference(a.after, a.before), other = difference(b.after, b.before);
  const double size = dot(update, update), gradient = dot(a.gradient, a.gradient);
  UpdateError error;
  if (size == 0 || gradient == 0) return error;
  const Sketch gradients = difference(b.gradient, a.gradient);
  const double noise = std::sqrt(dot(gradients, gradients) / gradient);
  if (noise > thresholds::kUpdateGradient) return error;
  const double factor = dot(other, update) / size;
  const Sketch rest = difference(other, update, factor);
  error.usable = thresholds::kUpdateElements;
  const double off = std::abs(factor - 1), unexplained = std::sqrt(dot(rest, rest) / size);
  error.typical = off > thresholds::kUpdateOfFactor * unexplained ? off : 0;
  const double roundoff = thresholds::kUpdateFromRounding * unit_roundoff(dtype) + store::sketch_rounding(dtype);
  error.explained = std::max({thresholds::kUpdateMistake, thresholds::kUpdateFromGradient * noise,
                              roundoff * std::sqrt(dot(a.after, a.after) / size)});
  return error;
}

}  // namespace tenscope::compare
