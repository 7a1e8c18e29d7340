// Overview. The statistics of one block (some KB in the first-level cache), compiled once per vector unit by Highway's
// foreach_target. Every type is widened to lanes of int32, int64, float or double for min and max, and on to double for
// the moments, so nothing is lost. The fast pass takes no notice of NaN and infinity: they make the sum non-finite, and
// only such a block is done again with masks. A tail shorter than a vector is filled up with the pivot, which adds
// nothing to the moments; what it adds to the counts is taken off again. Where an element becomes a double anyway, a
// sketch is made in the same pass.
#include <algorithm>
#include <cstring>

#include "kernels/stats_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stats_simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/simd_target.hpp"
#include "kernels/sketch_scalar.hpp"
#include "kernels/stats_scalar.hpp"
#include "kernels/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenscope::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// What else is done with the doubles of a block: nothing, or a sketch.
struct NoSketch {
  static constexpr bool kIsSketch = false;
  HWY_INLINE void add(hn::Vec<DF64>) {}
};

// Each vector of 64 elements is added to another part of the 64 sums in memory, with its lanes exchanged and its signs:
// the sums' places change and the elements' do not, so that both passes' work is done on the same registers.
class Sketcher {
 public:
  static constexpr bool kIsSketch = true;

  // The sums are aligned as vectors are.
  HWY_INLINE Sketcher(double* HWY_RESTRICT sums, std::int64_t first) : sums_(sums), block_(first) {}

  HWY_INLINE void begin_block() {
    const BlockDraw draw(block_++);
    const std::uint64_t lower = draw.swap & (hn::Lanes(DF64()) - 1);
    const auto order = hn::Xor(hn::Iota(DI64(), 0), hn::Set(DI64(), static_cast<std::int64_t>(lower)));
    exchange_ = hn::IndicesFromVec(DF64(), order);
    upper_ = draw.swap - lower;
    signs_ = draw.signs;
    next_ = 0;
  }

  // The next elements of the block. Multiplied by the sign, they are added by units that conversions leave free.
  HWY_INLINE void add(hn::Vec<DF64> x) {
    const DF64 d;
    const std::size_t place = next_ ^ upper_;
    next_ += hn::Lanes(d);
    double* sums = sums_ + place;
    hn::Store(hn::MulAdd(hn::TableLookupLanes(x, exchange_), signs_from(place), hn::Load(d, sums)), d, sums);
  }

 private:
  // Of the sums from `place` on: 1, or -1 where an element is subtracted.
  HWY_INLINE hn::Vec<DF64> signs_from(std::size_t place) const {
    const DF64 d;
    const std::uint64_t signs = signs_ >> place;
    if (hn::Lanes(d) <= 4) return hn::Load(d, kSigns[signs % 16].data());
    const auto is_subtracted = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&signs));
    return hn::IfThenElse(is_subtracted, hn::Set(d, -1.0), hn::Set(d, 1.0));
  }

  // Four lanes by their bits.
  alignas(32) static constexpr std::array<std::array<double, 4>, 16> kSigns = [] {
    std::array<std::array<double, 4>, 16> signs{};
    for (std::size_t bits = 0; bits < 16; ++bits)
      for (std::size_t i = 0; i < 4; ++i) signs[bits][i] = (bits >> i & 1) != 0 ? -1 : 1;
    return signs;
  }();

  double* HWY_RESTRICT sums_;
  std::int64_t block_;
  std::uint64_t signs_ = 0, upper_ = 0, next_ = 0;
  decltype(hn::IndicesFromVec(DF64(), hn::Zero(DI64()))) exchange_ = hn::IndicesFromVec(DF64(), hn::Zero(DI64()));
};

