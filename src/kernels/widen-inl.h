// Vector views of the element types, once per target: how N elements are loaded, and how they become doubles. Not for
// HWY_SCALAR, whose kernels are the plain ones.
#if defined(TENSCOPE_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENSCOPE_WIDEN_INL_H_
#undef TENSCOPE_WIDEN_INL_H_
#else
#define TENSCOPE_WIDEN_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenscope::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using DF32 = hn::ScalableTag<float>;
using DF64 = hn::ScalableTag<double>;
using DI32 = hn::ScalableTag<std::int32_t>;
using DI64 = hn::ScalableTag<std::int64_t>;

// Splits a vector of 32-bit lanes into two of doubles.
template <class V, class F>
HWY_INLINE void split_to_double(V v, F&& f) {
  const DF64 dd;
  const hn::Half<hn::DFromV<V>> half;
  f(hn::PromoteTo(dd, hn::LowerHalf(half, v)));
  f(hn::PromoteTo(dd, hn::UpperHalf(half, v)));
}

// What every float type has: its lanes are `Lanes` (float or double).
struct FloatLanes {
  using D = DF32;
  static constexpr bool kIsFloat = true;
  static double to_double(float x) { return x; }
  template <class F>
  static HWY_INLINE void for_each_double(hn::Vec<D> v, F&& f) {
    split_to_double(v, f);
  }
};

template <class T>
struct Widen;

template <>
struct Widen<float> : FloatLanes {
  static HWY_INLINE hn::Vec<D> load(const float* p) { return hn::LoadU(D(), p); }
};

template <>
struct Widen<BFloat16> : FloatLanes {
  static HWY_INLINE hn::Vec<D> load(const BFloat16* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
};

HWY_INLINE hn::Vec<DF32> promote_half(hn::Vec<hn::Rebind<std::uint16_t, DF32>> bits) {
  const hn::Rebind<hwy::float16_t, DF32> d16;
  return hn::PromoteTo(DF32(), hn::BitCast(d16, bits));
}

// Highway's portable promotion takes infinities and NaN for large numbers: put them back.
HWY_INLINE hn::Vec<DF32> widen_half(hn::Vec<hn::Rebind<std::uint16_t, DF32>> bits) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return promote_half(bits);
#else
  const DF32 d;
  const hn::RebindToUnsigned<DF32> d32;
  const auto wide = hn::PromoteTo(d32, bits);
  const auto exponent = hn::Set(d32, 0x7C00U);
  const auto special =
      hn::Or(hn::ShiftLeft<16>(hn::And(wide, hn::Set(d32, 0x8000U))),
             hn::Or(hn::Set(d32, 0x7F800000U), hn::ShiftLeft<13>(hn::And(wide, hn::Set(d32, 0x3FFU)))));
  const auto is_special = hn::Eq(hn::And(wide, exponent), exponent);
  return hn::BitCast(d, hn::IfThenElse(is_special, special, hn::BitCast(d32, promote_half(bits))));
#endif
}

