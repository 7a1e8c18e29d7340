// Overview. The 64 sums of a sketch over blocks of 64 elements, compiled once per vector unit. A block's elements go to
// the 64 sums one each, in an order that is an exclusive or with a number of six bits: its upper bits choose which
// vector of the block is loaded, its lower bits how that vector's lanes are exchanged. The signs are 64 random bits a
// block. Eight vectors of the sums are in registers at a time (all 64, or a half or a quarter) while some blocks, all
// in the first-level cache, pass by. Each sum gets its elements in the order of blocks, so every vector unit gives the
// same bits.
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

// 64 bits are rounded as the plain conversion does.
template <>
struct SketchLanes<std::int64_t> {
  using D = DF64;
  static HWY_INLINE hn::Vec<D> load(const std::int64_t* p) { return hn::ConvertTo(D(), hn::LoadU(DI64(), p)); }
};
template <>
struct SketchLanes<std::uint64_t> {
  using D = DF64;
  static HWY_INLINE hn::Vec<D> load(const std::uint64_t* p) {
    return hn::ConvertTo(D(), hn::LoadU(hn::ScalableTag<std::uint64_t>(), p));
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
  static constexpr std::int64_t kBlocks = 64;
  std::uint64_t signs[kBlocks + 1];
  std::uint64_t swaps[kBlocks];

  void draw(std::int64_t first, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      const BlockDraw draw(first + i);
      signs[i] = draw.signs;
      swaps[i] = draw.swap;
    }
    signs[blocks] = 0;
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
  for (std::size_t place = 0; place < kSketchBlock; place += 8 * wide) {
    double* to = sums + place;
    auto sum0 = hn::LoadU(dd, to), sum1 = hn::LoadU(dd, to + wide);
    auto sum2 = hn::LoadU(dd, to + 2 * wide), sum3 = hn::LoadU(dd, to + 3 * wide);
    auto sum4 = hn::LoadU(dd, to + 4 * wide), sum5 = hn::LoadU(dd, to + 5 * wide);
    auto sum6 = hn::LoadU(dd, to + 6 * wide), sum7 = hn::LoadU(dd, to + 7 * wide);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const T* block = p + i * kSketchBlock;
      const std::uint64_t* signs = draws.signs + i;
      const std::size_t lower = draws.swaps[i] & (lanes - 1), upper = draws.swaps[i] - lower;
      const auto exchange = hn::IndicesFromVec(d, hn::Xor(iota, hn::Set(di, static_cast<Index>(lower))));
      const auto add = [&](std::size_t at, hn::Vec<DF64>& first, hn::Vec<DF64>& second) HWY_ATTR {
        const auto v = drawn<T, kIsFinite>(block, at, upper, exchange, signs);
        if constexpr (sizeof(hn::TFromD<D>) == 4) {
          const hn::Half<D> half;
          first = hn::MulAdd(hn::PromoteTo(dd, hn::LowerHalf(half, v)), one, first);
          second = hn::MulAdd(hn::PromoteTo(dd, hn::UpperHalf(half, v)), one, second);
        } else {
          first = hn::MulAdd(v, one, first);
          second = hn::MulAdd(drawn<T, kIsFinite>(block, at + lanes, upper, exchange, signs), one, second);
        }
      };
      add(place, sum0, sum1);
      add(place + 2 * wide, sum2, sum3);
      add(place + 4 * wide, sum4, sum5);
      add(place + 6 * wide, sum6, sum7);
    }
    hn::StoreU(sum0, dd, to);
    hn::StoreU(sum1, dd, to + wide);
    hn::StoreU(sum2, dd, to + 2 * wide);
    hn::StoreU(sum3, dd, to + 3 * wide);
    hn::StoreU(sum4, dd, to + 4 * wide);
    hn::StoreU(sum5, dd, to + 5 * wide);
    hn::StoreU(sum6, dd, to + 6 * wide);
    hn::StoreU(sum7, dd, to + 7 * wide);
  }
}

// Integers of 8 and 16 bits are summed as unsigned ones of twice the width, the even and the odd ones of a vector
// apart, with a bias that makes signed ones positive. What is subtracted is added with all its bits turned, as maximum
// - x; how often that was so is counted for each sum. So the sums of a batch are exact.
template <class T>
constexpr bool kIsSmallInteger = kIsInteger<T> && sizeof(T) <= 2;

