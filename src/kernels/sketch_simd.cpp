// Overview. The 64 sums of a sketch over blocks of 64 elements, compiled once per vector unit. A block's elements go to
// the 64 sums one each, in an order that is an exclusive or with a number of six bits: its upper bits choose which
// vector of the block is loaded, its lower bits how that vector's lanes are exchanged. The signs are 64 random bits a
// block. Half of the sums or fewer are in registers at a time while some blocks, all in the first-level cache, pass by.
// Each sum gets its elements in the order of blocks, so every vector unit gives the same bits.
#include <algorithm>
#include <cstring>

#include "kernels/sketch_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sketch_simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/simd_target.hpp"
#include "kernels/sketch_scalar.hpp"
#include "kernels/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenscope::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// How elements become lanes of float or double that hold them exactly.
template <class T>
struct SketchLanes : Widen<T> {};

template <class T>
struct SmallIntegerLanes {
  using D = DF32;
  static HWY_INLINE hn::Vec<D> load(const T* p) {
    using Integer = std::conditional_t<std::is_same_v<T, Bool>, std::uint8_t, T>;
    const hn::Rebind<Integer, DI32> d;
    auto v = hn::LoadU(d, reinterpret_cast<const Integer*>(p));
    if constexpr (std::is_same_v<T, Bool>) v = hn::Min(v, hn::Set(d, Integer{1}));
    return hn::ConvertTo(D(), hn::PromoteTo(DI32(), v));
  }
};
template <>
struct SketchLanes<Bool> : SmallIntegerLanes<Bool> {};
template <>
struct SketchLanes<std::uint8_t> : SmallIntegerLanes<std::uint8_t> {};
template <>
struct SketchLanes<std::int8_t> : SmallIntegerLanes<std::int8_t> {};
template <>
struct SketchLanes<std::uint16_t> : SmallIntegerLanes<std::uint16_t> {};
template <>
struct SketchLanes<std::int16_t> : SmallIntegerLanes<std::int16_t> {};

template <>
struct SketchLanes<std::int32_t> {
  using D = DF64;
  static HWY_INLINE hn::Vec<D> load(const std::int32_t* p) {
    return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<std::int32_t, D>(), p));
  }
};
template <>
struct SketchLanes<std::uint32_t> {
  using D = DF64;
  static HWY_INLINE hn::Vec<D> load(const std::uint32_t* p) {
    const hn::Rebind<std::int32_t, D> d;
    const auto shifted = hn::Xor(hn::LoadU(d, reinterpret_cast<const std::int32_t*>(p)), hn::Set(d, INT32_MIN));
    return hn::Add(hn::PromoteTo(D(), shifted), hn::Set(D(), 0x1p31));
  }
};

template <class D>
HWY_INLINE hn::Vec<D> zero_where_not_finite(D d, hn::Vec<D> v) {
  const hn::RebindToSigned<D> di;
  using Bits = hn::TFromD<decltype(di)>;
  const auto infinity = hn::BitCast(di, hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity()));
  const auto bits = hn::And(hn::BitCast(di, v), hn::Set(di, std::numeric_limits<Bits>::max()));
  return hn::IfThenElseZero(hn::RebindMask(d, hn::Lt(bits, infinity)), v);
}

// The draws of some blocks. Behind the signs there are the bytes that LoadMaskBits may read.
struct Draws {
  static constexpr std::int64_t kBlocks = 32;
  std::uint64_t signs[kBlocks + 1] = {};
  std::uint64_t swaps[kBlocks];

  void draw(std::int64_t first, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      const BlockDraw draw(first + i);
      signs[i] = draw.signs;
      swaps[i] = draw.swap;
    }
  }
};

template <class D>
HWY_INLINE hn::Mask<D> signs_at(D d, const std::uint64_t* signs, std::size_t place) {
  if (hn::Lanes(d) >= 8) return hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(signs) + place / 8);
  const std::uint64_t shifted = *signs >> place;
  return hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&shifted));
}

// The elements of one block that go to the sums from `place` on, in their order and with their signs.
template <class T, bool kIsFinite, class Indices>
HWY_INLINE hn::Vec<typename SketchLanes<T>::D> drawn(const T* block, std::size_t place, std::size_t upper_swap,
                                                     Indices exchange, const std::uint64_t* signs) {
  const typename SketchLanes<T>::D d;
  auto v = SketchLanes<T>::load(block + (place ^ upper_swap));
  if constexpr (!kIsFinite) v = zero_where_not_finite(d, v);
  v = hn::TableLookupLanes(v, exchange);
  return hn::IfThenElse(signs_at(d, signs, place), hn::Neg(v), v);
}

