// Overview. The inner loops of the comparison, once per vector unit. All but `equal` work on doubles, so that they need
// not be written for every pair of types; loops that GCC vectorises by itself are left to it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/compare_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compare_simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/compare_bins.hpp"
#include "kernels/element.hpp"
#include "kernels/simd_target.hpp"
#include "kernels/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenscope::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kNan: the largest absolute bits that are not NaN, for types kept as integers.
template <class Lane, Lane kNotNan>
bool equal_bits(const std::byte* a, const std::byte* b, std::int64_t count) {
  const hn::ScalableTag<Lane> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* pa = reinterpret_cast<const Lane*>(a);
  const auto* pb = reinterpret_cast<const Lane*>(b);
  const auto magnitude = hn::Set(d, std::numeric_limits<Lane>::max());
  auto largest = hn::Zero(d);
  auto differing = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto va = hn::LoadU(d, pa + i);
    differing = hn::Or(differing, hn::Xor(va, hn::LoadU(d, pb + i)));
    largest = hn::Max(largest, hn::And(va, magnitude));
  }
  const auto not_nan = hn::Set(d, kNotNan);
  if (!hn::AllTrue(d, hn::Eq(differing, hn::Zero(d))) || !hn::AllFalse(d, hn::Gt(largest, not_nan))) return false;
  for (; i < count; ++i) {
    Lane x, y;
    std::memcpy(&x, pa + i, sizeof x);
    std::memcpy(&y, pb + i, sizeof y);
    if (x != y || (x & std::numeric_limits<Lane>::max()) > kNotNan) return false;
  }
  return true;
}

template <class T, int kParts>
bool equal_floats(const std::byte* a, const std::byte* b, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* pa = reinterpret_cast<const T*>(a);
  const auto* pb = reinterpret_cast<const T*>(b);
  count *= kParts;
  std::int64_t i = 0;
  auto all = hn::Eq(hn::Zero(d), hn::Zero(d));
  for (; i + lanes <= count; i += lanes) all = hn::And(all, hn::Eq(hn::LoadU(d, pa + i), hn::LoadU(d, pb + i)));
  if (!hn::AllTrue(d, all)) return false;
  for (; i < count; ++i) {
    if (load<T>(a + i * static_cast<std::int64_t>(sizeof(T))) != load<T>(b + i * static_cast<std::int64_t>(sizeof(T))))
      return false;
  }
  return true;
}

template <class T>
bool equal_bytes(const std::byte* a, const std::byte* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

bool never_equal(const std::byte*, const std::byte*, std::int64_t) { return false; }

template <class T>
void widen(const std::byte* bytes, std::int64_t count, double* out) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!kIsInteger<T> && !std::is_same_v<T, double>) {
    using W = Widen<T>;
    const DF64 dd;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(typename W::D()));
    const T* p = reinterpret_cast<const T*>(bytes);
    for (; i + lanes <= count; i += lanes) {
      double* to = out + i;
      W::for_each_double(W::load(p + i), [&](hn::Vec<DF64> v) HWY_ATTR {
        hn::StoreU(v, dd, to);
        to += hn::Lanes(dd);
      });
    }
  }
#endif
  for (; i < count; ++i) out[i] = to_double(load<T>(bytes + i * static_cast<std::int64_t>(sizeof(T))));
}

template <class T>
void widen_complex(const std::byte* bytes, std::int64_t count, double* out) {
  widen<T>(bytes, 2 * count, out);
}

