// Overview. The inner loops of what the viewer asks for, once per vector unit: over doubles only, so that they need not
// be written for every type. Loops that GCC vectorises by itself are left to it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/look_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/look_simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/simd_target.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenscope::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

HWY_INLINE std::int64_t lane_count() { return static_cast<std::int64_t>(hn::Lanes(D())); }

bool all_finite(const double* values, std::int64_t count) {
  const D d;
  const std::int64_t lanes = lane_count();
  const auto zero = hn::Zero(d);
  auto sum0 = zero, sum1 = zero;  // NaN and infinities become NaN
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, values + i), zero, sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, values + i + lanes), zero, sum1);
  }
  double rest = 0;
  for (; i < count; ++i) rest += values[i] * 0.0;
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))) + rest == 0;
}

void subtract(const double* a, const double* b, std::int64_t count, double* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = b[i] - a[i];
}

void relative(const double* a, const double* b, std::int64_t count, double* out) {
  const D d;
  const std::int64_t lanes = lane_count();
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, a + i);
    const auto difference = hn::Abs(hn::Sub(hn::LoadU(d, b + i), x));
    const auto ratio = hn::Div(difference, hn::Abs(x));
    hn::StoreU(hn::IfThenElse(hn::Eq(difference, hn::Zero(d)), hn::Zero(d), ratio), d, out + i);
  }
  for (; i < count; ++i) out[i] = a[i] == b[i] ? 0.0 : std::abs(b[i] - a[i]) / std::abs(a[i]);
}

void accumulate(const double* values, std::int64_t count, double* min, double* max, double* sum) {
  const D d;
  const std::int64_t lanes = lane_count();
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    hn::StoreU(hn::Min(hn::LoadU(d, min + i), x), d, min + i);
    hn::StoreU(hn::Max(hn::LoadU(d, max + i), x), d, max + i);
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), x), d, sum + i);
  }
  for (; i < count; ++i) {
    min[i] = std::min(min[i], values[i]);
    max[i] = std::max(max[i], values[i]);
    sum[i] += values[i];
  }
}

void accumulate_squares(const double* values, std::int64_t count, double* squares, double* nonzero) {
  for (std::int64_t i = 0; i < count; ++i) {
    squares[i] += values[i] * values[i];
    nonzero[i] += values[i] != 0 ? 1.0 : 0.0;
  }
}

ValueSums reduce(const double* values, std::int64_t count) {
  const D d;
  const std::int64_t lanes = lane_count();
  auto min = hn::Set(d, kInfinity), max = hn::Set(d, -kInfinity), sum = hn::Zero(d), squares = hn::Zero(d);
  std::size_t nonzero = 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    min = hn::Min(min, x);
    max = hn::Max(max, x);
    sum = hn::Add(sum, x);
    squares = hn::MulAdd(x, x, squares);
    nonzero += hn::CountTrue(d, hn::Ne(x, hn::Zero(d)));
  }
  ValueSums result{hn::GetLane(hn::MinOfLanes(d, min)), hn::GetLane(hn::MaxOfLanes(d, max)),
                   hn::GetLane(hn::SumOfLanes(d, sum)), hn::GetLane(hn::SumOfLanes(d, squares)),
                   static_cast<std::int64_t>(nonzero)};
  for (; i < count; ++i) {
    result.min = std::min(result.min, values[i]);
    result.max = std::max(result.max, values[i]);
    result.sum += values[i];
    result.squares += values[i] * values[i];
    result.nonzero += values[i] != 0;
  }
  return result;
}

void join_columns(const double* min, const double* max, const double* sum, const std::int64_t* bounds,
                  std::int64_t base, std::int64_t cells, double* cell_min, double* cell_max, double* cell_sum) {
  const D d;
  const std::int64_t lanes = lane_count();
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    std::int64_t i = bounds[cell] - base;
    const std::int64_t end = bounds[cell + 1] - base;
    double least = cell_min[cell], most = cell_max[cell], total = cell_sum[cell];
    if (lanes > 1 && end - i >= lanes) {
      auto mins = hn::LoadU(d, min + i), maxs = hn::LoadU(d, max + i), sums = hn::LoadU(d, sum + i);
      for (i += lanes; i + lanes <= end; i += lanes) {
        mins = hn::Min(mins, hn::LoadU(d, min + i));
        maxs = hn::Max(maxs, hn::LoadU(d, max + i));
        sums = hn::Add(sums, hn::LoadU(d, sum + i));
      }
      least = std::min(least, hn::GetLane(hn::MinOfLanes(d, mins)));
      most = std::max(most, hn::GetLane(hn::MaxOfLanes(d, maxs)));
      total += hn::GetLane(hn::SumOfLanes(d, sums));
    }
    for (; i < end; ++i) {
      least = std::min(least, min[i]);
      most = std::max(most, max[i]);
      total += sum[i];
    }
    cell_min[cell] = least;
    cell_max[cell] = most;
    cell_sum[cell] = total;
  }
}

