#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/compare.hpp"

namespace tenscope::kernels {

// Counts, for every index of every axis, the mismatches in its slice. Works along runs of the last axis, so that a long
// run costs a sum and one addition per axis.
class AxisCounter {
 public:
  explicit AxisCounter(std::span<const std::int64_t> shape) : shape_(shape.begin(), shape.end()) {
    for (auto size : shape) {
      AxisMismatches axis;
      axis.size = size;
      axis.bin_width = std::max<std::int64_t>(1, (size + kMaxAxisBins - 1) / kMaxAxisBins);
      const auto bins = static_cast<std::size_t>((size + axis.bin_width - 1) / axis.bin_width);
      axis.count.resize(bins);
      if (axis.bin_width > 1) {
        axis.low.assign(bins, size);
        axis.high.assign(bins, -1);
      }
      axes_.push_back(std::move(axis));
    }
  }

  // Flags (0 or 1) of the elements [begin, begin + count) in C order. Returns how many are set.
  std::int64_t add(std::int64_t begin, std::int64_t count, const std::uint8_t* flags) {
    if (shape_.empty()) return std::accumulate(flags, flags + count, std::int64_t{0});
    std::array<std::int64_t, kMaxRank> index;
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      index[axis] = begin % shape_[axis];
      begin /= shape_[axis];
    }
    const std::size_t last = shape_.size() - 1;
    std::int64_t total = 0;
    while (count > 0) {
      const std::int64_t run = std::min(count, shape_[last] - index[last]);
      const std::int64_t in_run = add_run(axes_[last], index[last], run, flags);
      if (in_run > 0) {
        for (std::size_t axis = 0; axis < last; ++axis) add_to_bin(axes_[axis], index[axis], index[axis], in_run);
      }
      total += in_run;
      flags += run;
      count -= run;
      index[last] += run;
      for (std::size_t axis = last; axis > 0 && index[axis] == shape_[axis]; --axis) {
        index[axis] = 0;
        ++index[axis - 1];
      }
    }
    return total;
  }

  void merge(const AxisCounter& other) {
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      const AxisMismatches& from = other.axes_[axis];
      for (std::size_t bin = 0; bin < from.count.size(); ++bin) {
        axes_[axis].count[bin] += from.count[bin];
        if (from.bin_width == 1) continue;
        axes_[axis].low[bin] = std::min(axes_[axis].low[bin], from.low[bin]);
        axes_[axis].high[bin] = std::max(axes_[axis].high[bin], from.high[bin]);
      }
    }
  }

  std::vector<AxisMismatches> take() { return std::move(axes_); }

 private:
  static void add_to_bin(AxisMismatches& axis, std::int64_t low, std::int64_t high, std::int64_t count) {
    const auto bin = static_cast<std::size_t>(axis.bin_width == 1 ? low : low / axis.bin_width);
    axis.count[bin] += count;
    if (axis.bin_width == 1) return;
    axis.low[bin] = std::min(axis.low[bin], low);
    axis.high[bin] = std::max(axis.high[bin], high);
  }

  static std::int64_t add_run(AxisMismatches& axis, std::int64_t first, std::int64_t run, const std::uint8_t* flags) {
    std::int64_t total = 0;
    if (axis.bin_width == 1) {
      for (std::int64_t i = 0; i < run; ++i) {
        axis.count[static_cast<std::size_t>(first + i)] += flags[i];
        total += flags[i];
      }
      return total;
    }
    for (std::int64_t i = 0; i < run;) {
      const std::int64_t end = std::min(run, ((first + i) / axis.bin_width + 1) * axis.bin_width - first);
      const std::int64_t in_bin = std::accumulate(flags + i, flags + end, std::int64_t{0});
      if (in_bin > 0) {
        const auto* set =
            static_cast<const std::uint8_t*>(std::memchr(flags + i, 1, static_cast<std::size_t>(end - i)));
        std::int64_t back = end - 1;
        while (flags[back] == 0) --back;
        add_to_bin(axis, first + (set - flags), first + back, in_bin);
      }
      total += in_bin;
      i = end;
    }
    return total;
  }

  std::vector<std::int64_t> shape_;
  std::vector<AxisMismatches> axes_;
};

}  // namespace tenscope::kernels