bool close(const double* a, const double* b, std::int64_t count, Tolerance tolerance, bool equal_nan) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto absolute = hn::Set(d, tolerance.absolute);
  const auto relative = hn::Set(d, tolerance.relative);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, a + i);
    const auto y = hn::LoadU(d, b + i);
    const auto error = hn::Abs(hn::Sub(x, y));
    const auto bound = hn::Add(absolute, hn::Mul(relative, hn::Abs(y)));
    auto fine = hn::Or(hn::Eq(x, y), hn::And(hn::Le(error, bound), hn::IsFinite(y)));
    if (equal_nan) fine = hn::Or(fine, hn::And(hn::IsNaN(x), hn::IsNaN(y)));
    if (!hn::AllTrue(d, fine)) return false;
  }
  for (; i < count; ++i) {
    const bool within = std::abs(a[i] - b[i]) <= tolerance.absolute + tolerance.relative * std::abs(b[i]);
    const bool both_nan = equal_nan && std::isnan(a[i]) && std::isnan(b[i]);
    if (!(a[i] == b[i] || (within && std::isfinite(b[i])) || both_nan)) return false;
  }
  return true;
}

void absolute_error(const double* a, const double* b, std::int64_t count, double* error) {
  for (std::int64_t i = 0; i < count; ++i) error[i] = std::abs(a[i] - b[i]);
}

void mark_outside(const double* b, const double* error, std::int64_t count, Tolerance tolerance,
                  std::uint8_t* outside) {
  const hn::ScalableTag<double> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto absolute = hn::Set(d, tolerance.absolute);
  const auto relative = hn::Set(d, tolerance.relative);
  const auto largest = hn::Set(d, std::numeric_limits<double>::max());
  const auto one = hn::Set(du, std::uint64_t{1});
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto magnitude = hn::Abs(hn::LoadU(d, b + i));
    const auto bound = hn::Add(absolute, hn::Mul(relative, magnitude));
    const auto within = hn::And(hn::Le(hn::LoadU(d, error + i), bound), hn::Le(magnitude, largest));
    const auto flags = hn::AndNot(hn::BitCast(du, hn::VecFromMask(d, within)), one);
    hn::StoreU(hn::TruncateTo(bytes, flags), bytes, outside + i);
  }
  for (; i < count; ++i) {
    outside[i] = static_cast<std::uint8_t>(!(error[i] <= tolerance.absolute + tolerance.relative * std::abs(b[i])) ||
                                           !(std::abs(b[i]) <= std::numeric_limits<double>::max()));
  }
}

BlockDiff measure(const double* a, const double* b, const double* error, std::int64_t count, Tolerance tolerance) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  const auto absolute = hn::Set(d, tolerance.absolute);
  const auto relative = hn::Set(d, tolerance.relative);
  const auto largest = hn::Set(d, std::numeric_limits<double>::max());
  auto sum_error = zero, sum_relative = zero, max_error = zero, max_relative = zero;
  auto sum_aa = zero, sum_bb = zero, sum_ab = zero, sum_squared = zero;
  std::size_t finite = 0, relative_count = 0, outside = 0;
  const auto add = [&](hn::Vec<decltype(d)> x, hn::Vec<decltype(d)> y, hn::Vec<decltype(d)> e) HWY_ATTR {
    const auto magnitude = hn::Abs(y);
    // A difference of finite numbers may overflow; it is then neither summed nor within any tolerance.
    const auto is_finite =
        hn::And(hn::Le(e, largest), hn::And(hn::Le(hn::Abs(x), largest), hn::Le(magnitude, largest)));
    finite += hn::CountTrue(d, is_finite);
    x = hn::IfThenElseZero(is_finite, x);
    y = hn::IfThenElseZero(is_finite, y);
    e = hn::IfThenElseZero(is_finite, e);
    const auto has_relative = hn::And(is_finite, hn::Gt(magnitude, zero));
    relative_count += hn::CountTrue(d, has_relative);
    const auto r = hn::IfThenElseZero(has_relative, hn::Div(e, magnitude));
    outside += hn::CountTrue(d, hn::Gt(e, hn::Add(absolute, hn::Mul(relative, hn::Abs(y)))));
    sum_error = hn::Add(sum_error, e);
    sum_relative = hn::Add(sum_relative, r);
    max_error = hn::Max(max_error, e);
    max_relative = hn::Max(max_relative, r);
    sum_aa = hn::MulAdd(x, x, sum_aa);
    sum_bb = hn::MulAdd(y, y, sum_bb);
    sum_ab = hn::MulAdd(x, y, sum_ab);
    sum_squared = hn::MulAdd(e, e, sum_squared);
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) add(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, error + i));
  BlockDiff block;
  if (i < count) {
    // Filled up with pairs of zeros, which are finite and add nothing.
    double tail[3][HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(a + i, a + count, tail[0]);
    std::copy(b + i, b + count, tail[1]);
    std::copy(error + i, error + count, tail[2]);
    add(hn::LoadU(d, tail[0]), hn::LoadU(d, tail[1]), hn::LoadU(d, tail[2]));
    block.finite -= i + lanes - count;
  }
  block.finite += static_cast<std::int64_t>(finite);
  block.relative_count = static_cast<std::int64_t>(relative_count);
  block.outside = static_cast<std::int64_t>(outside);
  block.sum_error = hn::GetLane(hn::SumOfLanes(d, sum_error));
  block.sum_relative = hn::GetLane(hn::SumOfLanes(d, sum_relative));
  block.max_error = hn::GetLane(hn::MaxOfLanes(d, max_error));
  block.max_relative = hn::GetLane(hn::MaxOfLanes(d, max_relative));
  block.sum_aa = hn::GetLane(hn::SumOfLanes(d, sum_aa));
  block.sum_bb = hn::GetLane(hn::SumOfLanes(d, sum_bb));
  block.sum_ab = hn::GetLane(hn::SumOfLanes(d, sum_ab));
  block.sum_squared_error = hn::GetLane(hn::SumOfLanes(d, sum_squared));
  return block;
}

