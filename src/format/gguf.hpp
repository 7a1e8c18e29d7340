#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/source.hpp"
#include "tenscope/quantised.hpp"

namespace tenscope {

// A tensor of a .gguf as it is stored.
struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // in C order: ggml's axes reversed
  std::string_view type;            // "f16", "q4_K"
  std::optional<DType> dtype;       // of plain elements
  std::optional<BlockType> blocks;  // neither: a type that is not read yet
  std::uint64_t at = 0;             // in the file
  std::uint64_t size_bytes = 0;
};

// .gguf, versions 2 and 3, little-endian: magic and counts, metadata (key, type, value), the tensors' descriptions,
// then their data, aligned. No tensor lies over another.
class GgufFile {
 public:
  GgufFile(const Source& source, const LoadOptions& options);

  // Numbers, text (bytes where it is not UTF-8), arrays of numbers as tensors of one axis, other arrays as lists.
  const Dict& metadata() const noexcept { return metadata_; }
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }

  // A view of the file's bytes, or a copy as float32 where they are quantised in blocks. The bytes themselves, each row
  // of blocks as a row of uint8, where the type is not read yet.
  Tensor read(const GgufTensor& tensor) const;

 private:
  Source source_;
  LoadOptions options_;
  Dict metadata_;
  std::vector<GgufTensor> tensors_;
};

// A dict from text to tensors, in the file's order; its attribute `metadata` is a dict, too.
Value read_gguf(const Source& source, const LoadOptions& options);

}  // namespace tenscope
