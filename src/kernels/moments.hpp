#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tenscope/summary.hpp"

namespace tenscope::kernels {

// Statistics of one block of elements. The moments are taken about a pivot, which is one of the block's own finite
// elements: then (pivot - mean)^2 <= count * variance, so the subtraction in the variance cannot cancel more than
// log2(count) bits.
struct BlockStats {
  std::int64_t count = 0;  // of finite elements
  double pivot = 0;
  double sum = 0;          // of (x - pivot)
  double sum_squares = 0;  // of (x - pivot)^2
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;
  std::int64_t zero = 0;
  std::int64_t subnormal = 0;
  // Of int64, and of uint64 with the top bit flipped, which orders it as int64.
  std::int64_t ordered_min = std::numeric_limits<std::int64_t>::max();
  std::int64_t ordered_max = std::numeric_limits<std::int64_t>::min();
};

// Blocks merged into the statistics of a tensor: the sum compensated (Neumaier), the second moment by Chan's formula.
class Moments {
 public:
  void merge(const BlockStats& block) noexcept {
    nan_ += block.nan;
    pos_inf_ += block.pos_inf;
    neg_inf_ += block.neg_inf;
    zero_ += block.zero;
    subnormal_ += block.subnormal;
    if (block.count == 0) return;
    min_ = std::min(min_, block.min);
    max_ = std::max(max_, block.max);
    ordered_min_ = std::min(ordered_min_, block.ordered_min);
    ordered_max_ = std::max(ordered_max_, block.ordered_max);
    if (count_ == 0) pivot_ = block.pivot;
    const double n = static_cast<double>(count_);
    const double m = static_cast<double>(block.count);
    const double shift = block.sum / m;
    const double offset = block.pivot - pivot_;
    m2_ += std::max(0.0, block.sum_squares - block.sum * shift);
    if (count_ > 0) {
      const double delta = offset + shift - (sum_ + compensation_) / n;
      m2_ += delta * delta * (n * m / (n + m));
    }
    add(offset * m);
    add(block.sum);
    count_ += block.count;
  }

  std::int64_t ordered_min() const noexcept { return ordered_min_; }
  std::int64_t ordered_max() const noexcept { return ordered_max_; }

  // True where squares left the range of double, so that std and l2 need a wider type.
  bool is_out_of_range() const noexcept {
    if (count_ == 0) return false;
    const double largest = std::max(std::abs(min_), std::abs(max_));
    return largest > 1e145 || (largest > 0 && largest < 1e-140);
  }

  Stats finish(std::int64_t element_count) const noexcept {
    Stats stats;
    stats.count = element_count;
    stats.nan = nan_;
    stats.pos_inf = pos_inf_;
    stats.neg_inf = neg_inf_;
    stats.zero = zero_;
    stats.subnormal = subnormal_;
    if (count_ == 0) return stats;
    const double n = static_cast<double>(count_);
    stats.min = min_;
    stats.max = max_;
    stats.abs_max = std::max(std::abs(min_), std::abs(max_));
    stats.mean = std::clamp(pivot_ + (sum_ + compensation_) / n, min_, max_);
    stats.std = std::sqrt(m2_ / n);
    stats.l2 = std::sqrt(m2_ + n * stats.mean * stats.mean);
    return stats;
  }

 private:
  void add(double x) noexcept {
    const double t = sum_ + x;
    compensation_ += std::abs(sum_) >= std::abs(x) ? (sum_ - t) + x : (x - t) + sum_;
    sum_ = t;
  }

  std::int64_t count_ = 0;
  double pivot_ = 0;  // the first block's
  double sum_ = 0;    // of (x - pivot)
  double compensation_ = 0;
  double m2_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  std::int64_t nan_ = 0;
  std::int64_t pos_inf_ = 0;
  std::int64_t neg_inf_ = 0;
  std::int64_t zero_ = 0;
  std::int64_t subnormal_ = 0;
  std::int64_t ordered_min_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t ordered_max_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace tenscope::kernels
