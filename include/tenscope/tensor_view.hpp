#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "tenscope/dtype.hpp"

namespace tenscope {

inline constexpr int kMaxRank = 64;

// A borrowed view of a tensor in host memory. Whatever it points to must stay alive and unchanged while the view is
// used.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // in elements, may be zero or negative; empty means C order
  std::string_view device = "cpu";        // where the tensor lives; the bytes here are always readable by the host
};

std::int64_t element_count(std::span<const std::int64_t> shape) noexcept;
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

// A TensorView that holds its own shape, so that it can be made in one expression:
//   run.record("q", tenscope::view(pointer, {batch, heads, tokens, size}));
class ShapedView {
 public:
  ShapedView(const void* data, DType dtype, std::initializer_list<std::int64_t> shape)
      : ShapedView(data, dtype, std::span<const std::int64_t>(shape.begin(), shape.size())) {}
  ShapedView(const void* data, DType dtype, std::span<const std::int64_t> shape,
             std::span<const std::int64_t> strides = {});
  operator TensorView() const noexcept {
    return {data_, dtype_, {shape_.data(), rank_}, {strides_.data(), has_strides_ ? rank_ : 0}, "cpu"};
  }

 private:
  const void* data_;
  DType dtype_;
  std::size_t rank_;
  bool has_strides_;
  std::array<std::int64_t, kMaxRank> shape_;
  std::array<std::int64_t, kMaxRank> strides_;
};

template <class T>
ShapedView view(const T* data, std::initializer_list<std::int64_t> shape) {
  return ShapedView(data, dtype_of<T>::value, shape);
}
inline ShapedView view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return ShapedView(data, dtype, shape);
}

}  // namespace tenscope