// f(vector) over the block, `lanes` elements at a time; the last one filled up with `filler`. Returns how many were
// filled. Where there is a sketch the block has whole blocks of it.
template <class T, class F, class S = NoSketch>
HWY_INLINE std::int64_t for_each_vector(const T* p, std::int64_t count, T filler, F&& f, S&& sketcher = S()) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(typename Widen<T>::D()));
  if constexpr (std::remove_reference_t<S>::kIsSketch) {
    for (const T* end = p + count; p < end; p += kSketchBlock) {
      sketcher.begin_block();
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kSketchBlock; i += lanes) f(Widen<T>::load(p + i));
    }
    return 0;
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(Widen<T>::load(p + i));
  if (i == count) return 0;
  T tail[HWY_MAX_BYTES];
  std::memcpy(tail, p + i, static_cast<std::size_t>(count - i) * sizeof(T));
  std::fill(tail + (count - i), tail + lanes, filler);
  f(Widen<T>::load(tail));
  return i + lanes - count;
}

// Four running sums and sums of squares of (x - pivot) in double.
struct Sums {
  const DF64 d;
  hn::Vec<DF64> pivot;
  hn::Vec<DF64> sum0 = hn::Zero(d), sum1 = hn::Zero(d), square0 = hn::Zero(d), square1 = hn::Zero(d);

  explicit HWY_INLINE Sums(double about) : d(), pivot(hn::Set(d, about)) {}

  template <class W, class V, class S = NoSketch>
  HWY_INLINE void add(V v, S&& sketcher = S()) {
    bool is_odd = false;
    W::for_each_double(v, [&](hn::Vec<DF64> x) HWY_ATTR {
      sketcher.add(x);
      const auto delta = hn::Sub(x, pivot);
      if (is_odd) {
        sum1 = hn::Add(sum1, delta);
        square1 = hn::MulAdd(delta, delta, square1);
      } else {
        sum0 = hn::Add(sum0, delta);
        square0 = hn::MulAdd(delta, delta, square0);
      }
      is_odd = true;
    });
  }
  HWY_INLINE double sum() const { return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))); }
  HWY_INLINE double squares() const { return hn::GetLane(hn::SumOfLanes(d, hn::Add(square0, square1))); }
};

// The lanes as their absolute bits, which are ordered as the values are: whether one is zero or subnormal does not
// depend on the processor's flush-to-zero mode.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> absolute_bits(D, hn::Vec<D> v) {
  const hn::RebindToSigned<D> di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, std::numeric_limits<hn::TFromD<decltype(di)>>::max()));
}

template <class T>
HWY_INLINE auto min_normal_bits() {
  using W = Widen<T>;
  using Lane = hn::TFromD<typename W::D>;
  const Lane limit = static_cast<Lane>(kMinNormal<T>);
  hn::TFromD<hn::RebindToSigned<typename W::D>> bits;
  std::memcpy(&bits, &limit, sizeof bits);
  return bits;
}

template <class T>
BlockStats block_stats_masked(const T* p, std::int64_t count) {
  using W = Widen<T>;
  using D = typename W::D;
  using Lane = hn::TFromD<D>;
  const D d;
  const hn::RebindToSigned<D> di;
  BlockStats stats;
  T pivot{};
  bool has_pivot = false;
  for (std::int64_t i = 0; i < count && !has_pivot; ++i) {
    pivot = load<T>(reinterpret_cast<const std::byte*>(p + i));
    has_pivot = std::isfinite(to_double(pivot));
  }
  if (!has_pivot) pivot = T{};
  stats.pivot = to_double(pivot);
  const auto pivot_lanes = hn::Set(d, static_cast<Lane>(stats.pivot));
  const auto infinity = hn::Set(d, std::numeric_limits<Lane>::infinity());
  const auto infinity_bits = hn::BitCast(di, infinity);
  const auto min_normal = hn::Set(di, min_normal_bits<T>());
  auto low = infinity;
  auto high = hn::Neg(infinity);
  std::size_t finite = 0, nan = 0, pos_inf = 0, zero = 0, small = 0, non_finite = 0;
  Sums sums(stats.pivot);
  const std::int64_t filled = for_each_vector<T>(p, count, pivot, [&](hn::Vec<D> v) HWY_ATTR {
    const auto bits = absolute_bits(d, v);
    const auto is_finite = hn::RebindMask(d, hn::Lt(bits, infinity_bits));
    finite += hn::CountTrue(d, is_finite);
    nan += hn::CountTrue(di, hn::Gt(bits, infinity_bits));
    pos_inf += hn::CountTrue(d, hn::Eq(v, infinity));
    zero += hn::CountTrue(di, hn::Eq(bits, hn::Zero(di)));
    small += hn::CountTrue(di, hn::Lt(bits, min_normal));
    const auto x = hn::IfThenElse(is_finite, v, pivot_lanes);
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    sums.template add<W>(x);
    non_finite += hn::Lanes(d);
  });
  stats.count = static_cast<std::int64_t>(finite) - filled;
  stats.nan = static_cast<std::int64_t>(nan);
  stats.pos_inf = static_cast<std::int64_t>(pos_inf);
  stats.neg_inf = static_cast<std::int64_t>(non_finite - finite - nan - pos_inf);
  const bool pivot_is_zero = stats.pivot == 0;
  stats.zero = static_cast<std::int64_t>(zero) - (pivot_is_zero ? filled : 0);
  const bool pivot_is_small = std::abs(stats.pivot) < kMinNormal<T>;
  stats.subnormal = static_cast<std::int64_t>(small) - (pivot_is_small ? filled : 0) - stats.zero;
  stats.sum = sums.sum();
  stats.sum_squares = sums.squares();
  if (has_pivot) {
    stats.min = W::to_double(hn::GetLane(hn::MinOfLanes(d, low)));
    stats.max = W::to_double(hn::GetLane(hn::MaxOfLanes(d, high)));
  }
  return stats;
}

