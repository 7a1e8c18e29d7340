#include "tenscope/dtype.hpp"

#include <array>

namespace tenscope {
namespace {

struct DTypeTraits {
  std::string_view name;
  std::string_view safetensors;
  std::uint8_t item_size;
  DTypeKind kind;
};

// In the order of the enumeration.
constexpr std::array<DTypeTraits, kDTypeCount> kTraits{{
    {"float64", "F64", 8, DTypeKind::Float},
    {"float32", "F32", 4, DTypeKind::Float},
    {"float16", "F16", 2, DTypeKind::Float},
    {"bfloat16", "BF16", 2, DTypeKind::Float},
    {"float8_e4m3fn", "F8_E4M3", 1, DTypeKind::Float},
    {"float8_e5m2", "F8_E5M2", 1, DTypeKind::Float},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ", 1, DTypeKind::Float},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ", 1, DTypeKind::Float},
    {"int64", "I64", 8, DTypeKind::SignedInt},
    {"int32", "I32", 4, DTypeKind::SignedInt},
    {"int16", "I16", 2, DTypeKind::SignedInt},
    {"int8", "I8", 1, DTypeKind::SignedInt},
    {"uint64", "U64", 8, DTypeKind::UnsignedInt},
    {"uint32", "U32", 4, DTypeKind::UnsignedInt},
    {"uint16", "U16", 2, DTypeKind::UnsignedInt},
    {"uint8", "U8", 1, DTypeKind::UnsignedInt},
    {"bool", "BOOL", 1, DTypeKind::Bool},
    {"complex64", "C64", 8, DTypeKind::Complex},
    {"complex128", "", 16, DTypeKind::Complex},
}};

const DTypeTraits& traits(DType dtype) noexcept { return kTraits[static_cast<std::size_t>(dtype)]; }

std::optional<DType> find(std::string_view text, std::string_view DTypeTraits::* field) noexcept {
  if (text.empty()) return std::nullopt;
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].*field == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(DType dtype) noexcept { return traits(dtype).name; }
std::optional<DType> parse_dtype(std::string_view name) noexcept { return find(name, &DTypeTraits::name); }
std::string_view safetensors_name(DType dtype) noexcept { return traits(dtype).safetensors; }
std::optional<DType> parse_safetensors_dtype(std::string_view name) noexcept {
  return find(name, &DTypeTraits::safetensors);
}
std::size_t item_size(DType dtype) noexcept { return traits(dtype).item_size; }
DTypeKind kind_of(DType dtype) noexcept { return traits(dtype).kind; }

}  // namespace tenscope
