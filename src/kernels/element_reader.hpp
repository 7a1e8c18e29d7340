#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

// Reads a tensor of any strides as if it lay in C order. Axes that lie behind each other in memory are merged, so that
// most tensors are one run. Holds no state while reading: several threads may share one reader.
class ElementReader {
 public:
  explicit ElementReader(const TensorView& view) noexcept;

  // The elements [begin, begin + count) in C order: a pointer into the tensor where they lie together, else into
  // `scratch` (count elements), which is filled with them.
  const std::byte* read(std::int64_t begin, std::int64_t count, std::byte* scratch) const noexcept;

  bool is_contiguous() const noexcept { return is_contiguous_; }
  std::int64_t count() const noexcept { return count_; }
  std::size_t item_size() const noexcept { return item_; }

 private:
  const std::byte* data_;
  std::size_t item_;
  std::int64_t count_;
  bool is_contiguous_;
  std::size_t rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_;
  std::array<std::int64_t, kMaxRank> strides_;  // in bytes
};

}  // namespace tenscope::kernels
