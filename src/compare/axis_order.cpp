// In which order the slices of an axis were taken, in words and as an expression.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "compare/move_search.hpp"

namespace tenscope::compare {
namespace {

struct Run {  // of slices that follow each other in a
  std::int64_t begin, end;
};

std::vector<Run> runs_of(const Shape& order) {
  std::vector<Run> runs;
  for (const std::int64_t slice : order) {
    if (!runs.empty() && runs.back().end == slice)
      ++runs.back().end;
    else
      runs.push_back({slice, slice + 1});
  }
  return runs;
}

class OrderText {
 public:
  OrderText(const Shape& order, std::int64_t n, std::size_t axis, const std::string& source)
      : order_(order), n_(n), size_(static_cast<std::int64_t>(order.size())), axis_(axis), source_(source) {
    for (std::size_t k = 0; k < axis; ++k) before_ += ":, ";
    choice_ = std::log2(static_cast<double>(std::max<std::int64_t>(n, 2)));
  }

  AxisOrder say() const {
    for (const auto& way : {&OrderText::one, &OrderText::progression, &OrderText::rolled, &OrderText::repeated,
                            &OrderText::exchanged, &OrderText::blocks})
      if (AxisOrder found = (this->*way)(); !found.relation.empty()) return found;
    return any();
  }

 private:
  std::string part(std::int64_t begin, std::int64_t end) const {
    return fmt::format("{}[{}{}:{}]", source_, before_, begin, end);
  }
  bool is_permutation() const {
    if (size_ != n_) return false;
    std::vector<bool> is_seen(static_cast<std::size_t>(n_));
    for (const std::int64_t slice : order_) is_seen[static_cast<std::size_t>(slice)] = true;
    return std::find(is_seen.begin(), is_seen.end(), false) == is_seen.end();
  }

  AxisOrder one() const {
    const std::int64_t slice = order_.front();
    if (n_ == 1 || std::any_of(order_.begin(), order_.end(), [&](std::int64_t x) { return x != slice; })) return {};
    const std::string which = slice == 0 ? "first" : slice == n_ - 1 ? "last" : fmt::format("slice {}", slice);
    return {"repeated",
            fmt::format("each slice of b along axis {} is a's {}", axis_, which),
            fmt::format("np.repeat({}, {}, axis={})", part(slice, slice + 1), size_, axis_),
            choice_,
            {}};
  }

  AxisOrder progression() const {
    if (size_ < 2) return {};
    const std::int64_t first = order_[0], step = order_[1] - order_[0], last = first + step * (size_ - 1);
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (order_[i] != first + step * static_cast<std::int64_t>(i)) return {};
    if (step == 0) return {};
    if (step == -1 && size_ == n_)
      return {"flipped",
              fmt::format("b is a, flipped along axis {}", axis_),
              fmt::format("np.flip({}, {})", source_, axis_),
              0,
              {}};
    const std::int64_t end = last + (step > 0 ? 1 : -1);
    const bool is_to_end = last + step >= n_ || last + step < 0;
    const std::string text = step == 1 ? part(first, end)
                                       : fmt::format("{}[{}{}:{}:{}]", source_, before_,
                                                     step > 0 && first == 0 ? "" : fmt::format("{}", first),
                                                     is_to_end ? "" : fmt::format("{}", end), step);
    return {"slice", fmt::format("b is a slice of a: {}", text), text, 2 * choice_, {}};
  }

  AxisOrder rolled() const {
    if (size_ != n_) return {};
    const std::int64_t from = order_.front();
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (order_[i] != (from + static_cast<std::int64_t>(i)) % n_) return {};
    return {"rolled",
            fmt::format("b is a, rolled by {} along axis {}", n_ - from, axis_),
            fmt::format("np.roll({}, {}, axis={})", source_, n_ - from, axis_),
            choice_,
            {}};
  }

