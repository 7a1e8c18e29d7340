#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tenscope/dtype.hpp"

namespace tenscope {

// What a pickle may name. Nothing here is ever imported or called: the reader does what each of them is known to do.
enum class GlobalKind : std::uint8_t {
  Kept,          // a class whose objects are kept as Object: name, arguments, state
  KeptConstant,  // a global that stands for itself: torch.float32, builtins.int
  OrderedDict,
  DefaultDict,
  Counter,
  Set,
  FrozenSet,
  Bytes,
  ByteArray,
  Complex,
  Encode,
  Reconstructor,
  NumpyArray,
  NumpyReconstruct,
  NumpyFromBuffer,
  NumpyScalar,
  NumpyDType,
  NumpyType,
  TorchDType,
  TorchTensor,
  TorchParameter,
  TorchStorage,
  TorchUntypedStorage,
  RebuildTensor,
  RebuildTensorV2,
  RebuildTensorV3,
  RebuildParameter,
  RebuildFromType,
  RebuildOnDevice,
  LoadFromBytes,
  Refused,  // known, and not read: `why` says what it is
};

struct Global {
  std::string_view name;  // "torch._utils._rebuild_tensor_v2"
  GlobalKind kind;
  std::optional<DType> dtype = std::nullopt;  // of a TorchDType, a TorchStorage, a NumpyType
  std::string_view why = {};
};

// The global of that name (Python 2's and NumPy 1's module names are understood too), or null where it is not on the
// list.
const Global* find_global(std::string_view module, std::string_view name);

// The storage class that torch pickles for a dtype: "FloatStorage"; empty for those it pickles as untyped storage.
std::string_view torch_storage_name(DType dtype) noexcept;

}  // namespace tenscope
