#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tenscope/dtype.hpp"

// The element types that C++ has no name for, as their bits, and the way from a DType to a type.
namespace tenscope::kernels {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
template <DType D>
struct Float8 {
  std::uint8_t bits;
};

inline float to_float(BFloat16 x) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline float to_float(Float16 x) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = x.bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (biased << 23) | (mantissa << 13));
}

// The values of the 256 codes of an 8-bit float with this many mantissa bits and this bias.
constexpr std::array<float, 256> float8_table(int mantissa_bits, int bias, bool has_inf, bool is_fnuz) {
  std::array<float, 256> table{};
  const int exponent_max = (1 << (7 - mantissa_bits)) - 1;
  const int mantissa_max = (1 << mantissa_bits) - 1;
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> mantissa_bits) & exponent_max;
    const int mantissa = code & mantissa_max;
    const bool is_negative = (code & 0x80) != 0;
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + mantissa_max + 1);
    for (int i = (exponent == 0 ? 1 : exponent); i < bias + mantissa_bits; ++i) value *= 0.5F;
    for (int i = bias + mantissa_bits; i < exponent; ++i) value *= 2.0F;
    if (is_fnuz) {
      if (code == 0x80) value = std::numeric_limits<float>::quiet_NaN();
    } else if (has_inf && exponent == exponent_max) {
      value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    } else if (!has_inf && exponent == exponent_max && mantissa == mantissa_max) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
    table[static_cast<std::size_t>(code)] = is_negative ? -value : value;
  }
  return table;
}

template <DType D>
[[gnu::visibility("hidden")]] inline constexpr std::array<float, 256> kFloat8 =
    D == DType::F8E4M3       ? float8_table(3, 7, false, false)
    : D == DType::F8E5M2     ? float8_table(2, 15, true, false)
    : D == DType::F8E4M3Fnuz ? float8_table(3, 8, false, true)
                             : float8_table(2, 16, false, true);
template <DType D>
float to_float(Float8<D> x) noexcept {
  return kFloat8<D>[x.bits];
}

// The smallest normal magnitude of a floating type, 0 for others.
template <class T>
inline constexpr double kMinNormal = 0;
template <>
inline constexpr double kMinNormal<double> = 0x1p-1022;
template <>
inline constexpr double kMinNormal<float> = 0x1p-126;
template <>
inline constexpr double kMinNormal<Float16> = 0x1p-14;
template <>
inline constexpr double kMinNormal<BFloat16> = 0x1p-126;
template <>
inline constexpr double kMinNormal<Float8<DType::F8E4M3>> = 0x1p-6;
template <>
inline constexpr double kMinNormal<Float8<DType::F8E5M2>> = 0x1p-14;
template <>
inline constexpr double kMinNormal<Float8<DType::F8E4M3Fnuz>> = 0x1p-7;
template <>
inline constexpr double kMinNormal<Float8<DType::F8E5M2Fnuz>> = 0x1p-15;

// A byte of a bool tensor: anything but 0 is true.
struct Bool {
  std::uint8_t bits;
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <class T>
inline constexpr bool kIsInteger = std::is_integral_v<T> || std::is_same_v<T, Bool>;

template <class T>
double to_double(T x) noexcept {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(x);
  else if constexpr (std::is_same_v<T, Bool>)
    return x.bits != 0 ? 1.0 : 0.0;
  else
    return static_cast<double>(to_float(x));
}

template <class T>
T load(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Calls f with a value-initialised element type of the dtype: visit_dtype(d, [](auto tag) { using T = decltype(tag);
// ... }).
template <class F>
constexpr decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F64:
      return f(double{});
    case DType::F32:
      return f(float{});
    case DType::F16:
      return f(Float16{});
    case DType::BF16:
      return f(BFloat16{});
    case DType::F8E4M3:
      return f(Float8<DType::F8E4M3>{});
    case DType::F8E5M2:
      return f(Float8<DType::F8E5M2>{});
    case DType::F8E4M3Fnuz:
      return f(Float8<DType::F8E4M3Fnuz>{});
    case DType::F8E5M2Fnuz:
      return f(Float8<DType::F8E5M2Fnuz>{});
    case DType::I64:
      return f(std::int64_t{});
    case DType::I32:
      return f(std::int32_t{});
    case DType::I16:
      return f(std::int16_t{});
    case DType::I8:
      return f(std::int8_t{});
    case DType::U64:
      return f(std::uint64_t{});
    case DType::U32:
      return f(std::uint32_t{});
    case DType::U16:
      return f(std::uint16_t{});
    case DType::U8:
      return f(std::uint8_t{});
    case DType::Bool:
      return f(Bool{});
    case DType::C64:
      return f(std::complex<float>{});
    case DType::C128:
      return f(std::complex<double>{});
  }
  __builtin_unreachable();
}

}  // namespace tenscope::kernels