  AxisOrder repeated() const {
    if (size_ <= n_ || size_ % n_ != 0) return {};
    const std::int64_t times = size_ / n_;
    bool is_each = true, is_whole = true;
    for (std::int64_t i = 0; i < size_; ++i) {
      is_each &= order_[static_cast<std::size_t>(i)] == i / times;
      is_whole &= order_[static_cast<std::size_t>(i)] == i % n_;
    }
    if (is_each)
      return {"repeated",
              fmt::format("b is a, each slice along axis {} {} times", axis_, times),
              fmt::format("np.repeat({}, {}, axis={})", source_, times, axis_),
              choice_,
              {}};
    if (is_whole)
      return {"repeated",
              fmt::format("b is a, {} times behind each other along axis {}", times, axis_),
              fmt::format("np.concatenate([{}] * {}, axis={})", source_, times, axis_),
              choice_,
              {}};
    return {};
  }

  std::string joined(const std::vector<Run>& runs) const {
    std::vector<std::string> parts;
    for (const Run& run : runs) parts.push_back(part(run.begin, run.end));
    return fmt::format("np.concatenate([{}], axis={})", fmt::join(parts, ", "), axis_);
  }

  // Two blocks of the same size, and all else where it was.
  AxisOrder exchanged() const {
    if (!is_permutation()) return {};
    std::int64_t first = 0, last = n_ - 1;
    while (order_[static_cast<std::size_t>(first)] == first) ++first;
    while (order_[static_cast<std::size_t>(last)] == last) --last;
    const std::int64_t other = order_[static_cast<std::size_t>(first)], size = last + 1 - other;
    if (other < first + size) return {};
    for (std::int64_t i = first; i <= last; ++i) {
      const std::int64_t from = i < first + size ? i + other - first : i >= other ? i - other + first : i;
      if (order_[static_cast<std::size_t>(i)] != from) return {};
    }
    const auto name = [&](std::int64_t at) {
      return size == 1 ? fmt::format("{}", at) : fmt::format("{}:{}", at, at + size);
    };
    std::vector<Run> runs = {
        {0, first}, {other, other + size}, {first + size, other}, {first, first + size}, {other + size, n_}};
    std::erase_if(runs, [](const Run& run) { return run.begin == run.end; });
    return {"exchanged",
            fmt::format("b is a, with {} {} and {} of axis {} exchanged", size == 1 ? "slices" : "the blocks",
                        name(first), name(other), axis_),
            joined(runs),
            3 * choice_,
            {}};
  }

  // Heads or experts: blocks of one size in another order.
  AxisOrder blocks() const {
    if (!is_permutation()) return {};
    const std::vector<Run> runs = runs_of(order_);
    std::int64_t block = n_;
    for (const Run& run : runs) block = std::gcd(std::gcd(block, run.begin), run.end);
    if (block < 2) return {};
    constexpr std::size_t kMostParts = 16;
    const auto blocks = n_ / block;
    const double cost = std::lgamma(static_cast<double>(blocks) + 1) / std::log(2.0) + choice_;
    AxisOrder found{"permuted",
                    fmt::format("b is a, with the blocks of {} along axis {} in another order", block, axis_),
                    joined(runs),
                    cost,
                    {}};
    if (runs.size() <= kMostParts) return found;
    const AxisOrder plain = any();
    found.expression = plain.expression;
    found.arrays = plain.arrays;
    return found;
  }

  AxisOrder any() const {
    constexpr std::size_t kMostWritten = 32;
    AxisOrder found;
    if (is_permutation()) {
      found.relation = "permuted";
      found.words = fmt::format("b is a, permuted along axis {}", axis_);
      found.cost = std::lgamma(static_cast<double>(n_) + 1) / std::log(2.0);
    } else {
      found.relation = "taken";
      found.words = fmt::format("each slice of b along axis {} is one of a's", axis_);
      found.cost = static_cast<double>(size_) * choice_;
    }
    const bool is_short = order_.size() <= kMostWritten;
    const std::string name = is_short ? fmt::format("[{}]", list_text(order_)) : "order";
    found.expression = fmt::format("np.take({}, {}, axis={})", source_, name, axis_);
    if (!is_short) found.arrays.push_back({"order", {size_}, {order_.begin(), order_.end()}, true});
    return found;
  }

  const Shape& order_;
  std::int64_t n_, size_;
  std::size_t axis_;
  const std::string& source_;
  std::string before_;
  double choice_;  // bits that it takes to name a slice
};

}  // namespace

AxisOrder say_order(const Shape& order, std::int64_t n, std::size_t axis, const std::string& source) {
  return OrderText(order, n, axis, source).say();
}

}  // namespace tenscope::compare