// What exchanges the bytes within 16 of them, and these within a vector, by an exclusive or of their places.
struct Exchanges {
  alignas(64) std::uint8_t bytes[16][64];
  alignas(64) std::uint32_t words[4][16];
};
constexpr Exchanges kExchanges = [] {
  Exchanges result{};
  for (std::uint32_t swap = 0; swap < 16; ++swap)
    for (std::uint32_t i = 0; i < 64; ++i) result.bytes[swap][i] = static_cast<std::uint8_t>((i ^ swap) % 16);
  for (std::uint32_t swap = 0; swap < 4; ++swap)
    for (std::uint32_t i = 0; i < 16; ++i) result.words[swap][i] = i ^ swap << 2;
  return result;
}();

template <class T>
HWY_INLINE void add_small_batch(double* HWY_RESTRICT sums, const Draws& draws, std::int64_t blocks, const T* p) {
  using Narrow = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>;
  using Wide = std::conditional_t<sizeof(T) == 1, std::uint16_t, std::uint32_t>;
  constexpr std::int32_t kMax = std::numeric_limits<Narrow>::max();
  constexpr std::int32_t kBias = std::is_signed_v<T> ? kMax / 2 + 1 : 0;
  static_assert(Draws::kBlocks * kMax <= std::numeric_limits<Wide>::max());
  const hn::ScalableTag<Narrow> d;
  const hn::ScalableTag<Wide> wide;
  const hn::Repartition<std::uint8_t, decltype(d)> bytes;
  const hn::Repartition<std::uint32_t, decltype(d)> words;
  const std::size_t size = hn::Lanes(bytes), lanes = hn::Lanes(d);
  HWY_ALIGN Wide evens[kSketchBlock / 2], odds[kSketchBlock / 2];
  HWY_ALIGN Narrow subtracted[kSketchBlock];
  for (std::size_t place = 0; place < kSketchBlock; place += lanes) {
    auto even = hn::Zero(wide), odd = hn::Zero(wide);
    auto count = hn::Zero(d);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::size_t swap = draws.swaps[i] * sizeof(T), lower = swap & (size - 1);
      const std::size_t from = place ^ ((swap - lower) / sizeof(T));
      auto v = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(p + i * kSketchBlock + from));
      v = hn::TableLookupBytes(v, hn::Load(bytes, kExchanges.bytes[lower % 16]));
      if (size > 16) {
        const auto order = hn::IndicesFromVec(words, hn::Load(words, kExchanges.words[lower / 16]));
        v = hn::BitCast(bytes, hn::TableLookupLanes(hn::BitCast(words, v), order));
      }
      auto elements = hn::BitCast(d, v);
      if constexpr (std::is_same_v<T, Bool>) elements = hn::Min(elements, hn::Set(d, Narrow{1}));
      if constexpr (std::is_signed_v<T>) elements = hn::Xor(elements, hn::Set(d, static_cast<Narrow>(kBias)));
      const auto signs = signs_at(d, draws.signs + i, place);
      elements = hn::IfThenElse(signs, hn::Sub(hn::Set(d, static_cast<Narrow>(kMax)), elements), elements);
      count = hn::IfThenElse(signs, hn::Add(count, hn::Set(d, Narrow{1})), count);
      const auto pairs = hn::BitCast(wide, elements);
      even = hn::Add(even, hn::And(pairs, hn::Set(wide, static_cast<Wide>(kMax))));
      odd = hn::Add(odd, hn::ShiftRight<8 * sizeof(T)>(pairs));
    }
    hn::Store(even, wide, evens + place / 2);
    hn::Store(odd, wide, odds + place / 2);
    hn::Store(count, d, subtracted + place);
  }
  std::int32_t totals[kSketchBlock];
  for (std::size_t pair = 0; pair < kSketchBlock / 2; ++pair) {
    totals[2 * pair] = static_cast<std::int32_t>(evens[pair]);
    totals[2 * pair + 1] = static_cast<std::int32_t>(odds[pair]);
  }
  const auto bias = static_cast<std::int32_t>(kBias * blocks);
  for (std::size_t place = 0; place < kSketchBlock; ++place)
    sums[place] += totals[place] - bias - (kMax - 2 * kBias) * subtracted[place];
}

template <class T, bool kIsFinite>
void add_blocks(double* sums, std::int64_t first, std::int64_t blocks, const std::byte* bytes) {
  Draws draws;
  const T* p = reinterpret_cast<const T*>(bytes);
  for (std::int64_t done = 0; done < blocks; done += Draws::kBlocks) {
    const std::int64_t batch = std::min(Draws::kBlocks, blocks - done);
    draws.draw(first + done, batch);
    if constexpr (kIsSmallInteger<T>)
      add_small_batch(sums, draws, batch, p + done * kSketchBlock);
    else
      add_batch<T, kIsFinite>(sums, draws, batch, p + done * kSketchBlock);
  }
}

template <class T, bool kIsFinite>
constexpr auto add_blocks_of() {
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
