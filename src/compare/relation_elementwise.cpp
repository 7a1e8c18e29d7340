// Relations of elements at the same positions, but for one line through all. Overview in relation.cpp.
#include <fmt/format.h>

#include <limits>

#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;

}  // namespace

// b is a, rounded to a coarser format: every element exactly. Elements that the format holds as they are say nothing.
// Where b's own format is that one, any b near a agrees with a good chance, and an element says one bit.
std::string RelationSearch::rounded() {
  if (!is_elementwise_ || precision_a_ == 0 || precision_b_ == 0) return {};
  for (const FloatFormat& format : kFloatFormats) {
    if (format.precision >= precision_a_ || format.precision > precision_b_) continue;
    const auto holds = [&](double x, double y) {
      return std::isfinite(y) ? round_to(format, x) == y : !std::isfinite(x);
    };
    if (!std::all_of(sample_.begin(), sample_.end(), [&](std::int64_t at) { return holds(a_[at], b_[at]); })) continue;
    if (passes_-- <= 0) return {};
    double changed = 0;
    const bool is_it = for_each([&](double x, double y, std::int64_t) {
      changed += x != y && std::isfinite(x);
      return holds(x, y);
    });
    const double bits = std::clamp(precision_b_ - format.precision, 1, 16);
    constexpr double kFewestChanged = 8;
    if (is_it && changed >= kFewestChanged && pays(changed * bits, bits, 0))
      return fmt::format("b is a, rounded to {}", format.name);
  }
  return {};
}

// Integers that differ by multiples of the range of a smaller type, into which those of one side fit.
std::string RelationSearch::wrapped() {
  if (!is_integer_ || is_close_) return {};
  for (const double modulus : {0x1p8, 0x1p16, 0x1p32}) {
    const auto holds = [&](double x, double y) { return std::remainder(y - x, modulus) == 0; };
    if (!std::all_of(sample_.begin(), sample_.end(), [&](std::int64_t at) { return holds(a_[at], b_[at]); })) continue;
    if (passes_-- <= 0) return {};
    std::vector<double> rests;  // of the elements that differ
    double low_a = INFINITY, high_a = -INFINITY, low_b = INFINITY, high_b = -INFINITY;
    const bool is_it = for_each([&](double x, double y, std::int64_t) {
      if (x != y && rests.size() < static_cast<std::size_t>(kSample)) rests.push_back(std::remainder(x, modulus));
      low_a = std::min(low_a, x), high_a = std::max(high_a, x);
      low_b = std::min(low_b, y), high_b = std::max(high_b, y);
      return holds(x, y);
    });
    const Evidence evidence = weigh(rests, 0);
    if (!is_it || !pays(evidence.bits, evidence.most, 0)) continue;
    if (high_b - low_b < modulus) return fmt::format("b is a, wrapped at {:.0f}", modulus);
    if (high_a - low_a < modulus) return fmt::format("a is b, wrapped at {:.0f}", modulus);
  }
  return {};
}

// 0, or a by 1 / (1 - p), where p is the share of zeros. Which elements are zero is fitted: it costs what it takes to
// say.
std::string RelationSearch::dropped_out() {
  if (!is_elementwise_ || is_integer_) return {};
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
  const double said = -total * (part * std::log2(part) + (1 - part) * std::log2(1 - part));
  const Evidence evidence = weigh(kept, tolerance_);
  if (part == 1 || !pays(evidence.bits - said, evidence.most, 1) || passes_-- <= 0) return {};
  double zeros = 0, all = 0;
  const bool is_it = for_each([&](double x, double y, std::int64_t) {
    all += x != 0;
    zeros += x != 0 && y == 0;
    return fits(predict(x, y), y);
  });
  const double expected = 1 - 1 / factor;
  if (!is_it || std::abs(zeros / all - expected) > 5 * std::sqrt(expected * (1 - expected) / all)) return {};
  return fmt::format("b is a under dropout: {} a, or 0 for {:.3g} % of the elements", fmt::format("{:.6g}", factor),
                     100 * zeros / all);
}

std::string RelationSearch::grouped() {
  constexpr std::int64_t kMostGroups = 1 << 20;
  constexpr std::int64_t kFewestOfAGroup = 8;
  if (!is_elementwise_ || is_integer_ || shape_.size() < 2 || !pays(evidence_.bits, evidence_.most, 0)) return {};
  std::vector<Grouping> groupings;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis)
    groupings.push_back({shape_[axis], inner(axis), fmt::format("slice along axis {}", axis)});
  if (shape_.size() > 2) groupings.push_back({count_ / shape_.back(), shape_.back(), "row of the last axis"});
  for (const Grouping& grouping : groupings) {
    if (grouping.count < 2 || grouping.count > kMostGroups || count_ / grouping.count < kFewestOfAGroup) continue;
    if (!may_be_grouped_by(grouping)) continue;
    if (std::string words = grouped_by(grouping); !words.empty()) return words;
  }
  return {};
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

std::string RelationSearch::grouped_by(const Grouping& grouping) {
  if (passes_ < 2) return {};
  --passes_;
  std::vector<Line> lines(static_cast<std::size_t>(grouping.count));
  for_each([&](double x, double y, std::int64_t at) {
    if (std::isfinite(x)) lines[static_cast<std::size_t>(grouping.of(at))].add(x, y);
    return true;
  });
  for (Line& line : lines) line.fit();
  if (!verify([&](double x, std::int64_t at) {
        const Line& line = lines[static_cast<std::size_t>(grouping.of(at))];
        return std::isfinite(x) ? line.scale * x + line.offset : x;
      }))
    return {};
  bool is_scaled = true, is_shifted = true;
  double low_scale = INFINITY, high_scale = -INFINITY, low_offset = INFINITY, high_offset = -INFINITY;
  for (const Line& line : lines) {
    if (!(line.high > line.low)) continue;  // its elements are all equal: any scale would do
    is_scaled &= std::abs(line.offset) <= tolerance_;
    is_shifted &= std::abs(line.scale - 1) * largest_a_ <= 4 * tolerance_;
    low_scale = std::min(low_scale, line.scale), high_scale = std::max(high_scale, line.scale);
    low_offset = std::min(low_offset, line.offset), high_offset = std::max(high_offset, line.offset);
  }
  if (is_scaled)
    return fmt::format("b is a, each {} scaled by its own factor ({:.6g} to {:.6g})", grouping.name, low_scale,
                       high_scale);
  if (is_shifted)
    return fmt::format("b is a, each {} shifted by its own offset ({:.6g} to {:.6g})", grouping.name, low_offset,
                       high_offset);
  return fmt::format("b is a, each {} by its own factor and offset", grouping.name);
}

}  // namespace tenscope::compare
