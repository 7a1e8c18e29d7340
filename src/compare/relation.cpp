#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compare/measure.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kMaxElements = 1 << 22;

// Both tensors as doubles, and a candidate for b made from a.
class Relation {
 public:
  Relation(std::vector<double> a, std::vector<double> b, std::span<const std::int64_t> shape)
      : a_(std::move(a)), b_(std::move(b)), shape_(shape.begin(), shape.end()) {
    for (const double x : b_) largest_ = std::max(largest_, std::abs(x));
  }

  std::string find() const {
    if (std::any_of(b_.begin(), b_.end(), [](double x) { return !std::isfinite(x); })) return {};
    for (const auto& search : {&Relation::constant, &Relation::affine, &Relation::reordered, &Relation::rounded})
      if (std::string words = (this->*search)(); !words.empty()) return words;
    return {};
  }

 private:
  bool is_b(const std::function<double(std::size_t)>& candidate) const {
    for (std::size_t i = 0; i < b_.size(); ++i)
      if (!(std::abs(candidate(i) - b_[i]) <= 1e-6 * largest_)) return false;
    return true;
  }

  std::string constant() const {
    if (std::all_of(a_.begin(), a_.end(), [](double x) { return x == 0; })) return "a is all zero";
    if (std::all_of(b_.begin(), b_.end(), [](double x) { return x == 0; })) return "b is all zero";
    return {};
  }

  std::string affine() const {
    const auto [low, high] = std::minmax_element(a_.begin(), a_.end());
    if (*low == *high) return {};
    const double scale =
        (b_[static_cast<std::size_t>(high - a_.begin())] - b_[static_cast<std::size_t>(low - a_.begin())]) /
        (*high - *low);
    const double offset = b_[static_cast<std::size_t>(high - a_.begin())] - scale * *high;
    if (!is_b([&](std::size_t i) { return scale * a_[i] + offset; })) return {};
    if (std::abs(offset) <= 1e-6 * largest_) return fmt::format("b = {:.6g} a", scale);
    if (std::abs(scale - 1) <= 1e-5) return fmt::format("b = a {} {:.6g}", offset < 0 ? '-' : '+', std::abs(offset));
    return fmt::format("b = {:.6g} a {} {:.6g}", scale, offset < 0 ? '-' : '+', std::abs(offset));
  }

  // The position in a of the element that a change along one axis puts at i.
  template <class Move>
  bool is_moved(std::size_t axis, Move move) const {
    std::size_t inner = 1;
    for (std::size_t k = axis + 1; k < shape_.size(); ++k) inner *= static_cast<std::size_t>(shape_[k]);
    const auto size = static_cast<std::size_t>(shape_[axis]);
    return is_b([&](std::size_t i) {
      const std::size_t at = i / inner % size;
      return a_[i + (move(at, size) - at) * inner];
    });
  }

  std::string reordered() const {
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      if (shape_[axis] < 2) continue;
      if (is_moved(axis, [](std::size_t at, std::size_t size) { return size - 1 - at; }))
        return fmt::format("b is a, flipped along axis {}", axis);
      for (std::int64_t shift = 1; shift < std::min<std::int64_t>(shape_[axis], 4096); ++shift)
        if (is_moved(axis, [&](std::size_t at, std::size_t size) {
              return (at + size - static_cast<std::size_t>(shift)) % size;
            }))
          return fmt::format("b is a, rolled by {} along axis {}", shift, axis);
    }
    for (std::size_t x = 0; x < shape_.size(); ++x)
      for (std::size_t y = x + 1; y < shape_.size(); ++y)
        if (shape_[x] == shape_[y] && shape_[x] > 1 && is_transposed(x, y))
          return fmt::format("b is a, with axes {} and {} exchanged", x, y);
    return {};
  }

  bool is_transposed(std::size_t x, std::size_t y) const {
    std::vector<std::size_t> stride(shape_.size(), 1);
    for (std::size_t k = shape_.size() - 1; k-- > 0;)
      stride[k] = stride[k + 1] * static_cast<std::size_t>(shape_[k + 1]);
    const auto size = static_cast<std::size_t>(shape_[x]);
    return is_b([&](std::size_t i) {
      const std::size_t at_x = i / stride[x] % size, at_y = i / stride[y] % size;
      return a_[i + (at_y - at_x) * stride[x] + (at_x - at_y) * stride[y]];
    });
  }

  // b is a, rounded to fewer bits of mantissa.
  std::string rounded() const {
    for (const auto& [name, bits] : {std::pair{"bfloat16", 8}, std::pair{"float16", 11}, std::pair{"float32", 24}}) {
      bool fits = true;
      for (std::size_t i = 0; i < b_.size() && fits; ++i) {
        int exponent = 0;
        const double mantissa = std::frexp(a_[i], &exponent);
        fits = std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits) == b_[i] ||
               std::abs(a_[i]) < 6.2e-5;
      }
      if (fits) return fmt::format("b is a, rounded to {}", name);
    }
    return {};
  }

  std::vector<double> a_, b_;
  std::vector<std::int64_t> shape_;
  double largest_ = 0;
};

std::vector<double> doubles(const TensorView& view) {
  const kernels::ElementReader reader(view);
  std::vector<std::byte> scratch(static_cast<std::size_t>(reader.count()) * reader.item_size());
  std::vector<double> values(static_cast<std::size_t>(reader.count()));
  const std::byte* bytes = reader.read(0, reader.count(), scratch.data());
  kernels::visit_dtype(view.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (!kernels::kIsComplex<T>)
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = kernels::to_double(kernels::load<T>(bytes + i * sizeof(T)));
  });
  return values;
}

}  // namespace

std::string find_relation(const TensorView& a, const TensorView& b) {
  const std::int64_t count = element_count(a.shape);
  if (count == 0 || count > kMaxElements || kind_of(a.dtype) == DTypeKind::Complex ||
      kind_of(b.dtype) == DTypeKind::Complex)
    return {};
  return Relation(doubles(a), doubles(b), a.shape).find();
}

}  // namespace tenscope::compare