// measure() of numbers against themselves.
BlockDiff measure_equal(const double* a, std::int64_t count) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto largest = hn::Set(d, std::numeric_limits<double>::max());
  auto squares = hn::Zero(d);
  std::size_t finite = 0, zeros = 0;
  const auto add = [&](hn::Vec<decltype(d)> x) HWY_ATTR {
    const auto is_finite = hn::Le(hn::Abs(x), largest);
    finite += hn::CountTrue(d, is_finite);
    zeros += hn::CountTrue(d, hn::Eq(x, hn::Zero(d)));
    x = hn::IfThenElseZero(is_finite, x);
    squares = hn::MulAdd(x, x, squares);
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) add(hn::LoadU(d, a + i));
  std::int64_t filled_up = 0;
  if (i < count) {
    double tail[HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(a + i, a + count, tail);
    add(hn::LoadU(d, tail));
    filled_up = i + lanes - count;
  }
  BlockDiff block;
  block.finite = static_cast<std::int64_t>(finite) - filled_up;
  block.relative_count = static_cast<std::int64_t>(finite - zeros);
  block.sum_aa = block.sum_bb = block.sum_ab = hn::GetLane(hn::SumOfLanes(d, squares));
  return block;
}

PairSums sum_pairs(const double* a, const double* b, std::int64_t count) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  auto dd = zero, aa = zero, da = zero, max_d = zero, max_a = zero, non_finite = zero;
  std::size_t differing = 0;
  const auto add = [&](hn::Vec<decltype(d)> x, hn::Vec<decltype(d)> y) HWY_ATTR {
    const auto difference = hn::Sub(y, x);
    dd = hn::MulAdd(difference, difference, dd);
    aa = hn::MulAdd(x, x, aa);
    da = hn::MulAdd(difference, x, da);
    max_d = hn::Max(max_d, hn::Abs(difference));
    max_a = hn::Max(max_a, hn::Abs(x));
    non_finite = hn::MulAdd(difference, zero, non_finite);  // NaN and infinities become NaN
    differing += hn::CountTrue(d, hn::Ne(x, y));
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
  if (i < count) {
    double tail[2][HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(a + i, a + count, tail[0]);
    std::copy(b + i, b + count, tail[1]);
    add(hn::LoadU(d, tail[0]), hn::LoadU(d, tail[1]));
  }
  PairSums sums;
  sums.dd = hn::GetLane(hn::SumOfLanes(d, dd));
  sums.aa = hn::GetLane(hn::SumOfLanes(d, aa));
  sums.da = hn::GetLane(hn::SumOfLanes(d, da));
  sums.max_d = hn::GetLane(hn::MaxOfLanes(d, max_d));
  sums.max_a = hn::GetLane(hn::MaxOfLanes(d, max_a));
  sums.differing = static_cast<std::int64_t>(differing);
  sums.all_finite = hn::GetLane(hn::SumOfLanes(d, non_finite)) == 0;
  return sums;
}

// The bits of a float are ordered as a sign and a magnitude: as a signed integer the difference of two is their
// distance.
template <class Bits>
void ulps(const std::byte* a, const std::byte* b, std::int64_t count, std::uint64_t* out) {
  using Signed = std::make_signed_t<Bits>;
  constexpr Bits kMagnitude = static_cast<Bits>(std::numeric_limits<Signed>::max());
  const auto ordered = [](Bits x) -> std::int64_t {
    const auto magnitude = static_cast<std::int64_t>(x & kMagnitude);
    return (x & ~kMagnitude) != 0 ? -magnitude : magnitude;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t x = ordered(load<Bits>(a + i * static_cast<std::int64_t>(sizeof(Bits))));
    const std::int64_t y = ordered(load<Bits>(b + i * static_cast<std::int64_t>(sizeof(Bits))));
    out[i] = x > y ? static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y)
                   : static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x);
  }
}

