#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace tenscope {

// A borrowed run of elements: what std::span is, and to and from which it converts, for programs in C++17 as well. One
// type in every language mode, so that a library and a program compiled in different ones agree on their interface.
template <class T>
class Span {
  template <class Container>
  using pointer_in = decltype(std::data(std::declval<Container&>()));
  template <class From>
  static constexpr bool is_same_element = std::is_convertible_v<std::remove_pointer_t<From> (*)[], T (*)[]>;

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using iterator = T*;

  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  // Of a vector, an array, a std::span: what std::data() and std::size() understand.
  template <class Container, class = std::enable_if_t<is_same_element<pointer_in<const Container>>>>
  constexpr Span(const Container& container) noexcept  // NOLINT: implicit
      : data_(std::data(container)), size_(std::size(container)) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t index) const noexcept { return data_[index]; }
  constexpr T& front() const noexcept { return data_[0]; }
  constexpr T& back() const noexcept { return data_[size_ - 1]; }
  constexpr Span subspan(std::size_t from) const noexcept { return {data_ + from, size_ - from}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tenscope
