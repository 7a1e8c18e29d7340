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
};

inline constexpr std::array kFloatFormats = {
    FloatFormat{"float8_e5m2", 3, -14, 57344}, FloatFormat{"float8_e4m3fn", 4, -6, 448},
    FloatFormat{"bfloat16", 8, -126, 0x1.FEp127}, FloatFormat{"float16", 11, -14, 65504},
    FloatFormat{"float32", 24, -126, 0x1.FFFFFEp127}};

// x as the format holds it: the nearest, ties to even, subnormal numbers included; infinity beyond its range.
inline double round_to(const FloatFormat& format, double x) {
  const double magnitude = std::abs(x);
  if (!(magnitude <= std::numeric_limits<double>::max())) return x;
  double rounded;
  if (magnitude >= std::ldexp(1.0, format.min_exponent)) {
    const int shift = 53 - format.precision;
    const auto bits = std::bit_cast<std::uint64_t>(magnitude);
    const std::uint64_t half = (std::uint64_t{1} << (shift - 1)) - 1 + (bits >> shift & 1);
    rounded = std::bit_cast<double>((bits + half) >> shift << shift);
  } else {  // to a multiple of the smallest number: what is added leaves no room for more
    const double room = std::ldexp(1.5, 52 + format.min_exponent - format.precision + 1);
    rounded = (magnitude + room) - room;
  }
  return std::copysign(rounded > format.largest ? INFINITY : rounded, x);
}

}  // namespace tenscope::compare
