#include "format/npz.hpp"

#include <fmt/format.h>

#include "format/npy.hpp"
#include "format/zip.hpp"

namespace tenscope {

Value read_npz(const Source& source, const LoadOptions& options) {
  const ZipReader zip(source, options);
  Budget budget(options, source.size());
  Dict dict;
  for (auto& entry : zip.entries()) {
    std::string_view name = entry.name;
    if (!name.ends_with(".npy")) source.unsupported(entry.header_at, fmt::format("zip entry '{}' is no .npy", name));
    name.remove_suffix(4);
    const Source npy = zip.open(entry, budget, ZipReader::Check::IfCheap);
    dict.entries.emplace_back(std::string(name), read_npy(npy, budget));
  }
  return dict;
}

Tensor as_tensor(const Value& value, std::string_view format) {
  if (auto* tensor = value.get_if<Tensor>()) return *tensor;
  if (auto* truth = value.get_if<bool>(); truth != nullptr) return Tensor::copy_of({truth, DType::Bool, {}, {}});
  if (auto* number = value.get_if<std::int64_t>()) return Tensor::copy_of({number, DType::I64, {}, {}});
  if (auto* number = value.get_if<double>()) return Tensor::copy_of({number, DType::F64, {}, {}});
  if (auto* number = value.get_if<std::complex<double>>()) return Tensor::copy_of({number, DType::C128, {}, {}});
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("cannot write {}: a {} is neither a tensor nor a number", format, to_string(value.kind())));
}

void write_npz(OutputFile& file, const Value& value, bool compress) {
  auto* dict = value.get_if<Dict>();
  if (!dict) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("cannot write .npz: a dict of tensors is needed, not a {}: {}",
                                                        to_string(value.kind()), file.path().string()));
  }
  ZipWriter zip(file);
  for (auto& [name, item] : dict->entries) {
    auto* text = name.get_if<std::string>();
    if (!text)
      throw Error(ErrorCode::InvalidArgument, "cannot write .npz: its names must be text: " + file.path().string());
    const Tensor tensor = as_tensor(item, ".npz");
    std::vector<std::int64_t> shape;
    zip.add(*text + ".npy", npy_header(tensor.view()), npy_elements(tensor.view(), shape), compress);
  }
  zip.finish();
}

}  // namespace tenscope