template <class T, class S>
HWY_INLINE BlockStats block_stats_and(S&& sketcher, const std::byte* bytes, std::int64_t count) {
  using W = Widen<T>;
  using D = typename W::D;
  const D d;
  const hn::RebindToSigned<D> di;
  const T* p = reinterpret_cast<const T*>(bytes);
  if (count == 0) return {};
  const T pivot = load<T>(bytes);
  BlockStats stats;
  stats.count = count;
  stats.pivot = to_double(pivot);
  if (W::kIsFloat && !std::isfinite(stats.pivot)) return block_stats_masked<T>(p, count);

  hn::TFromD<D> first_lanes[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  T firsts[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  std::fill(std::begin(firsts), std::end(firsts), pivot);
  hn::StoreU(W::load(firsts), d, first_lanes);
  auto low = hn::LoadU(d, first_lanes);
  auto high = low;
  // uint32 and uint64 lanes are shifted; so then is their pivot.
  double pivot_lane = stats.pivot;
  if constexpr (!W::kIsFloat) pivot_lane = static_cast<double>(first_lanes[0]);
  Sums sums(pivot_lane);
  std::size_t small = 0;
  std::int64_t filled = 0;
  if constexpr (W::kIsFloat) {
    const auto min_normal = hn::Set(di, min_normal_bits<T>());
    auto least_bits = hn::Set(di, std::numeric_limits<hn::TFromD<decltype(di)>>::max());
    filled = for_each_vector<T>(
        p, count, pivot,
        [&](hn::Vec<D> v) HWY_ATTR {
          low = hn::Min(low, v);
          high = hn::Max(high, v);
          const auto bits = absolute_bits(d, v);
          if constexpr (sizeof(hn::TFromD<D>) == 4)
            least_bits = hn::Min(least_bits, bits);
          else  // of which only AVX-512 has a minimum
            small += hn::CountTrue(di, hn::Lt(bits, min_normal));
          sums.template add<W>(v, sketcher);
        },
        sketcher);
    small += hn::GetLane(hn::MinOfLanes(di, least_bits)) < min_normal_bits<T>();
  } else {
    hn::TFromD<D> zero_lanes[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
    std::fill(std::begin(firsts), std::end(firsts), T{0});
    hn::StoreU(W::load(firsts), d, zero_lanes);
    const auto zero = hn::LoadU(d, zero_lanes);
    filled = for_each_vector<T>(
        p, count, pivot,
        [&](hn::Vec<D> v) HWY_ATTR {
          low = hn::Min(low, v);
          high = hn::Max(high, v);
          small += hn::CountTrue(d, hn::Eq(v, zero));
          sums.template add<W>(v, sketcher);
        },
        sketcher);
  }
  stats.sum = sums.sum();
  stats.sum_squares = sums.squares();
  // The squares of doubles may overflow without an infinity among them; the masked pass sees to that as well.
  if (W::kIsFloat && !std::isfinite(stats.sum + stats.sum_squares)) return block_stats_masked<T>(p, count);
  const auto least = hn::GetLane(hn::MinOfLanes(d, low));
  const auto greatest = hn::GetLane(hn::MaxOfLanes(d, high));
  stats.min = W::to_double(least);
  stats.max = W::to_double(greatest);
  if constexpr (W::kIsFloat) {
    if (small != 0) {
      const auto min_normal = hn::Set(di, min_normal_bits<T>());
      std::size_t zero = 0;
      small = 0;
      for_each_vector<T>(p, count, pivot, [&](hn::Vec<D> v) HWY_ATTR {
        const auto bits = absolute_bits(d, v);
        zero += hn::CountTrue(di, hn::Eq(bits, hn::Zero(di)));
        small += hn::CountTrue(di, hn::Lt(bits, min_normal));
      });
      stats.zero = static_cast<std::int64_t>(zero) - (stats.pivot == 0 ? filled : 0);
      const bool pivot_is_small = std::abs(stats.pivot) < kMinNormal<T>;
      stats.subnormal = static_cast<std::int64_t>(small) - (pivot_is_small ? filled : 0) - stats.zero;
    }
  } else {
    stats.zero = static_cast<std::int64_t>(small) - (stats.pivot == 0 ? filled : 0);
  }
  if constexpr (sizeof(T) == 8 && !W::kIsFloat) {
    stats.ordered_min = least;
    stats.ordered_max = greatest;
  }
  return stats;
}

template <class T>
BlockStats block_stats(const std::byte* bytes, std::int64_t count) {
  return block_stats_and<T>(NoSketch(), bytes, count);
}

template <class T>
BlockStats sketched_stats(double* sums, std::int64_t first, const std::byte* bytes, std::int64_t count) {
  HWY_ALIGN double with_these[kSketchBlock];
  std::memcpy(with_these, sums, sizeof with_these);
  const BlockStats stats = block_stats_and<T>(Sketcher(with_these, first), bytes, count);
  if (stats.count == count) std::memcpy(sums, with_these, sizeof with_these);
  return stats;
}

// int8, uint8 and bool: sums of a block fit int32, so they are exact.
template <class T>
BlockStats block_stats_bytes(const std::byte* bytes, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<T, Bool>, std::uint8_t, T>;
  const hn::ScalableTag<std::int16_t> d16;
  const hn::ScalableTag<std::int32_t> d32;
  const hn::Rebind<Byte, decltype(d16)> d8;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d16));
  const auto one = hn::Set(d16, std::int16_t{1});
  auto sum = hn::Zero(d32);
  auto squares = hn::Zero(d32);
  auto unused = hn::Zero(d32);
  auto low = hn::Set(d8, std::numeric_limits<Byte>::max());
  auto high = hn::Set(d8, std::numeric_limits<Byte>::min());
  std::size_t zero = 0;
  const auto add = [&](const Byte* p) HWY_ATTR {
    auto v = hn::LoadU(d8, p);
    if constexpr (std::is_same_v<T, Bool>) v = hn::Min(v, hn::Set(d8, Byte{1}));
    low = hn::Min(low, v);
    high = hn::Max(high, v);
    const auto wide = hn::PromoteTo(d16, v);
    zero += hn::CountTrue(d16, hn::Eq(wide, hn::Zero(d16)));
    sum = hn::ReorderWidenMulAccumulate(d32, wide, one, sum, unused);
    squares = hn::ReorderWidenMulAccumulate(d32, wide, wide, squares, unused);
  };
  const auto* p = reinterpret_cast<const Byte*>(bytes);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) add(p + i);
  const auto before_tail = i;
  Byte least = std::numeric_limits<Byte>::max();
  Byte greatest = std::numeric_limits<Byte>::min();
  if (before_tail > 0) {
    Byte buffer[HWY_MAX_BYTES];
    hn::StoreU(low, d8, buffer);
    for (std::int64_t k = 0; k < lanes; ++k) least = std::min(least, buffer[k]);
    hn::StoreU(high, d8, buffer);
    for (std::int64_t k = 0; k < lanes; ++k) greatest = std::max(greatest, buffer[k]);
  }
  BlockStats stats;
  stats.count = count;
  std::int64_t total = hn::GetLane(hn::SumOfLanes(d32, hn::Add(sum, unused)));
  std::int64_t total_squares = hn::GetLane(hn::SumOfLanes(d32, squares));
  std::int64_t zeros = static_cast<std::int64_t>(zero);
  for (; i < count; ++i) {
    const int x = std::is_same_v<T, Bool> ? static_cast<int>(p[i] != 0) : static_cast<int>(p[i]);
    total += x;
    total_squares += x * x;
    zeros += x == 0;
    least = std::min(least, static_cast<Byte>(x));
    greatest = std::max(greatest, static_cast<Byte>(x));
  }
  stats.sum = static_cast<double>(total);
  stats.sum_squares = static_cast<double>(total_squares);
  stats.zero = zeros;
  stats.min = static_cast<double>(least);
  stats.max = static_cast<double>(greatest);
  return stats;
}

