// Relations of elements at the same positions, but for one line through all. Overview in relation.cpp.
#include <fmt/format.h>

#include <limits>

#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;

struct Count {
  double count = 0;
  void add(const Count& other) { count += other.count; }
};

struct Counts {  // of elements that may be dropped, and of those that are
  double zeros = 0, all = 0;
  void add(const Counts& other) { zeros += other.zeros, all += other.all; }
};

}  // namespace

// b is a, rounded to a coarser format: every element exactly. Elements that the format holds as they are say nothing.
// Where b's own format is that one, any b near a agrees with a good chance, and an element says one bit.
Explanation RelationSearch::rounded() {
  if (precision_a_ == 0 || precision_b_ == 0) return {};
  for (const FloatFormat& format : kFloatFormats) {
    if (format.precision >= precision_a_ || format.precision > precision_b_) continue;
    const auto holds = [&](double x, double y) {
      return round_to(format, x) == y || (!std::isfinite(y) && !std::isfinite(round_to(format, x)));
    };
    if (!std::all_of(sample_.begin(), sample_.end(), [&](std::int64_t at) { return holds(a_[at], b_[at]); })) continue;
    if (passes_-- <= 0) return {};
    Count changed;
    const bool is_it = fold(changed, [&](Count& part, double x, double y, std::int64_t) {
      part.count += x != y && std::isfinite(y);
      return holds(x, y);
    });
    const double bits = std::clamp(precision_b_ - format.precision, 1, 16);
    constexpr double kFewestChanged = 8;
    if (!is_it || changed.count < kFewestChanged || !pays(changed.count * bits, bits, 0)) continue;
    const DType dtype = *parse_dtype(format.name);
    const std::string text = cast(source(), dtype);
    return said("rounded", fmt::format("b is a, rounded to {}", format.name),
                dtype == view_b_.dtype ? text : cast(text, view_b_.dtype));
  }
  return {};
}

// The same, but for a few elements, which are named. Which they are is fitted.
Explanation RelationSearch::rounded_but_for_some() {
  constexpr std::size_t kMostOthers = 16, kMostNamed = 3;
  if (precision_a_ == 0 || precision_b_ == 0) return {};
  struct Found {
    double changed = 0;
    std::vector<double> others;  // places of elements that are not what rounding makes
    void add(const Found& other) {
      changed += other.changed;
      others.insert(others.end(), other.others.begin(), other.others.end());
    }
  };
  for (const FloatFormat& format : kFloatFormats) {
    if (format.precision >= precision_a_ || format.precision > precision_b_) continue;
    const auto holds = [&](double x, double y) {
      const double rounded = round_to(format, x);
      return rounded == y || (std::isnan(rounded) && std::isnan(y));
    };
    const auto others = std::count_if(sample_.begin(), sample_.end(), [&](auto at) { return !holds(a_[at], b_[at]); });
    if (static_cast<std::size_t>(others) > kMostOthers || passes_-- <= 0) continue;
    Found found;
    const bool is_it = fold(found, [&](Found& part, double x, double y, std::int64_t at) {
      const bool is_held = holds(x, y);
      part.changed += is_held && x != y && std::isfinite(y);
      if (!is_held) part.others.push_back(static_cast<double>(at));
      return part.others.size() <= kMostOthers;
    });
    const double bits = std::clamp(precision_b_ - format.precision, 1, 16);
    const double cost = static_cast<double>(found.others.size()) * std::log2(static_cast<double>(count_));
    if (!is_it || found.others.empty() || found.others.size() > kMostOthers ||
        !pays(found.changed * bits - cost, bits, 0))
      continue;
    std::ranges::sort(found.others);
    std::string named;
    for (std::size_t k = 0; k < std::min(found.others.size(), kMostNamed); ++k) {
      Shape index(shape_.size());
      auto at = static_cast<std::int64_t>(found.others[k]);
      for (std::size_t axis = shape_.size(); axis-- > 0; at /= shape_[axis]) index[axis] = at % shape_[axis];
      named += fmt::format("{}[{}]", k == 0 ? "" : ", ", list_text(index));
    }
    const std::size_t count = found.others.size();
    const std::string where =
        count == 1 ? named : fmt::format("{} elements: {}{}", count, named, count > kMostNamed ? ", ..." : "");
    const DType dtype = *parse_dtype(format.name);
    const std::string text = cast(source(), dtype);
    Explanation explanation = said("rounded", fmt::format("b is a, rounded to {}, but for {}", format.name, where),
                                   fmt::format("np.where(np.isin(np.arange(b.size).reshape(b.shape), places), b, {})",
                                               dtype == view_b_.dtype ? text : cast(text, view_b_.dtype)));
    explanation.arrays = {{"places", {static_cast<std::int64_t>(count)}, std::move(found.others), true}};
    return explanation;
  }
  return {};
}

