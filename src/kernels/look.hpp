#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compare_table.hpp"
#include "kernels/element_reader.hpp"
#include "kernels/look_table.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

// What is looked at: a tensor's elements, or how far a tensor is from its reference at each place.
enum class LookKind : std::uint8_t { Value, Difference, Relative, Ulps };

// Elements of a look in C order, and room to read them.
struct LookBlock {
  alignas(64) double values[kCompareBlock];
  alignas(64) double a[kCompareBlock];  // of a pair: the reference's values, magnitudes if it is complex
  alignas(64) double b[kCompareBlock];
  alignas(64) std::byte a_scratch[kCompareBlock * 16];
  alignas(64) std::byte b_scratch[kCompareBlock * 16];
};

// A tensor, or a pair of them, as one sequence of doubles in C order. Of complex numbers the magnitude, and of a pair
// of them the magnitude of their difference. Differences of int64 and uint64 are exact before they become a double.
//   Difference  b - a
//   Relative    |b - a| / |a|; infinite where a is 0 or infinite and b is not
//   Ulps        steps between neighbouring numbers of the type; infinite where one of them is
// All of them are 0 where the two are equal, and only there: NaN equals NaN, and 0.0 equals -0.0. NaN where one is NaN.
// Borrows both views. Holds no state while reading: several threads may share one look.
class Look {
 public:
  explicit Look(const TensorView& view);
  // Throws InvalidArgument where the shapes differ, and for ULPs of tensors that are not of one floating-point type.
  Look(LookKind kind, const TensorView& a, const TensorView& b);

  LookKind kind() const { return kind_; }
  bool is_pair() const { return kind_ != LookKind::Value; }
  std::int64_t count() const { return a_.count(); }
  std::int64_t bytes() const;
  // The smallest normal magnitude of the elements' type; 0 of integers and of pairs.
  double min_normal() const;
  bool is_integral() const;  // every finite element is a whole number

  // The elements [begin, begin + count), at most kCompareBlock of them.
  void read(std::int64_t begin, std::int64_t count, LookBlock& block) const noexcept;
  // Has the elements [begin, begin + count) on their way to the cache, where they lie together.
  void prefetch(std::int64_t begin, std::int64_t count) const noexcept;

 private:
  void read_wide(const std::byte* a, const std::byte* b, std::int64_t count, LookBlock& block) const noexcept;
  void read_floats(const std::byte* a, const std::byte* b, std::int64_t count, LookBlock& block) const noexcept;

  LookKind kind_;
  ElementReader a_;
  ElementReader b_;
  DType a_dtype_;
  DType b_dtype_;
  const CompareTable& compare_;
  const LookTable& table_;
};

}  // namespace tenscope::kernels
