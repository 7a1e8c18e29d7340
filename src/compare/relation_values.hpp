#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/element.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// A real tensor's elements as doubles, by their position in C order, whatever the strides. Borrows the tensor.
class Elements {
 public:
  explicit Elements(const TensorView& view)
      : data_(static_cast<const std::byte*>(view.data)), shape_(view.shape.begin(), view.shape.end()) {
    const auto item = static_cast<std::int64_t>(item_size(view.dtype));
    strides_.assign(shape_.size(), item);
    for (std::size_t k = shape_.size(); k-- > 1;) strides_[k - 1] = strides_[k] * shape_[k];
    is_plain_ = is_c_order(view);
    if (!is_plain_)
      for (std::size_t k = 0; k < shape_.size(); ++k) strides_[k] = view.strides[k] * item;
    item_ = item;
    load_ = kernels::visit_dtype(view.dtype, [](auto tag) -> Load {
      using T = decltype(tag);
      if constexpr (kernels::kIsComplex<T>)
        return nullptr;
      else
        return [](const std::byte* bytes) { return kernels::to_double(kernels::load<T>(bytes)); };
    });
  }

  double operator[](std::int64_t at) const {
    if (is_plain_) return load_(data_ + at * item_);
    std::int64_t offset = 0;
    for (std::size_t k = shape_.size(); k-- > 0; at /= shape_[k]) offset += at % shape_[k] * strides_[k];
    return load_(data_ + offset);
  }

 private:
  using Load = double (*)(const std::byte*);

  const std::byte* data_;
  std::vector<std::int64_t> shape_, strides_;  // strides in bytes
  std::int64_t item_ = 0;
  bool is_plain_ = true;
  Load load_ = nullptr;
};

// A floating-point format, as far as rounding to it goes.
struct FloatFormat {
  const char* name;
  int precision;     // bits of the mantissa, the leading one included
  int min_exponent;  // of the smallest normal number
  double largest;
  double smallest_normal;
  double room;  // added to a smaller number and taken away again, it leaves a multiple of the smallest number
};

constexpr FloatFormat float_format(const char* name, int precision, int min_exponent, double largest) {
  FloatFormat format{name, precision, min_exponent, largest, 1, 1.5 * 0x1p53};
  for (int i = min_exponent; i < 0; ++i) format.smallest_normal /= 2, format.room /= 2;
  for (int i = 0; i < precision; ++i) format.room /= 2;
  return format;
}

inline constexpr std::array kFloatFormats = {
    float_format("float8_e5m2", 3, -14, 57344), float_format("float8_e4m3fn", 4, -6, 448),
    float_format("bfloat16", 8, -126, 0x1.FEp127), float_format("float16", 11, -14, 65504),
    float_format("float32", 24, -126, 0x1.FFFFFEp127)};

// x as the format holds it: the nearest, ties to even, subnormal numbers included; infinity beyond its range.
inline double round_to(const FloatFormat& format, double x) {
  const double magnitude = std::abs(x);
  if (!(magnitude <= std::numeric_limits<double>::max())) return x;
  double rounded;
  if (magnitude >= format.smallest_normal) {
    const int shift = 53 - format.precision;
    const auto bits = std::bit_cast<std::uint64_t>(magnitude);
    const std::uint64_t half = (std::uint64_t{1} << (shift - 1)) - 1 + (bits >> shift & 1);
    rounded = std::bit_cast<double>((bits + half) >> shift << shift);
  } else {
    rounded = (magnitude + format.room) - format.room;
  }
  return std::copysign(rounded > format.largest ? INFINITY : rounded, x);
}

}  // namespace tenscope::compare
