#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace tenscope {

enum class DType : std::uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8E4M3,
  F8E5M2,
  F8E4M3Fnuz,
  F8E5M2Fnuz,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  Bool,
  C64,
  C128,
};

inline constexpr int kDTypeCount = 19;

enum class DTypeKind : std::uint8_t { Float, SignedInt, UnsignedInt, Bool, Complex };

// The name that torch and NumPy users know: "float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex64".
std::string_view to_string(DType dtype) noexcept;
std::optional<DType> parse_dtype(std::string_view name) noexcept;

// The name in a safetensors header: "F32", "BF16", "F8_E4M3". complex128 has none (empty): see docs/format.md.
std::string_view safetensors_name(DType dtype) noexcept;
std::optional<DType> parse_safetensors_dtype(std::string_view name) noexcept;

std::size_t item_size(DType dtype) noexcept;  // in bytes
DTypeKind kind_of(DType dtype) noexcept;

}  // namespace tenscope
#pragma GCC visibility pop
