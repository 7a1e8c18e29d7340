#include "tenscope/tensor_view.hpp"

#include <fmt/format.h>

#include "tenscope/error.hpp"

namespace tenscope {

std::int64_t element_count(Span<const std::int64_t> shape) noexcept {
  std::int64_t count = 1;
  for (auto size : shape) count *= size;
  return count;
}

std::size_t size_bytes(const TensorView& view) noexcept {
  return static_cast<std::size_t>(element_count(view.shape)) * item_size(view.dtype);
}

bool is_c_order(const TensorView& view) noexcept {
  if (view.strides.empty()) return true;
  if (element_count(view.shape) == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t axis = view.shape.size(); axis-- > 0;) {
    if (view.shape[axis] == 1) continue;
    if (view.strides[axis] != expected) return false;
    expected *= view.shape[axis];
  }
  return true;
}

void validate(const TensorView& view) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("tensor refused: {}", why));
  };
  if (view.shape.size() > kMaxRank) refuse(fmt::format("rank {} is above {}", view.shape.size(), kMaxRank));
  if (!view.strides.empty() && view.strides.size() != view.shape.size()) {
    refuse(fmt::format("{} strides for rank {}", view.strides.size(), view.shape.size()));
  }
  std::int64_t bytes = static_cast<std::int64_t>(item_size(view.dtype));
  bool is_empty = false;
  for (auto size : view.shape) {
    if (size < 0) refuse(fmt::format("negative size {}", size));
    is_empty |= size == 0;
  }
  for (auto size : view.shape) {
    if (!is_empty && __builtin_mul_overflow(bytes, size, &bytes)) refuse("its size overflows 63 bits");
  }
  if (!is_empty && view.data == nullptr) refuse("no data behind its elements");
}

std::size_t ShapedView::checked_rank(std::size_t sizes, std::size_t strides) {
  if (sizes > kMaxRank) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("tensor refused: rank {} is above {}", sizes, kMaxRank));
  }
  if (strides != 0 && strides != sizes) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("tensor refused: {} strides for rank {}", strides, sizes));
  }
  return sizes;
}

}  // namespace tenscope