// Integers that differ by multiples of the range of a smaller type, into which those of one side fit.
Explanation RelationSearch::wrapped() {
  if (!is_integer_ || is_close_) return {};
  for (const double modulus : {0x1p8, 0x1p16, 0x1p32}) {
    const auto holds = [&](double x, double y) { return std::remainder(y - x, modulus) == 0; };
    if (!std::all_of(sample_.begin(), sample_.end(), [&](std::int64_t at) { return holds(a_[at], b_[at]); })) continue;
    if (passes_-- <= 0) return {};
    struct Rests {
      std::vector<double> values;  // of the elements that differ
      double low_a = INFINITY, high_a = -INFINITY, low_b = INFINITY, high_b = -INFINITY;
      void add(const Rests& other) {
        for (const double value : other.values)
          if (values.size() < 512) values.push_back(value);
        low_a = std::min(low_a, other.low_a), high_a = std::max(high_a, other.high_a);
        low_b = std::min(low_b, other.low_b), high_b = std::max(high_b, other.high_b);
      }
    } rests;
    const bool is_it = fold(rests, [&](Rests& part, double x, double y, std::int64_t) {
      if (x != y && part.values.size() < sample_.size()) part.values.push_back(std::remainder(x, modulus));
      part.low_a = std::min(part.low_a, x), part.high_a = std::max(part.high_a, x);
      part.low_b = std::min(part.low_b, y), part.high_b = std::max(part.high_b, y);
      return holds(x, y);
    });
    const Evidence evidence = weigh(rests.values, 0);
    if (!is_it || !pays(evidence.bits, evidence.most, 0)) continue;
    const auto text = [&](const std::string& from, double low, double high, DType dtype) {
      const double first = low >= 0 && high < modulus                  ? 0
                           : low >= -modulus / 2 && high < modulus / 2 ? -modulus / 2
                                                                       : low;
      const std::string wide = cast(from, DType::I64);
      return cast(first == 0 ? fmt::format("{} % {:.0f}", wide, modulus)
                             : fmt::format("({} - {:.0f}) % {:.0f} + {:.0f}", wide, first, modulus, first),
                  dtype);
    };
    if (rests.high_b - rests.low_b < modulus)
      return said("wrapped", fmt::format("b is a, wrapped at {:.0f}", modulus),
                  text(source(), rests.low_b, rests.high_b, view_b_.dtype));
    if (rests.high_a - rests.low_a < modulus && !is_reshaped_)
      return {"wrapped",
              fmt::format("a is b, wrapped at {:.0f}", modulus),
              "a = " + text("b", rests.low_a, rests.high_a, view_a_.dtype),
              {}};
  }
  return {};
}

// 0, or a by 1 / (1 - p), where p is the share of zeros. Which elements are zero is fitted: it costs what it takes to
// say.
Explanation RelationSearch::dropped_out() {
  if (!scan_.is_elementwise || is_integer_) return {};
  std::int64_t at_largest = -1;
  std::vector<double> kept;
  double dropped = 0;
  for (const std::int64_t at : sample_) {
    if (!std::isfinite(a_[at]) || a_[at] == 0) continue;
    if (b_[at] == 0) {
      ++dropped;
      continue;
    }
    kept.push_back(b_[at]);
    if (at_largest < 0 || std::abs(a_[at]) > std::abs(a_[at_largest])) at_largest = at;
  }
  if (dropped == 0 || kept.empty()) return {};
  const double factor = b_[at_largest] / a_[at_largest];
  if (!(factor > 1 + 1e-3)) return {};
  const auto predict = [&](double x, double y) { return y == 0 || !std::isfinite(x) ? y : factor * x; };
  for (const std::int64_t at : sample_)
    if (!fits(predict(a_[at], b_[at]), b_[at])) return {};
  const double total = dropped + static_cast<double>(kept.size()), part = dropped / total;
  const double choice = -total * (part * std::log2(part) + (1 - part) * std::log2(1 - part));
  const Evidence evidence = weigh(kept, tolerance_);
  if (part == 1 || !pays(evidence.bits - choice, evidence.most, 1) || passes_-- <= 0) return {};
  Counts counts;
  const bool is_it = fold(counts, [&](Counts& part_of, double x, double y, std::int64_t) {
    part_of.all += x != 0;
    part_of.zeros += x != 0 && y == 0;
    return fits(predict(x, y), y);
  });
  const auto [zeros, all] = counts;
  const double expected = 1 - 1 / factor;
  if (!is_it || std::abs(zeros / all - expected) > 5 * std::sqrt(expected * (1 - expected) / all)) return {};
  return said(
      "dropout",
      fmt::format("b is a under dropout: {:.6g} a, or 0 for {:.3g} % of the elements", factor, 100 * zeros / all),
      as_b(fmt::format("np.where(b == 0, 0, {} * {})", source(),
                       short_number(factor, tolerance_ / (8 * scan_.largest_a))),
           true));
}

