#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tenscope/dtype.hpp"
#include "tenscope/span.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

inline constexpr int kMaxRank = 64;

// A borrowed view of a tensor in host memory. Whatever it points to must stay alive and unchanged while the view is
// used.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  Span<const std::int64_t> shape;
  Span<const std::int64_t> strides;  // in elements, may be zero or negative; empty means C order
  std::string_view device = "cpu";   // where the tensor lives; the bytes here are always readable by the host
};

std::int64_t element_count(Span<const std::int64_t> shape) noexcept;
std::size_t size_bytes(const TensorView& view) noexcept;
bool is_c_order(const TensorView& view) noexcept;

// Throws InvalidArgument for a negative size, a rank above kMaxRank, a product that overflows, strides of another rank,
// or a null pointer with elements behind it.
void validate(const TensorView& view);

template <class T>
struct dtype_of;
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::F64;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct dtype_of<std::int16_t> {
  static constexpr DType value = DType::I16;
};
template <>
struct dtype_of<std::int8_t> {
  static constexpr DType value = DType::I8;
};
template <>
struct dtype_of<std::uint64_t> {
  static constexpr DType value = DType::U64;
};
template <>
struct dtype_of<std::uint32_t> {
  static constexpr DType value = DType::U32;
};
template <>
struct dtype_of<std::uint16_t> {
  static constexpr DType value = DType::U16;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::U8;
};
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::Bool;
};
template <>
struct dtype_of<std::complex<float>> {
  static constexpr DType value = DType::C64;
};
template <>
struct dtype_of<std::complex<double>> {
  static constexpr DType value = DType::C128;
};

// A size or a stride, of whatever integer type.
class Dim {
 public:
  template <class Int, class = std::enable_if_t<std::is_integral_v<Int>>>
  constexpr Dim(Int size) noexcept : size_(static_cast<std::int64_t>(size)) {}  // NOLINT: implicit
  constexpr operator std::int64_t() const noexcept { return size_; }            // NOLINT: implicit

 private:
  std::int64_t size_;
};

template <class Sizes>
using if_sizes = std::enable_if_t<std::is_convertible_v<decltype(*std::data(std::declval<const Sizes&>())), Dim>>;

// A TensorView that holds its own shape, so that it can be made in one expression:
//   run.record("q", tenscope::view(pointer, {batch, heads, tokens, size}));
//   run.record("k", tenscope::view(pointer, sizes, strides));
// Sizes and strides are integers of any type: in braces, a vector, an array, a span. Throws InvalidArgument for a rank
// above kMaxRank or strides of another rank.
class ShapedView {
 public:
  ShapedView(const void* data, DType dtype, std::initializer_list<Dim> shape, std::initializer_list<Dim> strides = {})
      : ShapedView(data, dtype, Span<const Dim>(shape), Span<const Dim>(strides)) {}
  template <class Shape, class Strides = Span<const Dim>, class = if_sizes<Shape>>
  ShapedView(const void* data, DType dtype, const Shape& shape, const Strides& strides = {})
      : data_(data),
        dtype_(dtype),
        rank_(checked_rank(std::size(shape), std::size(strides))),
        has_strides_(std::size(strides) != 0) {
    std::size_t axis = 0;
    for (const Dim size : shape) shape_[axis++] = size;
    axis = 0;
    for (const Dim stride : strides) strides_[axis++] = stride;
  }
  operator TensorView() const noexcept {
    return {data_, dtype_, {shape_.data(), rank_}, {strides_.data(), has_strides_ ? rank_ : 0}, "cpu"};
  }

 private:
  static std::size_t checked_rank(std::size_t sizes, std::size_t strides);

  const void* data_;
  DType dtype_;
  std::size_t rank_;
  bool has_strides_;
  std::array<std::int64_t, kMaxRank> shape_;
  std::array<std::int64_t, kMaxRank> strides_;
};

template <class T>
ShapedView view(const T* data, std::initializer_list<Dim> shape, std::initializer_list<Dim> strides = {}) {
  return ShapedView(data, dtype_of<T>::value, shape, strides);
}
template <class T, class Shape, class Strides = Span<const Dim>, class = if_sizes<Shape>>
ShapedView view(const T* data, const Shape& shape, const Strides& strides = {}) {
  return ShapedView(data, dtype_of<T>::value, shape, strides);
}
inline ShapedView view(const void* data, DType dtype, std::initializer_list<Dim> shape,
                       std::initializer_list<Dim> strides = {}) {
  return ShapedView(data, dtype, shape, strides);
}
template <class Shape, class Strides = Span<const Dim>, class = if_sizes<Shape>>
ShapedView view(const void* data, DType dtype, const Shape& shape, const Strides& strides = {}) {
  return ShapedView(data, dtype, shape, strides);
}

}  // namespace tenscope
#pragma GCC visibility pop
