#include "format/pickle_globals.hpp"

#include <array>
#include <string>
#include <unordered_map>

namespace tenscope {
namespace {

using enum GlobalKind;

constexpr Global kGlobals[] = {
    {"collections.OrderedDict", OrderedDict},
    {"collections.defaultdict", DefaultDict},
    {"collections.Counter", Counter},
    {"builtins.set", Set},
    {"builtins.frozenset", FrozenSet},
    {"builtins.bytes", Bytes},
    {"builtins.bytearray", ByteArray},
    {"builtins.complex", Complex},
    {"_codecs.encode", Encode},
    {"copyreg._reconstructor", Reconstructor},

    {"builtins.slice", Kept},
    {"builtins.range", Kept},
    {"datetime.date", Kept},
    {"datetime.datetime", Kept},
    {"datetime.time", Kept},
    {"datetime.timedelta", Kept},
    {"datetime.timezone", Kept},
    {"decimal.Decimal", Kept},
    {"fractions.Fraction", Kept},
    {"pathlib.Path", Kept},
    {"pathlib.PosixPath", Kept},
    {"pathlib.PurePosixPath", Kept},
    {"pathlib.WindowsPath", Kept},
    {"pathlib.PureWindowsPath", Kept},
    {"pathlib._local.PosixPath", Kept},
    {"pathlib._local.PurePosixPath", Kept},
    {"argparse.Namespace", Kept},
    {"types.SimpleNamespace", Kept},
    {"torch.Size", Kept},
    {"torch.device", Kept},
    {"torch.serialization._get_layout", Kept},

    {"builtins.object", KeptConstant},
    {"builtins.int", KeptConstant},
    {"builtins.float", KeptConstant},
    {"builtins.bool", KeptConstant},
    {"builtins.str", KeptConstant},
    {"builtins.list", KeptConstant},
    {"builtins.dict", KeptConstant},
    {"builtins.tuple", KeptConstant},

    {"numpy.ndarray", NumpyArray},
    {"numpy.dtype", GlobalKind::NumpyDType},
    {"numpy._core.multiarray._reconstruct", NumpyReconstruct},
    {"numpy._core.multiarray.scalar", NumpyScalar},
    {"numpy._core.numeric._frombuffer", NumpyFromBuffer},
    {"ml_dtypes.bfloat16", NumpyType, DType::BF16},
    {"ml_dtypes.float8_e4m3fn", NumpyType, DType::F8E4M3},
    {"ml_dtypes.float8_e5m2", NumpyType, DType::F8E5M2},
    {"ml_dtypes.float8_e4m3fnuz", NumpyType, DType::F8E4M3Fnuz},
    {"ml_dtypes.float8_e5m2fnuz", NumpyType, DType::F8E5M2Fnuz},

    {"torch.Tensor", TorchTensor},
    {"torch._tensor.Tensor", TorchTensor},
    {"torch.nn.parameter.Buffer", TorchTensor},
    {"torch.nn.parameter.Parameter", TorchParameter},
    {"torch.storage.UntypedStorage", TorchUntypedStorage},
    {"torch.UntypedStorage", TorchUntypedStorage},
    {"torch._utils._rebuild_tensor", RebuildTensor},
    {"torch._utils._rebuild_tensor_v2", RebuildTensorV2},
    {"torch._utils._rebuild_tensor_v3", RebuildTensorV3},
    {"torch._utils._rebuild_parameter", RebuildParameter},
    {"torch._utils._rebuild_parameter_with_state", RebuildParameter},
    {"torch._utils._rebuild_device_tensor_from_numpy", RebuildOnDevice},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", RebuildOnDevice},
    {"torch._tensor._rebuild_from_type_v2", RebuildFromType},
    {"torch.storage._load_from_bytes", LoadFromBytes},
    {"torch._utils._rebuild_sparse_tensor", Refused, {}, "a sparse tensor"},
    {"torch._utils._rebuild_sparse_csr_tensor", Refused, {}, "a sparse tensor"},
    {"torch._utils._rebuild_qtensor", Refused, {}, "a quantised tensor"},
    {"torch._utils._rebuild_nested_tensor", Refused, {}, "a nested tensor"},
    {"torch._utils._rebuild_meta_tensor_no_storage", Refused, {}, "a meta tensor, which has no data"},
    {"torch._utils._rebuild_wrapper_subclass", Refused, {}, "a tensor subclass without data"},
    {"torch.jit._pickle.build_intlist", Refused, {}, "a TorchScript archive"},
};

struct TorchName {
  DType dtype;
  std::string_view storage;
};
constexpr std::array<TorchName, 12> kTorchStorages{{{DType::F64, "DoubleStorage"},
                                                    {DType::F32, "FloatStorage"},
                                                    {DType::F16, "HalfStorage"},
                                                    {DType::BF16, "BFloat16Storage"},
                                                    {DType::I64, "LongStorage"},
                                                    {DType::I32, "IntStorage"},
                                                    {DType::I16, "ShortStorage"},
                                                    {DType::I8, "CharStorage"},
                                                    {DType::U8, "ByteStorage"},
                                                    {DType::Bool, "BoolStorage"},
                                                    {DType::C64, "ComplexFloatStorage"},
                                                    {DType::C128, "ComplexDoubleStorage"}}};

using GlobalTable = std::unordered_map<std::string, Global>;

GlobalTable make_table() {
  GlobalTable table;
  const auto add = [&table](Global global) {
    const auto [place, is_new] = table.emplace(std::string(global.name), global);
    place->second.name = place->first;
  };
  for (auto& global : kGlobals) add(global);
  for (auto& [dtype, name] : kTorchStorages) {
    for (const char* module : {"torch.", "torch.cuda."}) {
      const std::string full = module + std::string(name);
      add({full, TorchStorage, dtype});
    }
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string full = "torch." + std::string(to_string(dtype));
    add({full, TorchDType, dtype});
  }
  return table;
}

}  // namespace

const Global* find_global(std::string_view module, std::string_view name) {
  static const GlobalTable table = make_table();
  if (module.size() + name.size() > 200) return nullptr;
  std::string full;
  if (module == "__builtin__") {
    full = "builtins";
    if (name == "xrange") name = "range";
    if (name == "unicode") name = "str";
  } else if (module == "copy_reg") {
    full = "copyreg";
  } else if (module.starts_with("numpy.core.")) {
    full = "numpy._core." + std::string(module.substr(11));
  } else {
    full = module;
  }
  full += '.';
  full += name;
  const auto found = table.find(full);
  return found == table.end() ? nullptr : &found->second;
}

std::string_view torch_storage_name(DType dtype) noexcept {
  for (auto& [known, name] : kTorchStorages) {
    if (known == dtype) return name;
  }
  return {};
}

}  // namespace tenscope
