#include "kernels/sketch.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/blocks.hpp"
#include "kernels/sketch_scalar.hpp"

namespace tenscope::kernels {

bool PartOf::fits(std::span<const std::int64_t> shape) const noexcept {
  if (whole.empty() && offset.empty()) return true;
  if (whole.size() != shape.size() || offset.size() != shape.size() || shape.size() > kMaxRank) return false;
  std::int64_t size = 2;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (offset[axis] < 0 || offset[axis] > whole[axis] || shape[axis] > whole[axis] - offset[axis]) return false;
    if (__builtin_mul_overflow(size, std::max<std::int64_t>(1, whole[axis]), &size)) return false;
  }
  return true;
}

SketchBuilder::SketchBuilder(DType dtype, std::span<const std::int64_t> shape, const PartOf& part) noexcept
    : table_(sketch_table()),
      dtype_(dtype),
      parts_(kind_of(dtype) == DTypeKind::Complex ? 2 : 1),
      run_(std::max<std::int64_t>(1, element_count(shape))) {
  if (part.whole.empty()) return;
  std::int64_t stride = 1;
  run_ = 1;
  bool is_run = true;
  rank_ = shape.size();
  for (std::size_t axis = rank_; axis-- > 0;) {
    start_ += part.offset[axis] * stride;
    if (is_run) {
      run_ *= std::max<std::int64_t>(1, shape[axis]);
      is_run = shape[axis] == part.whole[axis];
      rank_ = axis;
    }
    shape_[axis] = shape[axis];
    strides_[axis] = stride;
    stride *= part.whole[axis];
  }
}

// Of an element's first component, in the whole.
std::int64_t SketchBuilder::index_of(std::int64_t element) const noexcept {
  std::int64_t rest = element / run_, index = start_ + element % run_;
  for (std::size_t axis = rank_; axis-- > 0; rest /= shape_[axis]) index += rest % shape_[axis] * strides_[axis];
  return index * parts_;
}

std::int64_t SketchBuilder::whole_blocks_at(std::int64_t begin, std::int64_t count) const noexcept {
  if (count * parts_ % kSketchBlock != 0 || count > run_ - begin % run_) return -1;
  const std::int64_t index = index_of(begin);
  return index % kSketchBlock == 0 ? index / kSketchBlock : -1;
}

void SketchBuilder::add(std::int64_t begin, std::int64_t count, const std::byte* bytes, bool are_finite) noexcept {
  add_blocks_ = (are_finite ? table_.add_finite : table_.add_any)[static_cast<std::size_t>(dtype_)];
  const auto item = static_cast<std::int64_t>(item_size(dtype_));
  while (count > 0) {
    const std::int64_t now = std::min(count, run_ - begin % run_);
    add_run(index_of(begin), now * parts_, bytes);
    begin += now;
    count -= now;
    bytes += now * item;
  }
}

// Whole blocks as they are; one that is there in part is filled up with zeros, which add nothing.
void SketchBuilder::add_run(std::int64_t index, std::int64_t count, const std::byte* bytes) noexcept {
  const std::size_t item = item_size(dtype_) / static_cast<std::size_t>(parts_);
  while (count > 0) {
    const std::int64_t block = index / kSketchBlock, skip = index % kSketchBlock;
    std::int64_t now = count - count % kSketchBlock;
    if (skip == 0 && now > 0) {
      add_blocks_(sketch_.sums.data(), block, now / kSketchBlock, bytes);
    } else {
      now = std::min(count, kSketchBlock - skip);
      alignas(64) std::byte filled[kSketchBlock * sizeof(double)];
      std::memset(filled, 0, kSketchBlock * item);
      std::memcpy(filled + static_cast<std::size_t>(skip) * item, bytes, static_cast<std::size_t>(now) * item);
      add_blocks_(sketch_.sums.data(), block, 1, filled);
    }
    index += now;
    count -= now;
    bytes += static_cast<std::size_t>(now) * item;
  }
}

Sketch sketch(const TensorView& view, const PartOf& part) {
  SketchBuilder builder(view.dtype, view.shape, part);
  for_each_block(ElementReader(view), 0, [&](std::int64_t begin, std::int64_t count, const std::byte* bytes) {
    builder.add(begin, count, bytes);
  });
  return builder.finish();
}

}  // namespace tenscope::kernels
