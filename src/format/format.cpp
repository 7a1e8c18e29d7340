#include "format/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/gguf.hpp"
#include "format/npy.hpp"
#include "format/npz.hpp"
#include "format/output_file.hpp"
#include "format/pickle.hpp"
#include "format/pt.hpp"
#include "format/safetensors.hpp"
#include "format/source.hpp"

namespace tenscope {
namespace {

enum class Format { Npy, Npz, Pt, Safetensors, Gguf, Pickle };

struct Extension {
  std::string_view name;
  Format format;
};
constexpr std::array<Extension, 10> kExtensions{{{".npy", Format::Npy},
                                                 {".npz", Format::Npz},
                                                 {".pt", Format::Pt},
                                                 {".pth", Format::Pt},
                                                 {".bin", Format::Pt},
                                                 {".ckpt", Format::Pt},
                                                 {".safetensors", Format::Safetensors},
                                                 {".gguf", Format::Gguf},
                                                 {".pkl", Format::Pickle},
                                                 {".pickle", Format::Pickle}}};

const Extension* find_extension(const std::filesystem::path& path) {
  std::string name = path.extension().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::ranges::find(kExtensions, name, &Extension::name);
  return found == kExtensions.end() ? nullptr : &*found;
}

const Extension& require_extension(const std::filesystem::path& path, std::string_view what) {
  if (auto* extension = find_extension(path)) return *extension;
  std::string known;
  for (auto& extension : kExtensions) known += fmt::format(" {}", extension.name);
  throw Error(ErrorCode::InvalidArgument, fmt::format("cannot {}: '{}' is none of the extensions{}: {}", what,
                                                      path.extension().string(), known, path.string()));
}

void write_npy(OutputFile& file, const Value& value) {
  const Tensor tensor = as_tensor(value, ".npy");
  const std::string header = npy_header(tensor.view());
  std::vector<std::int64_t> shape;
  file.reserve(header.size() + size_bytes(tensor.view()));
  file.write(header);
  file.write_elements(npy_elements(tensor.view(), shape));
}

}  // namespace

bool is_loadable(const std::filesystem::path& path) { return find_extension(path) != nullptr; }

Value load(const std::filesystem::path& path, const LoadOptions& options) {
  const Extension& extension = require_extension(path, "read");
  const Source source = open_source(path, extension.name, options.map);
  switch (extension.format) {
    case Format::Npz:
      return read_npz(source, options);
    case Format::Pt:
      return read_pt(source, options);
    case Format::Safetensors:
      return read_safetensors(source, options);
    case Format::Gguf:
      return read_gguf(source, options);
    case Format::Pickle:
      return read_pickle(source, options);
    case Format::Npy:
      break;
  }
  Budget budget(options, source.size());
  return read_npy(source, budget);
}

void save(const std::filesystem::path& path, const Value& value, const SaveOptions& options) {
  const Extension& extension = require_extension(path, "write");
  if (extension.format == Format::Gguf)
    throw Error(ErrorCode::Unsupported, fmt::format("cannot write .gguf: it is only read: {}", path.string()));
  OutputFile file(path);
  switch (extension.format) {
    case Format::Npy:
      write_npy(file, value);
      break;
    case Format::Npz:
      write_npz(file, value, options.compress);
      break;
    case Format::Pt:
      write_pt(file, value);
      break;
    case Format::Safetensors:
      write_safetensors(file, value, options.metadata);
      break;
    case Format::Pickle:
      write_pickle(file, value);
      break;
    case Format::Gguf:
      break;
  }
  file.commit();
}

}  // namespace tenscope
