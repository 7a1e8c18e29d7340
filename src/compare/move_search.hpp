#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/double_reader.hpp"
#include "compare/evidence.hpp"
#include "compare/numpy_text.hpp"
#include "compare/relation_values.hpp"
#include "compare/shape.hpp"
#include "kernels/parallel.hpp"
#include "tenscope/explain.hpp"

namespace tenscope::compare {

// The finite elements of a tensor.
struct ValueRange {
  double low = INFINITY, high = -INFINITY;
  double largest = 0;           // magnitude
  std::int64_t at_largest = 0;  // the first of that magnitude
  bool is_zero = true;          // every element is
};
ValueRange range_of(const TensorView& view);

// Where b's elements are in a, if they are a's in C order seen through strides: sizes in b's order of axes.
struct Strided {
  Shape sizes, strides;
  std::int64_t offset = 0;
  std::int64_t source(std::int64_t at) const {
    std::int64_t position = offset;
    for (std::size_t k = sizes.size(); k-- > 0; at /= sizes[k]) position += at % sizes[k] * strides[k];
    return position;
  }
};

// Looks for the elements of b at other positions of a: axes permuted, split and merged, flipped, rolled; slices, blocks
// in another order, repeated. The shapes need not be the same; neither tensor is complex. Overview in move_search.cpp.
class MoveSearch {
 public:
  // `b` is the range of b's values.
  MoveSearch(const TensorView& a, const TensorView& b, const ValueRange& range_b);

  Explanation find();
  // Where b stands in a, where find() has found that, and the ranks are the same.
  const std::vector<AxisRange>& part() const { return part_; }

 private:
  static constexpr std::int64_t kMostPlaces = 1024;      // of one value in a
  static constexpr std::int64_t kMostLayouts = 1 << 20;  // that are tried
  static constexpr std::int64_t kMostSlices = 1 << 20;   // that are told apart by their values
  static constexpr int kMostPasses = 8;                  // over all elements, to verify a candidate

  // Shapes of the same rank as which a and b are seen. `is_inserted[k]`: the axis is none of b's own.
  struct Alignment {
    Shape a, b;
    std::vector<bool> is_inserted;
  };

  bool fits(double x, double y) const {
    if (std::abs(x - y) <= tolerance_ + relative_ * std::abs(y)) return true;
    return x == y || (std::isnan(x) && std::isnan(y));
  }
  bool pays(double cost) const { return evidence_.bits - cost >= kEvidenceMargin; }

  template <class From>
  bool agrees_on_sample(const From& from) const {
    return std::all_of(sample_.begin(), sample_.end(),
                       [&](std::int64_t at) { return fits(at_a_[from(at)], at_b_[at]); });
  }
  // Whether f(begin, end) is true of all chunks of [0, count).
  template <class F>
  bool holds_for_all(std::int64_t count, std::int64_t chunk, const F& f) const {
    std::atomic<bool> is_true = true;
    kernels::for_each_chunk(count, chunk, threads_, [&](int, std::int64_t begin, std::int64_t end) {
      if (is_true.load(std::memory_order_relaxed) && !f(begin, end)) is_true.store(false, std::memory_order_relaxed);
    });
    return is_true;
  }
  // Whether b is a at from(i), element by element: for what no view shows.
  template <class From>
  bool verify_by(const From& from) {
    if (passes_-- <= 0) return false;
    return holds_for_all(count_b_, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        if (!fits(at_a_[from(i)], at_b_[i])) return false;
      return true;
    });
  }
  bool are_same(const TensorView& a, const TensorView& b) const;
  bool is_strided(const Strided& strided);
  std::optional<Shape> strides_of(const TensorView& view, const Shape& shape) const;

  Explanation layout();
  Explanation of_permuted_axes();
  Explanation of_split_axes();
  Explanation said_of_axes(const Shape& order, const std::vector<bool>& is_flipped) const;
  Explanation said_of(Strided strided) const;
  std::string rotary_words(const Shape& atoms, const Shape& order) const;

  std::vector<Alignment> alignments() const;
  Explanation shifted(const std::vector<Alignment>& ways);
  Explanation shifted_by(const Alignment& way, std::int64_t place);
  bool verify_shift(const Alignment& way, const Shape& shift);
  std::vector<std::int64_t> places_in_a(double value);

  Explanation ordered(const Alignment& way);
  Explanation ordered_along(const Alignment& way, std::size_t axis);
  Shape order_of(const Alignment& way, std::size_t axis) const;
  bool verify_order(const Alignment& way, std::size_t axis, const Shape& order);

  // `expression` is of a seen as shape_a, and gives b seen as shape_b.
  Explanation said(std::string relation, const std::string& words, const std::string& expression, const Shape& shape_b,
                   std::vector<ExplanationArray> arrays = {}) const;
  std::string source(const Shape& shape_a) const;  // "a", or a reshaped

  TensorView a_, b_;
  Shape shape_a_, shape_b_;
  Elements at_a_, at_b_;
  std::int64_t count_a_, count_b_;
  int threads_;
  ValueRange range_b_;
  std::vector<std::int64_t> sample_;  // positions in b
  double tolerance_ = 0, relative_ = 0;
  const FloatFormat* rounding_ = nullptr;  // b's format, where it is coarser than a's
  Evidence evidence_;
  double search_bits_ = 0;
  int passes_ = kMostPasses;
  std::vector<AxisRange> part_;
};

// What the order of slices is, with `n` of them in a: a slice, flipped, rolled, blocks exchanged, repeated, any other.
// `source` is the expression of a.
struct AxisOrder {
  std::string relation, words, expression;
  double cost = 0;  // what it takes to say it, in bits
  std::vector<ExplanationArray> arrays;
};
AxisOrder say_order(const Shape& order, std::int64_t n, std::size_t axis, const std::string& source);

}  // namespace tenscope::compare
