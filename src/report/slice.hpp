#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tenscope/tensor_view.hpp"

namespace tenscope::report {

// A part of a tensor, as NumPy's basic indexing gives it. Borrows the bytes of the view it was cut from.
class Slice {
 public:
  // `text` is what would stand between the brackets: "0, :, 3:7", "-1", "..., ::2". Throws InvalidArgument.
  Slice(const TensorView& view, std::string_view text);

  TensorView view() const noexcept { return {data_, dtype_, shape_, strides_, device_}; }

 private:
  const void* data_;
  DType dtype_;
  std::string_view device_;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
};

}  // namespace tenscope::report
