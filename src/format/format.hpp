#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "format/value.hpp"

namespace tenscope {

// Bounds on what a file may ask for. A file past one of them is refused with Corrupt or Unsupported before anything is
// allocated for it.
struct LoadOptions {
  bool map = true;  // large files are mapped; false: read into memory (for files others may truncate meanwhile)
  bool verify_checksums = false;  // of mapped tensor data in .pt and .npz; small records are always verified
  int max_nesting = 200;
  std::uint64_t max_inflated_bytes = 0;  // of all deflated entries; 0: 64 MiB and 200 times the file's size
};

struct SaveOptions {
  bool compress = false;                                      // .npz: deflate
  std::vector<std::pair<std::string, std::string>> metadata;  // .safetensors: __metadata__
};

// Reads a file by its extension (case is ignored): .npy .npz .pt .pth .bin .ckpt .safetensors .gguf .pkl .pickle. Runs
// nothing that is in it. A .npy is a tensor; a .npz, a .safetensors and a .gguf a dict from text to tensors; the others
// any tree. Tensors of a large file are views of its mapping, which lives as long as they do; the mapping is private,
// and must not be truncated by others meanwhile. Throws NotFound, Io, Corrupt, Unsupported, Version, InvalidArgument
// (an unknown extension); the message names file, offset and reason.
Value load(const std::filesystem::path& path, const LoadOptions& options = {});

// Writes a file by its extension, through a temporary file and a rename, so that the old one stays until the new one is
// whole. .npy takes a tensor or a number; .npz and .safetensors a dict from text to tensors; .pt, .pth and .pkl any
// tree. Throws Io, InvalidArgument (a value or an extension the format has no place for), Unsupported (a dtype it
// lacks).
void save(const std::filesystem::path& path, const Value& value, const SaveOptions& options = {});

// True where load knows the extension.
bool is_loadable(const std::filesystem::path& path);

}  // namespace tenscope