Explanation RelationSearch::grouped() {
  constexpr std::int64_t kMostGroups = 1 << 20;
  constexpr std::int64_t kFewestOfAGroup = 8;
  if (!scan_.is_elementwise || is_integer_ || shape_.size() < 2 || !pays(evidence_.bits, evidence_.most, 0)) return {};
  std::vector<Grouping> groupings;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    Shape shape(shape_.size(), 1);
    shape[axis] = shape_[axis];
    groupings.push_back({shape_[axis], inner(axis), fmt::format("slice along axis {}", axis), std::move(shape)});
  }
  if (shape_.size() > 2) {
    Shape shape = shape_;
    shape.back() = 1;
    groupings.push_back({count_ / shape_.back(), shape_.back(), "row of the last axis", std::move(shape)});
  }
  for (const Grouping& grouping : groupings) {
    if (grouping.count < 2 || grouping.count > kMostGroups) continue;
    if (count_ / grouping.count < kFewestOfAGroup) {
      if (Explanation found = scaled_by_small_groups(grouping); found.found()) return found;
      continue;
    }
    if (!may_be_grouped_by(grouping)) continue;
    if (Explanation found = grouped_by(grouping); found.found()) return found;
  }
  return {};
}

// Groups of too few elements for a line each: a factor, read from the largest element of each, is all that is tried.
// The others must agree with it as parts of themselves, however small, and they alone say something.
Explanation RelationSearch::scaled_by_small_groups(const Grouping& grouping) {
  const std::int64_t size = count_ / grouping.count;
  if (size < 2 || passes_ <= 0) return {};
  std::vector<std::int64_t> pivots;
  ExplanationArray factors{"factors", grouping.shape, {}};
  double low = INFINITY, high = -INFINITY;
  for (std::int64_t group = 0; group < grouping.count; ++group) {
    double largest = 0, factor = 1;
    std::int64_t pivot = -1;
    for (std::int64_t member = 0; member < size; ++member) {
      const std::int64_t at =
          (member / grouping.inner * grouping.count + group) * grouping.inner + member % grouping.inner;
      const double x = a_[at];
      if (std::isfinite(x) && std::abs(x) > largest) largest = std::abs(x), factor = b_[at] / x, pivot = at;
    }
    low = std::min(low, factor), high = std::max(high, factor);
    factors.values.push_back(factor);
    pivots.push_back(pivot);
  }
  const auto holds = [&](double x, double y, std::int64_t at) {
    const double predicted = std::isfinite(x) ? x * factors.values[static_cast<std::size_t>(grouping.of(at))] : x;
    return fits(predicted, y, 4 * relative_tolerance_ * std::abs(y));
  };
  std::vector<double> others;
  for (const std::int64_t at : sample_) {
    if (!holds(a_[at], b_[at], at)) return {};
    if (a_[at] != 0 && pivots[static_cast<std::size_t>(grouping.of(at))] != at) others.push_back(b_[at]);
  }
  const Evidence evidence = weigh(std::move(others), tolerance_);
  constexpr std::size_t kFewestValues = 8;
  if (evidence.distinct < kFewestValues || !pays(evidence.bits, evidence.most, 1)) return {};
  --passes_;
  Nothing nothing;
  if (!fold(nothing, [&](Nothing&, double x, double y, std::int64_t at) { return holds(x, y, at); })) return {};
  Explanation found = said(
      "scaled", fmt::format("b is a, each {} scaled by its own factor ({:.6g} to {:.6g})", grouping.name, low, high),
      as_b(source() + " * factors", true));
  found.arrays = {std::move(factors)};
  return found;
}

