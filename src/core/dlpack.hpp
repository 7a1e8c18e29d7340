#pragma once

#include <cstdint>
#include <optional>

#include "tenscope/dtype.hpp"

// The binary interface of DLPack 1.x that tensors are exchanged by, declared here from its public specification so that
// no framework's headers are needed: https://dmlc.github.io/dlpack/latest/
namespace tenscope::dlpack {

struct Version {
  std::uint32_t major, minor;
};

enum DeviceType : std::int32_t {
  kCpu = 1,
  kCuda = 2,
  kCudaHost = 3,
  kMetal = 8,
  kRocm = 10,
  kRocmHost = 11,
  kCudaManaged = 13
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3Fn = 10,
  kFloat8E4M3Fnuz = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2Fnuz = 13,
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null means C order (before 1.2)
  std::uint64_t byte_offset;
};

struct ManagedTensor {  // capsule "dltensor"
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct ManagedTensorVersioned {  // capsule "dltensor_versioned"
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// Behind a type's __dlpack_c_exchange_api__, capsule "dlpack_exchange_api".
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* managed_tensor_allocator;
  int (*managed_from)(void* object, ManagedTensorVersioned** out);
  int (*managed_to)(ManagedTensorVersioned* tensor, void** object);
  int (*tensor_from)(void* object, Tensor* out);  // may be null
  int (*current_work_stream)(DeviceType type, std::int32_t id, void** stream);
};

std::optional<DType> dtype_of(const DataType& type) noexcept;
bool is_on_host(const Device& device) noexcept;

}  // namespace tenscope::dlpack
