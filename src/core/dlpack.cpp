#include "core/dlpack.hpp"

namespace tenscope::dlpack {

std::optional<DType> dtype_of(const DataType& type) noexcept {
  if (type.lanes != 1) return std::nullopt;
  const int bits = type.bits;
  switch (type.code) {
    case kInt:
      return bits == 64   ? DType::I64
             : bits == 32 ? DType::I32
             : bits == 16 ? DType::I16
             : bits == 8  ? std::optional(DType::I8)
                          : std::nullopt;
    case kUInt:
      return bits == 64   ? DType::U64
             : bits == 32 ? DType::U32
             : bits == 16 ? DType::U16
             : bits == 8  ? std::optional(DType::U8)
                          : std::nullopt;
    case kFloat:
      return bits == 64 ? DType::F64 : bits == 32 ? DType::F32 : bits == 16 ? std::optional(DType::F16) : std::nullopt;
    case kBfloat:
      return bits == 16 ? std::optional(DType::BF16) : std::nullopt;
    case kComplex:
      return bits == 64 ? DType::C64 : bits == 128 ? std::optional(DType::C128) : std::nullopt;
    case kBool:
      return bits == 8 ? std::optional(DType::Bool) : std::nullopt;
    case kFloat8E4M3Fn:
      return DType::F8E4M3;
    case kFloat8E4M3Fnuz:
      return DType::F8E4M3Fnuz;
    case kFloat8E5M2:
      return DType::F8E5M2;
    case kFloat8E5M2Fnuz:
      return DType::F8E5M2Fnuz;
    default:
      return std::nullopt;
  }
}

bool is_on_host(const Device& device) noexcept {
  return device.type == kCpu || device.type == kCudaHost || device.type == kRocmHost;
}

}  // namespace tenscope::dlpack