// A line through some elements of each of a few groups; in each the others must lie on it, and say enough.
bool RelationSearch::may_be_grouped_by(const Grouping& grouping) const {
  constexpr std::int64_t kGroups = 8, kOfEach = 48;
  constexpr double kMarginOfEach = 20;
  const std::int64_t size = count_ / grouping.count;
  std::int64_t telling = 0;
  for (std::int64_t k = 0; k < std::min(kGroups, grouping.count); ++k) {
    const std::int64_t group = k * (grouping.count - 1) / (std::min(kGroups, grouping.count) - 1);
    Line line;
    std::vector<std::pair<double, double>> pairs;
    std::vector<double> values;
    for (std::int64_t j = 0; j < std::min(kOfEach, size); ++j) {
      const std::int64_t member = size <= kOfEach
                                      ? j
                                      : static_cast<std::int64_t>((static_cast<std::uint64_t>(j) * kOdd >> 20) %
                                                                  static_cast<std::uint64_t>(size));
      const std::int64_t at =
          (member / grouping.inner * grouping.count + group) * grouping.inner + member % grouping.inner;
      const double x = a_[at], y = b_[at];
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      line.add(x, y);
      pairs.emplace_back(x, y);
      values.push_back(y);
    }
    line.fit();
    for (const auto& [x, y] : pairs)
      if (std::abs(line.scale * x + line.offset - y) > 4 * tolerance_) return false;
    const Evidence evidence = weigh(values, tolerance_);
    if (evidence.bits - 2 * evidence.most >= kMarginOfEach) ++telling;
  }
  return telling >= 2;
}

Explanation RelationSearch::grouped_by(const Grouping& grouping) {
  if (passes_ < 2) return {};
  --passes_;
  std::vector<Line> lines(static_cast<std::size_t>(grouping.count));
  alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
  for (std::int64_t begin = 0; begin < count_; begin += DoubleReader::kBlock) {
    const std::int64_t size = std::min(DoubleReader::kBlock, count_ - begin);
    reader_a_.read(begin, size, block_a);
    reader_b_.read(begin, size, block_b);
    for (std::int64_t i = 0; i < size; ++i)
      if (std::isfinite(block_a[i]))
        lines[static_cast<std::size_t>(grouping.of(begin + i))].add(block_a[i], block_b[i]);
  }
  for (Line& line : lines) line.fit();
  if (!verify([&](double x, std::int64_t at) {
        const Line& line = lines[static_cast<std::size_t>(grouping.of(at))];
        return std::isfinite(x) ? line.scale * x + line.offset : x;
      }))
    return {};
  bool is_scaled = true, is_shifted = true;
  double low_scale = INFINITY, high_scale = -INFINITY, low_offset = INFINITY, high_offset = -INFINITY;
  for (const Line& line : lines) {
    if (!(line.high > line.low)) {  // its elements are all equal: any scale would do
      is_scaled &= line.high != 0 || line.at_high == 0;
      continue;
    }
    is_scaled &= std::abs(line.offset) <= tolerance_;
    is_shifted &= std::abs(line.scale - 1) * scan_.largest_a <= 4 * tolerance_;
    low_scale = std::min(low_scale, line.scale), high_scale = std::max(high_scale, line.scale);
    low_offset = std::min(low_offset, line.offset), high_offset = std::max(high_offset, line.offset);
  }
  ExplanationArray factors{"factors", grouping.shape, {}}, offsets{"offsets", grouping.shape, {}};
  for (const Line& line : lines) {
    const bool is_point = line.high == line.low;
    const double center = (line.low + line.high) / 2;
    const bool is_by_factor = is_point && is_scaled && line.high != 0;
    factors.values.push_back(is_by_factor ? line.at_high / line.high : line.scale);
    offsets.values.push_back(is_shifted && !is_point && line.high > line.low ? (line.at_low + line.at_high) / 2 - center
                                                                             : line.offset);
  }
  Explanation found;
  if (is_scaled) {
    found = said("scaled",
                 fmt::format("b is a, each {} scaled by its own factor ({:.6g} to {:.6g})", grouping.name, low_scale,
                             high_scale),
                 as_b(source() + " * factors", true));
    found.arrays = {std::move(factors)};
  } else if (is_shifted) {
    found = said("shifted",
                 fmt::format("b is a, each {} shifted by its own offset ({:.6g} to {:.6g})", grouping.name, low_offset,
                             high_offset),
                 as_b(source() + " + offsets", true));
    found.arrays = {std::move(offsets)};
  } else {
    found = said("affine", fmt::format("b is a, each {} by its own factor and offset", grouping.name),
                 as_b(source() + " * factors + offsets", true));
    found.arrays = {std::move(factors), std::move(offsets)};
  }
  return found;
}

}  // namespace tenscope::compare
