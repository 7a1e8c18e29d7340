#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "compare/double_reader.hpp"
#include "compare/relation_values.hpp"

namespace tenscope::compare {

// How much a set of values says that agrees with what a relation predicts. Overview in relation.cpp.
struct Evidence {
  double bits = 0;           // all of them
  double most = 0;           // the one that says most: what a fitted number takes away
  std::size_t distinct = 0;  // values that can be told apart
};
Evidence weigh(std::vector<double> values, double tolerance);

// Looks for a simple relation by which b follows from a. Borrows both tensors, of one shape, neither complex.
class RelationSearch {
 public:
  RelationSearch(const TensorView& a, const TensorView& b);
  std::string find();

 private:
  static constexpr std::int64_t kSample = 512;  // elements by which a candidate is refuted, if it is wrong
  static constexpr double kMargin = 40;         // bits that must be left when everything fitted is paid for
  static constexpr int kMostPasses = 8;         // over all elements, to verify a candidate

  // Which elements share a scale and an offset: those with the same position on an axis, or of the same row.
  struct Grouping {
    std::int64_t count, inner;  // the group of element i is i / inner % count
    std::string name;           // of one group
    std::int64_t of(std::int64_t at) const { return at / inner % count; }
  };
  struct Line {  // b = scale a + offset, through the elements with the lowest and the highest a
    double low = INFINITY, high = -INFINITY, at_low = 0, at_high = 0;
    double scale = 1, offset = 0;
    void add(double x, double y) {
      if (x < low) low = x, at_low = y;
      if (x > high) high = x, at_high = y;
    }
    void fit();
  };

  void scan();
  static bool fits(double predicted, double y, double tolerance);
  bool fits(double predicted, double y) const { return fits(predicted, y, tolerance_); }
  bool pays(double bits, double most, int fitted) const;

  // Whether b is what `predict` makes of a, position by position: first the sample, then all.
  template <class Predict>
  bool is_b(const Predict& predict) {
    for (const std::int64_t at : sample_)
      if (!fits(predict(a_[at], at), b_[at])) return false;
    return verify(predict);
  }
  // Whether the element of b at i is that of a at from(i).
  template <class From>
  bool is_moved(const From& from) {
    return agrees_on_sample(from) && verify_moved(from);
  }
  template <class From>
  bool agrees_on_sample(const From& from) const {
    return std::all_of(sample_.begin(), sample_.end(),
                       [&](std::int64_t at) { return fits(a_[from(at)], b_[at], move_tolerance_); });
  }
  template <class From>
  bool verify_moved(const From& from) {
    if (passes_-- <= 0) return false;
    for (std::int64_t i = 0; i < count_; ++i)
      if (!fits(a_[from(i)], b_[i], move_tolerance_)) return false;
    return true;
  }
  // Calls f with each element of a, of b, and their position, until it returns false.
  template <class F>
  bool for_each(const F& f) const {
    alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
    for (std::int64_t begin = 0; begin < count_; begin += DoubleReader::kBlock) {
      const std::int64_t size = std::min(DoubleReader::kBlock, count_ - begin);
      reader_a_.read(begin, size, block_a);
      reader_b_.read(begin, size, block_b);
      for (std::int64_t i = 0; i < size; ++i)
        if (!f(block_a[i], block_b[i], begin + i)) return false;
    }
    return true;
  }
  template <class Predict>
  bool verify(const Predict& predict) {
    return passes_-- > 0 && for_each([&](double x, double y, std::int64_t at) { return fits(predict(x, at), y); });
  }

  std::int64_t inner(std::size_t axis) const;
  std::string moved();
  std::string affine();
  std::string flipped_or_rolled();
  std::string rolled(std::size_t axis);
  std::string exchanged();
  std::string repeated();
  std::string permuted();
  std::string rounded();
  std::string wrapped();
  std::string dropped_out();
  std::string grouped();
  std::string grouped_by(const Grouping& grouping);
  bool may_be_grouped_by(const Grouping& grouping) const;

  Elements a_, b_;
  DoubleReader reader_a_, reader_b_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_;
  bool is_integer_;
  int precision_a_, precision_b_;  // bits of the mantissa; 0: no floating-point number
  std::vector<std::int64_t> sample_;
  int passes_ = kMostPasses;

  Line line_;  // of all elements
  double tolerance_ = 0, relative_tolerance_ = 0;
  double move_tolerance_ = 0;      // of elements at other positions, which nothing was done to
  bool is_of_same_range_ = false;  // the lowest and the highest elements of a and b are equal
  bool is_a_zero_ = true, is_b_zero_ = true;
  bool is_close_ = true;        // no element is further away than the tolerance
  bool is_elementwise_ = true;  // NaN and infinities are at the same positions
  double largest_difference_ = 0, largest_a_ = 0, largest_b_ = 0;
  double search_bits_ = 0;
  Evidence evidence_, move_evidence_;
};

}  // namespace tenscope::compare
