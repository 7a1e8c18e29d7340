#pragma once

#include <cstdint>
#include <vector>

namespace tenscope::compare {

using Shape = std::vector<std::int64_t>;

inline Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Of C order, in elements.
inline Shape c_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  return strides;
}

}  // namespace tenscope::compare