template <class T, bool kIsFinite>
HWY_INLINE void add_batch(double* HWY_RESTRICT sums, const Draws& draws, std::int64_t blocks, const T* p) {
  using D = typename SketchLanes<T>::D;
  const D d;
  const DF64 dd;
  const hn::RebindToSigned<D> di;
  using Index = hn::TFromD<decltype(di)>;
  const std::size_t lanes = hn::Lanes(d), wide = hn::Lanes(dd);
  const auto iota = hn::Iota(di, 0);
  const auto one = hn::Set(dd, 1.0);  // multiplied by it, what is added goes to units that conversions leave free
  for (std::size_t place = 0; place < kSketchBlock; place += 4 * wide) {
    double* to = sums + place;
    auto sum0 = hn::LoadU(dd, to), sum1 = hn::LoadU(dd, to + wide);
    auto sum2 = hn::LoadU(dd, to + 2 * wide), sum3 = hn::LoadU(dd, to + 3 * wide);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const T* block = p + i * kSketchBlock;
      const std::uint64_t* signs = draws.signs + i;
      const std::size_t lower = draws.swaps[i] & (lanes - 1), upper = draws.swaps[i] - lower;
      const auto exchange = hn::IndicesFromVec(d, hn::Xor(iota, hn::Set(di, static_cast<Index>(lower))));
      const auto v0 = drawn<T, kIsFinite>(block, place, upper, exchange, signs);
      const auto v1 = drawn<T, kIsFinite>(block, place + lanes, upper, exchange, signs);
      if constexpr (sizeof(hn::TFromD<D>) == 4) {
        const hn::Half<D> half;
        sum0 = hn::MulAdd(hn::PromoteTo(dd, hn::LowerHalf(half, v0)), one, sum0);
        sum1 = hn::MulAdd(hn::PromoteTo(dd, hn::UpperHalf(half, v0)), one, sum1);
        sum2 = hn::MulAdd(hn::PromoteTo(dd, hn::LowerHalf(half, v1)), one, sum2);
        sum3 = hn::MulAdd(hn::PromoteTo(dd, hn::UpperHalf(half, v1)), one, sum3);
      } else {
        sum0 = hn::MulAdd(v0, one, sum0);
        sum1 = hn::MulAdd(v1, one, sum1);
        sum2 = hn::MulAdd(drawn<T, kIsFinite>(block, place + 2 * lanes, upper, exchange, signs), one, sum2);
        sum3 = hn::MulAdd(drawn<T, kIsFinite>(block, place + 3 * lanes, upper, exchange, signs), one, sum3);
      }
    }
    hn::StoreU(sum0, dd, to);
    hn::StoreU(sum1, dd, to + wide);
    hn::StoreU(sum2, dd, to + 2 * wide);
    hn::StoreU(sum3, dd, to + 3 * wide);
  }
}

template <class T, bool kIsFinite>
void add_blocks(double* sums, std::int64_t first, std::int64_t blocks, const std::byte* bytes) {
  Draws draws;
  const T* p = reinterpret_cast<const T*>(bytes);
  for (std::int64_t done = 0; done < blocks; done += Draws::kBlocks) {
    const std::int64_t batch = std::min(Draws::kBlocks, blocks - done);
    draws.draw(first + done, batch);
    add_batch<T, kIsFinite>(sums, draws, batch, p + done * kSketchBlock);
  }
}

template <class T, bool kIsFinite>
constexpr auto add_blocks_of() {
  // Not every unit converts 64 bits to double.
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return &add_blocks_scalar<T>;
  else
    return &add_blocks < T, kIsFinite || kIsInteger < T >> ;
}
#else
template <class T, bool>
constexpr auto add_blocks_of() {
  return &add_blocks_scalar<T>;
}
#endif  // HWY_TARGET != HWY_SCALAR

const SketchTable* get_sketch_table() {
  static constexpr SketchTable kTable = [] {
    SketchTable table{};
    const auto put = [&table]<class T>(DType dtype, T) {
      table.add_finite[static_cast<std::size_t>(dtype)] = add_blocks_of<T, true>();
      table.add_any[static_cast<std::size_t>(dtype)] = add_blocks_of<T, false>();
    };
    for (int i = 0; i < kDTypeCount; ++i) {
      visit_dtype(static_cast<DType>(i), [&]<class T>(T tag) {
        if constexpr (kIsComplex<T>)
          put(static_cast<DType>(i), typename T::value_type{});
        else
          put(static_cast<DType>(i), tag);
      });
    }
    return table;
  }();
  return &kTable;
}

}  // namespace tenscope::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenscope::kernels {

HWY_EXPORT(get_sketch_table);

const SketchTable& sketch_table() {
  ensure_simd_target();
  return *HWY_DYNAMIC_DISPATCH(get_sketch_table)();
}

}  // namespace tenscope::kernels
#endif