template <>
struct Widen<Float16> : FloatLanes {
  static HWY_INLINE hn::Vec<D> load(const Float16* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    return widen_half(hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  }
};

// An 8-bit float is read as a half of the same exponent field and scaled to its own bias.
template <DType kType>
struct Widen<Float8<kType>> : FloatLanes {
  static HWY_INLINE hn::Vec<D> load(const Float8<kType>* p) {
    const hn::Rebind<std::uint8_t, D> d8;
    const hn::Rebind<std::uint16_t, D> d16;
    const D d;
    const auto code = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(p)));
    const auto high = hn::ShiftLeft<8>(code);
    if constexpr (kType == DType::F8E5M2) return widen_half(high);
    const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
    const hn::RebindToUnsigned<D> d32;
    const auto code32 = hn::PromoteTo(d32, code);
    if constexpr (kType == DType::F8E5M2Fnuz) {
      // Exponent field 31 is a number here, not an infinity: take the bits as a float's instead.
      const auto magnitude = hn::ShiftLeft<21>(hn::And(code32, hn::Set(d32, 0x7FU)));
      const auto sign = hn::ShiftLeft<24>(hn::And(code32, hn::Set(d32, 0x80U)));
      const auto scaled = hn::Mul(hn::BitCast(d, hn::Or(magnitude, sign)), hn::Set(d, 0x1p+111F));
      return hn::IfThenElse(hn::RebindMask(d, hn::Eq(code32, hn::Set(d32, 0x80U))), nan, scaled);
    } else {
      const auto sign = hn::And(high, hn::Set(d16, std::uint16_t{0x8000}));
      const auto magnitude = hn::ShiftLeft<7>(hn::And(code, hn::Set(d16, std::uint16_t{0x7F})));
      const float scale = kType == DType::F8E4M3 ? 256.0F : 128.0F;
      const auto scaled = hn::Mul(promote_half(hn::Or(sign, magnitude)), hn::Set(d, scale));
      const auto is_nan = kType == DType::F8E4M3 ? hn::Eq(hn::And(code32, hn::Set(d32, 0x7FU)), hn::Set(d32, 0x7FU))
                                                 : hn::Eq(code32, hn::Set(d32, 0x80U));
      return hn::IfThenElse(hn::RebindMask(d, is_nan), nan, scaled);
    }
  }
};

template <>
struct Widen<double> {
  using D = DF64;
  static constexpr bool kIsFloat = true;
  static double to_double(double x) { return x; }
  static HWY_INLINE hn::Vec<D> load(const double* p) { return hn::LoadU(D(), p); }
  template <class F>
  static HWY_INLINE void for_each_double(hn::Vec<D> v, F&& f) {
    f(v);
  }
};

// 16- and 32-bit integers as int32 lanes. uint32 has its top bit flipped, which shifts every value by 2^31 and keeps
// their order.
template <class T>
struct Widen32 {
  using D = DI32;
  static constexpr bool kIsFloat = false;
  static constexpr bool kIsFlipped = std::is_same_v<T, std::uint32_t>;
  static double to_double(std::int32_t x) { return kIsFlipped ? x + 0x1p31 : x; }
  static HWY_INLINE hn::Vec<D> load(const T* p) {
    const D d;
    if constexpr (kIsFlipped) {
      return hn::Xor(hn::LoadU(d, reinterpret_cast<const std::int32_t*>(p)), hn::Set(d, INT32_MIN));
    } else if constexpr (sizeof(T) == 4) {
      return hn::LoadU(d, p);
    } else {
      return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, D>(), p));
    }
  }
  template <class F>
  static HWY_INLINE void for_each_double(hn::Vec<D> v, F&& f) {
    split_to_double(v, f);
  }
};
template <>
struct Widen<std::int32_t> : Widen32<std::int32_t> {};
template <>
struct Widen<std::uint32_t> : Widen32<std::uint32_t> {};
template <>
struct Widen<std::int16_t> : Widen32<std::int16_t> {};
template <>
struct Widen<std::uint16_t> : Widen32<std::uint16_t> {};

// 64-bit integers; uint64 with its top bit flipped.
template <class T>
struct Widen64 {
  using D = DI64;
  static constexpr bool kIsFloat = false;
  static constexpr bool kIsFlipped = std::is_same_v<T, std::uint64_t>;
  static double to_double(std::int64_t x) {
    return kIsFlipped ? static_cast<double>(static_cast<std::uint64_t>(x) ^ (1ULL << 63)) : static_cast<double>(x);
  }
  static HWY_INLINE hn::Vec<D> load(const T* p) {
    const D d;
    const auto v = hn::LoadU(d, reinterpret_cast<const std::int64_t*>(p));
    return kIsFlipped ? hn::Xor(v, hn::Set(d, INT64_MIN)) : v;
  }
  template <class F>
  static HWY_INLINE void for_each_double(hn::Vec<D> v, F&& f) {
    f(hn::ConvertTo(DF64(), v));
  }
};
template <>
struct Widen<std::int64_t> : Widen64<std::int64_t> {};
template <>
struct Widen<std::uint64_t> : Widen64<std::uint64_t> {};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace tenscope::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
