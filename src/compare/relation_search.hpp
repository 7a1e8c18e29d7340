#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "compare/double_reader.hpp"
#include "compare/evidence.hpp"
#include "compare/move_search.hpp"
#include "compare/relation_values.hpp"
#include "kernels/parallel.hpp"
#include "tenscope/explain.hpp"

namespace tenscope::compare {

// Looks for a simple relation by which b follows from a. Borrows both tensors, of as many elements, neither complex. a
// is seen in b's shape.
class RelationSearch {
 public:
  RelationSearch(const TensorView& a, const TensorView& b);

  // The simplest relation, or one that is not found().
  Explanation find();
  // Less than a relation, where none was found: nearly equal, constant, equal but for a block.
  Explanation find_weaker();

 private:
  static constexpr int kMostPasses = 8;  // over all elements, to verify a candidate

  // Which elements share a scale and an offset: those with the same position on an axis, or of the same row.
  struct Grouping {
    std::int64_t count, inner;  // the group of element i is i / inner % count
    std::string name;           // of one group
    Shape shape;                // in which a number for each group is broadcast
    std::int64_t of(std::int64_t at) const { return at / inner % count; }
  };
  struct Line {  // b = scale a + offset, through the elements with the lowest and the highest a
    double low = INFINITY, high = -INFINITY, at_low = 0, at_high = 0;
    std::int64_t place_low = 0, place_high = 0;  // of several the first
    double scale = 1, offset = 0;
    void add(double x, double y, std::int64_t at = 0) {
      if (x < low) low = x, at_low = y, place_low = at;
      if (x > high) high = x, at_high = y, place_high = at;
    }
    void add(const Line& other);
    void fit();
  };
  struct Scan {  // of a range of elements
    double low_a = INFINITY, high_a = -INFINITY, low_b = INFINITY, high_b = -INFINITY;
    Line line;
    double largest_a = 0, largest_b = 0, largest_difference = 0;
    std::int64_t at_largest_b = -1, at_difference = -1, at_other = -1;  // at_other: finite on one side only
    bool is_a_zero = true, is_b_zero = true, is_elementwise = true;
    void add(double x, double y, std::int64_t at);
    void add_block(const double* x, const double* y, std::int64_t begin, std::int64_t size);
    void add(const Scan& other);
  };
  struct Box {  // the smallest that holds some elements
    Shape low, high;
    std::int64_t count = 0;
    void add(std::int64_t at, const Shape& shape);
    void add(const Box& other);
    std::int64_t volume() const;
    std::vector<AxisRange> ranges(const Shape& shape) const;
  };

  void scan();
  static bool fits(double predicted, double y, double tolerance) {
    return std::abs(predicted - y) <= tolerance || predicted == y || (std::isnan(predicted) && std::isnan(y));
  }
  bool fits(double predicted, double y) const { return fits(predicted, y, tolerance_); }
  bool pays(double bits, double most, int fitted) const {
    return bits - fitted * most - search_bits_ >= kEvidenceMargin;
  }
  double per_sample() const { return static_cast<double>(count_) / static_cast<double>(sample_.size()); }

