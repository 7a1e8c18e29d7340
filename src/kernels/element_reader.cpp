#include "kernels/element_reader.hpp"

#include <algorithm>
#include <cstring>

namespace tenscope::kernels {
namespace {

template <std::size_t kSize>
void gather(const std::byte* source, std::int64_t stride, std::int64_t count, std::byte* out) noexcept {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * static_cast<std::int64_t>(kSize), source + i * stride, kSize);
}

void gather(std::size_t item, const std::byte* source, std::int64_t stride, std::int64_t count,
            std::byte* out) noexcept {
  if (stride == static_cast<std::int64_t>(item)) {
    std::memcpy(out, source, static_cast<std::size_t>(count) * item);
    return;
  }
  switch (item) {
    case 1:
      return gather<1>(source, stride, count, out);
    case 2:
      return gather<2>(source, stride, count, out);
    case 4:
      return gather<4>(source, stride, count, out);
    case 8:
      return gather<8>(source, stride, count, out);
    default:
      return gather<16>(source, stride, count, out);
  }
}

}  // namespace

ElementReader::ElementReader(const TensorView& view) noexcept
    : data_(static_cast<const std::byte*>(view.data)),
      item_(tenscope::item_size(view.dtype)),
      count_(element_count(view.shape)),
      is_contiguous_(is_c_order(view)) {
  if (is_contiguous_) return;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    const std::int64_t size = view.shape[axis];
    const std::int64_t stride = view.strides[axis] * static_cast<std::int64_t>(item_);
    if (size == 1) continue;
    if (rank_ > 0 && strides_[rank_ - 1] == stride * size) {
      shape_[rank_ - 1] *= size;
      strides_[rank_ - 1] = stride;
    } else {
      shape_[rank_] = size;
      strides_[rank_++] = stride;
    }
  }
}

const std::byte* ElementReader::read(std::int64_t begin, std::int64_t count, std::byte* scratch) const noexcept {
  if (is_contiguous_) return data_ + begin * static_cast<std::int64_t>(item_);
  std::array<std::int64_t, kMaxRank> index;
  std::int64_t rest = begin;
  const std::byte* source = data_;
  for (std::size_t axis = rank_; axis-- > 0;) {
    index[axis] = rest % shape_[axis];
    rest /= shape_[axis];
    source += index[axis] * strides_[axis];
  }
  const std::size_t inner = rank_ - 1;
  if (strides_[inner] == static_cast<std::int64_t>(item_) && index[inner] + count <= shape_[inner]) return source;

  std::byte* out = scratch;
  for (std::int64_t left = count; left > 0;) {
    const std::int64_t run = std::min(left, shape_[inner] - index[inner]);
    gather(item_, source, strides_[inner], run, out);
    out += run * static_cast<std::int64_t>(item_);
    left -= run;
    index[inner] += run;
    source += run * strides_[inner];
    for (std::size_t axis = inner; axis > 0 && index[axis] == shape_[axis]; --axis) {
      index[axis] = 0;
      source += strides_[axis - 1] - shape_[axis] * strides_[axis];
      ++index[axis - 1];
    }
  }
  return scratch;
}

}  // namespace tenscope::kernels