Extremes extremes(const double* values, std::int64_t count, double limit, double* above) {
  const D d;
  const std::int64_t lanes = lane_count();
  const auto limits = hn::Set(d, limit);
  auto min = hn::Set(d, kInfinity), max = hn::Set(d, -kInfinity);
  std::size_t zeros = 0, at_limit = 0;
  Extremes result;
  const auto store = [&](double x) {
    if (std::abs(x) > limit) above[result.above++] = std::abs(x);
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    min = hn::Min(min, x);
    max = hn::Max(max, x);
    zeros += hn::CountTrue(d, hn::Eq(x, hn::Zero(d)));
    const auto size = hn::Abs(x);
    at_limit += hn::CountTrue(d, hn::Eq(size, limits));
    if (!hn::AllFalse(d, hn::Gt(size, limits))) {
      for (std::int64_t k = i; k < i + lanes; ++k) store(values[k]);
    }
  }
  result.min = hn::GetLane(hn::MinOfLanes(d, min));
  result.max = hn::GetLane(hn::MaxOfLanes(d, max));
  for (; i < count; ++i) {
    result.min = std::min(result.min, values[i]);
    result.max = std::max(result.max, values[i]);
    zeros += values[i] == 0;
    at_limit += std::abs(values[i]) == limit;
    store(values[i]);
  }
  result.nonzero = count - static_cast<std::int64_t>(zeros);
  result.at_limit = static_cast<std::int64_t>(at_limit);
  return result;
}

void to_floats(const double* values, std::int64_t count, float* out) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = values[i];
    const double bounded = x > kMost ? kMost : x < -kMost ? -kMost : x;
    out[i] = static_cast<float>(std::abs(x) <= kLargest ? bounded : x);
  }
}

void keys(const double* values, std::int64_t count, std::uint16_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = values[i];
    std::uint64_t key = std::bit_cast<std::uint64_t>(x) >> 48;
    key = x == 0 ? kZeroKey : key;
    key = x > kLargest ? kPositiveInfKey : key;
    key = x < -kLargest ? kNegativeInfKey : key;
    key = x != x ? kNanKey : key;
    out[i] = static_cast<std::uint16_t>(key);
  }
}

void nonzero_range(const double* values, std::int64_t count, double& min, double& max) {
  const D d;
  const std::int64_t lanes = lane_count();
  const auto largest = hn::Set(d, kLargest), highest = hn::Set(d, kInfinity), lowest = hn::Set(d, -kInfinity);
  auto least = highest, most = lowest;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    const auto counts = hn::And(hn::Ne(x, hn::Zero(d)), hn::Le(hn::Abs(x), largest));
    least = hn::Min(least, hn::IfThenElse(counts, x, highest));
    most = hn::Max(most, hn::IfThenElse(counts, x, lowest));
  }
  min = std::min(min, hn::GetLane(hn::MinOfLanes(d, least)));
  max = std::max(max, hn::GetLane(hn::MaxOfLanes(d, most)));
  for (; i < count; ++i) {
    if (values[i] == 0 || !(std::abs(values[i]) <= kLargest)) continue;
    min = std::min(min, values[i]);
    max = std::max(max, values[i]);
  }
}

std::int64_t count_below(const double* values, std::int64_t count, double limit) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += std::abs(values[i]) < limit && values[i] != 0 ? 1 : 0;
  return found;
}

const LookTable* get_look_table() {
  static constexpr LookTable kTable{&all_finite,         &subtract, &relative,      &accumulate,
                                    &accumulate_squares, &reduce,   &join_columns,  &extremes,
                                    &to_floats,          &keys,     &nonzero_range, &count_below};
  return &kTable;
}

}  // namespace tenscope::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenscope::kernels {

HWY_EXPORT(get_look_table);

const LookTable& look_table() {
  ensure_simd_target();
  return *HWY_DYNAMIC_DISPATCH(get_look_table)();
}

}  // namespace tenscope::kernels
#endif