  // Calls f(state, x, y, at) with each pair of elements until it returns false; each chunk has a state of its own, and
  // all are added to `state`. Returns whether f was true of all.
  template <class State, class F>
  bool fold(State& state, const F& f) const {
    std::atomic<bool> is_true = true;
    std::mutex mutex;
    constexpr std::int64_t kChunk = DoubleReader::kBlock * 64;
    kernels::for_each_chunk(count_, kChunk, threads_, [&](int, std::int64_t begin, std::int64_t end) {
      if (!is_true.load(std::memory_order_relaxed)) return;
      alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
      State part;
      for (; begin < end; begin += DoubleReader::kBlock) {
        const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
        reader_a_.read(begin, size, block_a);
        reader_b_.read(begin, size, block_b);
        for (std::int64_t i = 0; i < size; ++i)
          if (!f(part, block_a[i], block_b[i], begin + i)) {
            is_true.store(false, std::memory_order_relaxed);
            return;
          }
      }
      const std::lock_guard lock(mutex);
      state.add(part);
    });
    return is_true;
  }
  struct Nothing {
    void add(const Nothing&) {}
  };
  // Whether b is what `predict` makes of a, position by position: first the sample, then all.
  template <class Predict>
  bool is_b(const Predict& predict) {
    for (const std::int64_t at : sample_)
      if (!fits(predict(a_[at], at), b_[at])) return false;
    return verify(predict);
  }
  // By blocks: first all of one without a branch, then one by one where some are not near.
  template <class Predict>
  bool verify(const Predict& predict) {
    if (passes_-- <= 0) return false;
    std::atomic<bool> is_true = true;
    const double tolerance = tolerance_;
    for_each_block([&](const double* x, const double* y, std::int64_t begin, std::int64_t size) {
      int outside = 0;
      for (std::int64_t i = 0; i < size; ++i) outside += !(std::abs(predict(x[i], begin + i) - y[i]) <= tolerance);
      for (std::int64_t i = 0; i < size && outside > 0; ++i)
        if (!fits(predict(x[i], begin + i), y[i])) is_true.store(false, std::memory_order_relaxed);
      return is_true.load(std::memory_order_relaxed);
    });
    return is_true;
  }
  // Calls f(a's, b's, begin, size) with the elements of each block, by several threads; false ends its chunk.
  template <class F>
  void for_each_block(const F& f) const {
    constexpr std::int64_t kChunk = DoubleReader::kBlock * 64;
    kernels::for_each_chunk(count_, kChunk, threads_, [&](int, std::int64_t begin, std::int64_t end) {
      alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
      for (; begin < end; begin += DoubleReader::kBlock) {
        const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
        reader_a_.read(begin, size, block_a);
        reader_b_.read(begin, size, block_b);
        if (!f(block_a, block_b, begin, size)) return;
      }
    });
  }

  std::int64_t inner(std::size_t axis) const;
  std::string source() const { return is_reshaped_ ? reshaped("a", shape_) : "a"; }
  // The result of floating-point operations, or of integer ones, in b's dtype.
  std::string as_b(const std::string& expression, bool is_wide) const;
  std::string line_text(double scale, double offset) const;
  Explanation said(std::string relation, std::string words, const std::string& expression) const;

  Explanation moved();
  Explanation affine();
  Explanation rounded();
  Explanation rounded_but_for_some();
  Explanation wrapped();
  Explanation dropped_out();
  Explanation grouped();
  Explanation grouped_by(const Grouping& grouping);
  Explanation scaled_by_small_groups(const Grouping& grouping);
  bool may_be_grouped_by(const Grouping& grouping) const;
  Explanation masked();
  Explanation of_rank_one();
  Explanation of_rank_one(std::int64_t rows, std::int64_t columns);
  Explanation quantised();
  Explanation but_for_a_block();

  TensorView view_a_, view_b_;
  Elements a_, b_;
  DoubleReader reader_a_, reader_b_;
  Shape shape_;
  std::int64_t count_;
  int threads_;
  bool is_reshaped_;
  bool is_integer_;
  int precision_a_, precision_b_;
  std::vector<std::int64_t> sample_;
  int passes_ = kMostPasses;

  Scan scan_;
  double tolerance_ = 0, relative_tolerance_ = 0;
  double move_tolerance_ = 0;      // of elements at other positions, which nothing was done to
  bool is_of_same_range_ = false;  // the lowest and the highest elements of a and b are equal
  bool is_close_ = true;           // no element is further away than the tolerance
  bool is_exact_integer_ = true;   // no integer is too large for a double
  double search_bits_ = 0;
  Evidence evidence_;
};

}  // namespace tenscope::compare