template <class Bits>
std::uint64_t bin_ulps(const std::byte* a, const std::byte* b, std::int64_t count, std::int32_t* bins) {
  std::int64_t i = 0;
  std::uint64_t largest = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Bits) < 8) {
    using Signed = std::make_signed_t<Bits>;
    const hn::ScalableTag<std::int32_t> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToFloat<decltype(d)> df;
    const hn::Rebind<Signed, decltype(d)> narrow;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto magnitude = hn::Set(d, static_cast<std::int32_t>(std::numeric_limits<Signed>::max()));
    const auto ordered = [&](const std::byte* p) HWY_ATTR {
      auto x = hn::Zero(d);
      const auto raw = hn::LoadU(narrow, reinterpret_cast<const Signed*>(p));
      if constexpr (sizeof(Bits) == 4)
        x = raw;
      else
        x = hn::PromoteTo(d, raw);
      const auto size = hn::And(x, magnitude);
      return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Neg(size), size);
    };
    auto most = hn::Zero(du);
    for (; i + lanes <= count; i += lanes) {
      const auto x = ordered(a + i * static_cast<std::int64_t>(sizeof(Bits)));
      const auto y = ordered(b + i * static_cast<std::int64_t>(sizeof(Bits)));
      const auto distance = hn::BitCast(du, hn::Sub(hn::Max(x, y), hn::Min(x, y)));
      most = hn::Max(most, distance);
      const auto bits = hn::BitCast(d, hn::ShiftRight<20>(hn::BitCast(du, hn::ConvertTo(df, distance))));
      const auto bin = hn::Sub(bits, hn::Set(d, (127 << 3) - 1));
      const auto is_zero = hn::Eq(hn::BitCast(d, distance), hn::Zero(d));
      hn::StoreU(hn::IfThenZeroElse(is_zero, bin), d, bins + i);
    }
    largest = hn::GetLane(hn::MaxOfLanes(du, most));
  }
#endif
  std::uint64_t distance[kCompareBlock];
  ulps<Bits>(a + i * static_cast<std::int64_t>(sizeof(Bits)), b + i * static_cast<std::int64_t>(sizeof(Bits)),
             count - i, distance);
  for (std::int64_t k = 0; i + k < count; ++k) {
    largest = std::max(largest, distance[k]);
    bins[i + k] = ulp_bin(distance[k]);
  }
  return largest;
}

