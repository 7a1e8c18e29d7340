#include "compare/mask.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "compare/double_reader.hpp"
#include "compare/shape.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

struct Mask {
  std::vector<bool> allowed;
  Shape shape;
  bool is_bool = false;  // True may mean allowed or forbidden
};

std::optional<Mask> read_mask(const TensorView& view) {
  const DoubleReader reader(view);
  const DTypeKind kind = kind_of(view.dtype);
  if (kind == DTypeKind::Complex || reader.count() > thresholds::kMaskElements) return std::nullopt;
  Mask mask{.allowed = {}, .shape = Shape(view.shape.begin(), view.shape.end()), .is_bool = kind == DTypeKind::Bool};
  mask.allowed.reserve(static_cast<std::size_t>(reader.count()));
  double values[DoubleReader::kBlock];
  for (std::int64_t begin = 0; begin < reader.count(); begin += DoubleReader::kBlock) {
    const std::int64_t size = std::min(DoubleReader::kBlock, reader.count() - begin);
    reader.read(begin, size, values);
    for (std::int64_t i = 0; i < size; ++i) {
      const double value = values[i];
      const bool is_added = kind == DTypeKind::Float;
      const bool is_one_of_two = value == 0 || (is_added ? value <= thresholds::kMasked : value == 1);
      if (!is_one_of_two) return std::nullopt;
      mask.allowed.push_back(is_added == (value == 0));
    }
  }
  return mask;
}

// For each axis of `common` the distance between neighbours in a tensor of that shape, 0 where it is repeated.
Shape strides(const Shape& shape, const Shape& common) {
  Shape result(common.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = shape.size() - 1 - i;
    if (shape[axis] != 1) result[common.size() - 1 - i] = stride;
    stride *= shape[axis];
  }
  return result;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape common(std::max(a.size(), b.size()), 1);
  std::int64_t count = 1;
  for (std::size_t i = 0; i < common.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    common[common.size() - 1 - i] = x == 1 ? y : x;
    count *= common[common.size() - 1 - i];
    if (count > thresholds::kMaskElements) return std::nullopt;
  }
  return common;
}

bool agree(const Mask& a, const Mask& b, const Shape& common, bool is_inverted) {
  const Shape step_a = strides(a.shape, common), step_b = strides(b.shape, common);
  Shape index(common.size(), 0);
  std::int64_t at_a = 0, at_b = 0;
  while (true) {
    if ((a.allowed[static_cast<std::size_t>(at_a)] == b.allowed[static_cast<std::size_t>(at_b)]) == is_inverted)
      return false;
    std::size_t axis = common.size();
    while (axis > 0) {
      --axis;
      at_a += step_a[axis];
      at_b += step_b[axis];
      if (++index[axis] < common[axis]) break;
      at_a -= step_a[axis] * common[axis];
      at_b -= step_b[axis] * common[axis];
      index[axis] = 0;
      if (axis == 0) return true;
    }
    if (common.empty()) return true;
  }
}

}  // namespace

bool is_same_mask(const TensorView& a, const TensorView& b) {
  std::optional<Mask> x = read_mask(a), y = read_mask(b);
  if (!x || !y || x->allowed.empty() || y->allowed.empty()) return false;
  if (without_ones(x->shape) == without_ones(y->shape)) x->shape = y->shape = without_ones(x->shape);
  const std::optional<Shape> common = broadcast(x->shape, y->shape);
  if (!common) return false;
  return agree(*x, *y, *common, false) || (x->is_bool != y->is_bool && agree(*x, *y, *common, true));
}

}  // namespace tenscope::compare
