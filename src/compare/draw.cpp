// Overview. Where a model has one parameter more, or draws one in another way, all that are drawn after it get other
// values, though nothing is wrong with them. They are told from a parameter that is initialised in another way by
// statistics that do not depend on the single draw. Values that correlate with those of the other run, or are the same
// in another order, were not drawn anew: they were changed.
#include "compare/draw.hpp"

#include <algorithm>
#include <cmath>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

using thresholds::kDrawErrors;

double elements(const Stats& stats) { return static_cast<double>(std::max<std::int64_t>(1, stats.count)); }

// Of the elements' deviations from their means. The cosine between b - a and a, which `error` has, says the same.
double correlation(const Stats& a, const Stats& b, const PairError& error) {
  const double product = a.l2 * a.l2 * (1 + error.correlation * error.rel_l2) / elements(a);
  return (product - a.mean * b.mean) / (a.std * b.std);
}

// The same numbers in another order. (Extremes alone do not say so: a stream of random numbers may have been shifted.)
bool has_same_elements(const Stats& a, const Stats& b) {
  const double slack = thresholds::kStatisticsError * a.abs_max;
  return a.min == b.min && a.max == b.max && a.zero == b.zero && std::abs(a.mean - b.mean) <= slack &&
         std::abs(a.std - b.std) <= slack;
}

// The standard error of the correlation of independent numbers.
double deviation(const Stats& a, const Stats& b, const PairError& error) {
  const double of_elements = 1 / std::sqrt(elements(a));
  if (error.uncertainty == 0) return of_elements;
  return std::max(of_elements, std::sqrt(2) * error.uncertainty * a.l2 * b.l2 / elements(a) / (a.std * b.std));
}

bool is_independent(const Stats& a, const Stats& b, const PairError& error) {
  if (a.std == 0 || b.std == 0) return true;  // constants tell nothing of each other
  if (has_same_elements(a, b)) return false;
  return error.is_lower_bound || std::abs(correlation(a, b, error)) <= kDrawErrors * deviation(a, b, error);
}

bool is_same_distribution(const Stats& a, const Stats& b) {
  if (a.std == 0 || b.std == 0) return false;       // they differ: at most one is constant, or they are other constants
  const double n = std::max(1.0, elements(a) - 3);  // of a few numbers the deviation itself is uncertain
  // The logarithm of a deviation of n normal numbers is off by 1 / sqrt(2 n).
  if (std::abs(std::log(b.std / a.std)) > kDrawErrors / std::sqrt(n)) return false;
  // In long double, as the hypot of doubles would ask for glibc 2.35.
  const auto spread = static_cast<double>(std::hypot(static_cast<long double>(a.std), b.std));
  if (std::abs(b.mean - a.mean) > kDrawErrors * spread / std::sqrt(n)) return false;
  const auto zeros = static_cast<double>(a.zero + b.zero);
  if (std::abs(static_cast<double>(b.zero - a.zero)) > kDrawErrors * std::sqrt(zeros)) return false;
  if (a.count < thresholds::kDrawTailElements) return true;
  const double tail_a = (a.max - a.min) / a.std / 2, tail_b = (b.max - b.min) / b.std / 2;
  return std::min(tail_a, tail_b) > thresholds::kUniformTail || std::max(tail_a, tail_b) < thresholds::kNormalTail;
}

}  // namespace

DiffDistribution compare_distributions(const TensorRecord& a, const TensorRecord& b, const PairError& error) {
  const Stats &x = a.stats, &y = b.stats;
  DiffDistribution result{
      .mean_a = x.mean, .mean_b = y.mean, .std_a = x.std, .std_b = y.std, .zeros_a = x.zero, .zeros_b = y.zero};
  const bool are_numbers = kind_of(a.dtype) == DTypeKind::Float && kind_of(b.dtype) == DTypeKind::Float &&
                           std::isfinite(x.std) && std::isfinite(y.std);
  if (!are_numbers || !error.is_comparable || error.has_other_finite) return result;
  result.is_independent = is_independent(x, y, error);
  result.is_same = is_same_distribution(x, y);
  return result;
}

}  // namespace tenscope::compare