void stream_copy(std::byte* destination, const std::byte* source, std::size_t size) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(source + i)), d,
               reinterpret_cast<std::uint8_t*>(destination + i));
  }
  std::memcpy(destination + i, source + i, size - i);
}

template <class T>
constexpr auto block_stats_of() {
  if constexpr (sizeof(T) == 1 && kIsInteger<T>)
    return &block_stats_bytes<T>;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return &block_stats_scalar<T>;  // shifted into int64, small ones would lose their low bits as doubles
  else
    return &block_stats<T>;
}

template <class T>
constexpr StatsTable::SketchedStats sketched_stats_of() {
  return &sketched_stats<T>;
}
#else
template <class T>
constexpr auto block_stats_of() {
  return &block_stats_scalar<T>;
}

template <class T>
constexpr StatsTable::SketchedStats sketched_stats_of() {
  return nullptr;
}

void stream_copy(std::byte* destination, const std::byte* source, std::size_t size) {
  std::memcpy(destination, source, size);
}
#endif  // HWY_TARGET != HWY_SCALAR

void flush_stream() { hwy::FlushStream(); }

const StatsTable* get_table() {
  static constexpr StatsTable kTable = [] {
    StatsTable table{};
    const auto put = [&table](DType dtype, auto function) {
      table.block_stats[static_cast<std::size_t>(dtype)] = function;
    };
    const auto put_sketched = [&]<class T>(DType dtype, T) {
      put(dtype, block_stats_of<T>());
      table.sketched_stats[static_cast<std::size_t>(dtype)] = sketched_stats_of<T>();
    };
    put_sketched(DType::F64, double());
    put_sketched(DType::F32, float());
    put_sketched(DType::F16, Float16());
    put_sketched(DType::BF16, BFloat16());
    put_sketched(DType::F8E4M3, Float8<DType::F8E4M3>());
    put_sketched(DType::F8E5M2, Float8<DType::F8E5M2>());
    put_sketched(DType::F8E4M3Fnuz, Float8<DType::F8E4M3Fnuz>());
    put_sketched(DType::F8E5M2Fnuz, Float8<DType::F8E5M2Fnuz>());
    put_sketched(DType::I64, std::int64_t());
    put_sketched(DType::I32, std::int32_t());
    put(DType::I16, block_stats_of<std::int16_t>());
    put(DType::I8, block_stats_of<std::int8_t>());
    put(DType::U64, block_stats_of<std::uint64_t>());
    put(DType::U32, block_stats_of<std::uint32_t>());
    put(DType::U16, block_stats_of<std::uint16_t>());
    put(DType::U8, block_stats_of<std::uint8_t>());
    put(DType::Bool, block_stats_of<Bool>());
    put_sketched(DType::C64, float());
    put_sketched(DType::C128, double());
    table.stream_copy = &stream_copy;
    table.flush_stream = &flush_stream;
    return table;
  }();
  return &kTable;
}

}  // namespace tenscope::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenscope::kernels {

HWY_EXPORT(get_table);

const StatsTable& stats_table() {
  ensure_simd_target();
  return *HWY_DYNAMIC_DISPATCH(get_table)();
}

}  // namespace tenscope::kernels
#endif