// How many errors reach each decade, from that of the largest down: a few comparisons, as the errors of one block are
// seldom many decades apart.
void count_errors(const double* error, std::int64_t count, double max_error, std::int64_t* histogram) {
  const hn::ScalableTag<double> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto reaching = [&](double limit) HWY_ATTR {
    const auto limits = hn::Set(d, limit);
    std::size_t found = 0;
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) found += hn::CountTrue(d, hn::Ge(hn::LoadU(d, error + i), limits));
    for (; i < count; ++i) found += error[i] >= limit;
    return static_cast<std::int64_t>(found);
  };
  const std::int64_t above_zero = reaching(std::numeric_limits<double>::denorm_min());
  histogram[kErrorBins] += count - above_zero;
  std::int64_t counted = 0;
  for (int bin = error_bin(max_error); counted < above_zero; --bin) {
    const std::int64_t reached = bin > 0 ? reaching(kDecades[static_cast<std::size_t>(bin)]) : above_zero;
    histogram[bin] += reached - counted;
    counted = reached;
  }
}

std::int64_t count_bin(const std::int32_t* bins, std::int64_t count, std::int32_t bin) {
  const hn::ScalableTag<std::int32_t> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, bin);
  std::size_t found = 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) found += hn::CountTrue(d, hn::Eq(hn::LoadU(d, bins + i), wanted));
  for (; i < count; ++i) found += bins[i] == bin;
  return static_cast<std::int64_t>(found);
}

const CompareTable* get_compare_table() {
  static constexpr CompareTable kTable = [] {
    CompareTable table{};
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      const auto at = static_cast<std::size_t>(dtype);
      visit_dtype(static_cast<DType>(dtype), [&]<class T>(T) {
        if constexpr (kIsComplex<T>) {
          table.equal[at] = &equal_floats<typename T::value_type, 2>;
          table.widen[at] = &widen_complex<typename T::value_type>;
        } else {
          table.widen[at] = &widen<T>;
          if constexpr (std::is_floating_point_v<T>)
            table.equal[at] = &equal_floats<T, 1>;
          else if constexpr (kIsInteger<T>)
            table.equal[at] = &equal_bytes<T>;
          else
            table.equal[at] = &never_equal;
          if constexpr (!kIsInteger<T>) {
            table.ulps[at] = sizeof(T) == 8   ? &ulps<std::uint64_t>
                             : sizeof(T) == 4 ? &ulps<std::uint32_t>
                             : sizeof(T) == 2 ? &ulps<std::uint16_t>
                                              : &ulps<std::uint8_t>;
            table.bin_ulps[at] = sizeof(T) == 8   ? &bin_ulps<std::uint64_t>
                                 : sizeof(T) == 4 ? &bin_ulps<std::uint32_t>
                                 : sizeof(T) == 2 ? &bin_ulps<std::uint16_t>
                                                  : &bin_ulps<std::uint8_t>;
          }
        }
      });
    }
    table.equal[static_cast<std::size_t>(DType::F16)] = &equal_bits<std::int16_t, 0x7C00>;
    table.equal[static_cast<std::size_t>(DType::BF16)] = &equal_bits<std::int16_t, 0x7F80>;
    table.close = &close;
    table.absolute_error = &absolute_error;
    table.measure = &measure;
    table.measure_equal = &measure_equal;
    table.sum_pairs = &sum_pairs;
    table.mark_outside = &mark_outside;
    table.count_errors = &count_errors;
    table.count_bin = &count_bin;
    return table;
  }();
  return &kTable;
}

}  // namespace tenscope::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenscope::kernels {

HWY_EXPORT(get_compare_table);

const CompareTable& compare_table() {
  ensure_simd_target();
  return *HWY_DYNAMIC_DISPATCH(get_compare_table)();
}

}  // namespace tenscope::kernels
#endif
