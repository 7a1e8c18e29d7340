// Relations that leave some elements out, and b - a of rank one. Overview in relation.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

bool is_same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

// Bits that it takes to say which of so many elements are meant.
double choice_bits(double count, double part) {
  return part <= 0 || part >= 1 ? 0 : -count * (part * std::log2(part) + (1 - part) * std::log2(1 - part));
}

// The expression of another part of a: every `a` in it becomes `part`.
std::string of_part(const std::string& expression, const std::string& part) {
  std::string text;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const bool is_a = expression[i] == 'a' && (i == 0 || !is_word(expression[i - 1])) &&
                      (i + 1 == expression.size() || expression[i + 1] == '.' || !is_word(expression[i + 1]));
    text += is_a ? part : std::string(1, expression[i]);
  }
  return text;
}

}  // namespace

void RelationSearch::Box::add(std::int64_t at, const Shape& shape) {
  if (count++ == 0) low.assign(shape.size(), INT64_MAX), high.assign(shape.size(), -1);
  for (std::size_t k = shape.size(); k-- > 0; at /= shape[k]) {
    low[k] = std::min(low[k], at % shape[k]);
    high[k] = std::max(high[k], at % shape[k]);
  }
}

void RelationSearch::Box::add(const Box& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  count += other.count;
  for (std::size_t k = 0; k < low.size(); ++k)
    low[k] = std::min(low[k], other.low[k]), high[k] = std::max(high[k], other.high[k]);
}

std::int64_t RelationSearch::Box::volume() const {
  std::int64_t volume = count > 0 ? 1 : 0;
  for (std::size_t k = 0; k < low.size(); ++k) volume *= high[k] + 1 - low[k];
  return volume;
}

std::vector<AxisRange> RelationSearch::Box::ranges(const Shape& shape) const {
  std::vector<AxisRange> found;
  for (std::size_t k = 0; k < shape.size(); ++k) found.push_back({low[k], high[k] + 1, shape[k]});
  return found;
}

// b is a, or one value (0, -inf, NaN; any other where it stands often enough). Which elements is fitted.
Explanation RelationSearch::masked() {
  const double tolerance = is_integer_ ? 0 : relative_tolerance_ * std::min(scan_.largest_a, scan_.largest_b);
  std::int64_t first = scan_.at_other >= 0 ? scan_.at_other : scan_.at_difference;
  for (const std::int64_t at : sample_)
    if (!fits(a_[at], b_[at], tolerance)) {
      first = at;
      break;
    }
  if (first < 0) return {};
  const double fill = b_[first];
  std::vector<double> kept;
  for (const std::int64_t at : sample_) {
    if (is_same(b_[at], fill)) continue;
    if (!fits(a_[at], b_[at], tolerance)) return {};
    kept.push_back(b_[at]);
  }
  const Evidence evidence = weigh(kept, tolerance);
  if (!pays(evidence.bits, evidence.most, 1) || passes_-- <= 0) return {};
  struct Mask {
    Box box;  // of the elements that are masked
    std::int64_t lowest = INT64_MAX, highest = INT64_MIN, lowest_kept = INT64_MAX, highest_kept = INT64_MIN;
    void add(const Mask& other) {
      box.add(other.box);
      lowest = std::min(lowest, other.lowest), highest = std::max(highest, other.highest);
      lowest_kept = std::min(lowest_kept, other.lowest_kept);
      highest_kept = std::max(highest_kept, other.highest_kept);
    }
  } mask;
  const bool is_matrix = shape_.size() >= 2;
  const std::int64_t columns = shape_.empty() ? 1 : shape_.back(), rows = is_matrix ? shape_[shape_.size() - 2] : 1;
  const bool is_it = fold(mask, [&](Mask& part, double x, double y, std::int64_t at) {
    const std::int64_t diagonal = at % columns - at / columns % rows;
    if (is_same(y, fill)) {
      if (fits(x, fill, tolerance)) return true;
      part.lowest = std::min(part.lowest, diagonal), part.highest = std::max(part.highest, diagonal);
      part.box.add(at, shape_);
      return true;
    }
    part.lowest_kept = std::min(part.lowest_kept, diagonal);
    part.highest_kept = std::max(part.highest_kept, diagonal);
    return fits(x, y, tolerance);
  });
  if (!is_it || mask.box.count == 0) return {};
  constexpr std::int64_t kOften = 8;
  if (fill != 0 && std::isfinite(fill) && mask.box.count < kOften) return {};
  const std::string value = number_text(fill), say_value = std::isnan(fill) ? "nan" : fmt::format("{:.6g}", fill);
  if (is_matrix && (mask.highest_kept < mask.lowest || mask.lowest_kept > mask.highest)) {
    const bool is_lower = mask.highest_kept < mask.lowest;
    const std::int64_t k = is_lower ? std::clamp<std::int64_t>(0, mask.highest_kept, mask.lowest - 1)
                                    : std::clamp<std::int64_t>(0, mask.highest + 1, mask.lowest_kept);
    const std::string tri = fmt::format("np.tri({}, {}, {}, dtype=bool)", rows, columns, is_lower ? k : k - 1);
    const std::string side = is_lower ? "above" : "below";
    return said("masked", fmt::format("b is a, masked: {} {} diagonal {} of the last two axes", say_value, side, k),
                as_b(is_lower ? fmt::format("np.where({}, {}, {})", tri, source(), value)
                              : fmt::format("np.where({}, {}, {})", tri, value, source()),
                     true));
  }
  const double part = static_cast<double>(mask.box.count) / static_cast<double>(count_);
  const bool is_box = mask.box.volume() == mask.box.count;
  const double cost = is_box ? 0 : choice_bits(static_cast<double>(sample_.size()), part);
  if (!pays(evidence.bits - cost, evidence.most, 1)) return {};
  const std::string box = index_text(mask.box.ranges(shape_));
  std::string where = is_box ? fmt::format("in {}", box) : fmt::format("for {:.3g} % of the elements", 100 * part);
  if (!is_box && mask.box.volume() < count_) where += fmt::format(", all in {}", box);
  const std::string is_fill = std::isnan(fill) ? "np.isnan(b)" : fmt::format("b == {}", value);
  return said("masked", fmt::format("b is a, masked: {} {}", say_value, where),
              as_b(fmt::format("np.where({}, {}, {})", is_fill, value, source()), true));
}

// b is a + u v: the rows of b - a are multiples of one of them. u and v are read where b - a is largest.
Explanation RelationSearch::of_rank_one() {
  if (!scan_.is_elementwise || is_integer_ || shape_.size() < 2 || scan_.at_difference < 0) return {};
  const std::int64_t last = shape_.back(), first = shape_.front();
  if (Explanation found = of_rank_one(count_ / last, last); found.found()) return found;
  return shape_.size() > 2 ? of_rank_one(first, count_ / first) : Explanation{};
}

Explanation RelationSearch::of_rank_one(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMostNumbers = 1 << 24;
  if (rows < 2 || columns < 2 || std::max(rows, columns) > kMostNumbers || passes_ <= 0) return {};
  const std::int64_t row = scan_.at_difference / columns, column = scan_.at_difference % columns;
  const auto difference = [&](std::int64_t at) { return b_[at] - a_[at]; };
  const double largest = difference(scan_.at_difference), reach = 4 * tolerance_;
  std::vector<double> values;
  for (const std::int64_t at : sample_) {
    const std::int64_t i = at / columns, j = at % columns;
    const double d = difference(at);
    if (!std::isfinite(d)) continue;
    const double u = difference(i * columns + column), v = difference(row * columns + j) / largest;
    if (std::isfinite(u * v) && !(std::abs(u * v - d) <= reach)) return {};
    if (i != row && j != column && std::isfinite(u * v)) values.push_back(d);
  }
  const Evidence evidence = weigh(values, reach);
  const double fitted = static_cast<double>(rows + columns);
  if (evidence.bits * per_sample() - fitted * evidence.most - search_bits_ < kEvidenceMargin) return {};
  ExplanationArray u{"u", {rows}, {}}, v{"v", {columns}, {}};
  const auto number = [](double x) { return std::isfinite(x) ? x : 0; };
  for (std::int64_t i = 0; i < rows; ++i) u.values.push_back(number(difference(i * columns + column)));
  for (std::int64_t j = 0; j < columns; ++j) v.values.push_back(number(difference(row * columns + j) / largest));
  --passes_;
  Nothing nothing;
  const bool is_it = fold(nothing, [&](Nothing&, double x, double y, std::int64_t at) {
    const double step =
        u.values[static_cast<std::size_t>(at / columns)] * v.values[static_cast<std::size_t>(at % columns)];
    return fits(std::isfinite(x) ? x + step : x, y, reach);
  });
  if (!is_it) return {};
  const std::string outer = shape_.size() == 2 ? "np.outer(u, v)" : reshaped("np.outer(u, v)", shape_);
  Explanation found = said("rank one", "b - a is of rank one: an outer product of two vectors",
                           as_b(fmt::format("{} + {}", source(), outer), true));
  found.arrays = {std::move(u), std::move(v)};
  return found;
}

Explanation RelationSearch::find_weaker() {
  if (count_ == 0) return {};
  if (is_close_ && is_exact_integer_) {
    const std::string text = as_b(source(), false);
    if (scan_.largest_difference == 0 && is_reshaped_)
      return said("reshaped", fmt::format("b is a, reshaped to [{}]", list_text(shape_)), text);
    if (scan_.largest_difference == 0) return said("equal", "b equals a", text);
    return said("nearly equal",
                fmt::format("b is a but for rounding: they differ by {:.2g} at most, {:.2g} of the largest value",
                            scan_.largest_difference, scan_.largest_difference / scan_.largest_b),
                text);
  }
  if (scan_.is_elementwise && scan_.low_b == scan_.high_b && is_exact_integer_) {
    const std::string value = number_text(scan_.low_b);
    return said("constant", fmt::format("every finite element of b is {}", value),
                as_b(fmt::format("np.where(np.isfinite({0}), {1}, {0})", source(), value), true));
  }
  return but_for_a_block();
}

// b is a outside of a block, and perhaps something else of it inside.
Explanation RelationSearch::but_for_a_block() {
  if (is_reshaped_ || !is_exact_integer_ || shape_.empty()) return {};
  const double corners = 2 * std::log2(static_cast<double>(count_));
  const auto pays_outside = [&](const auto& is_outside) {
    std::vector<double> agreeing;
    for (const std::int64_t at : sample_)
      if (is_outside(at)) agreeing.push_back(b_[at]);
    const Evidence evidence = weigh(std::move(agreeing), tolerance_);
    return pays(evidence.bits - corners, evidence.most, 0);
  };
  if (!pays_outside([&](std::int64_t at) { return fits(a_[at], b_[at]); })) return {};
  Box box;
  fold(box, [&](Box& part, double x, double y, std::int64_t at) {
    if (!fits(x, y)) part.add(at, shape_);
    return true;
  });
  const auto is_outside = [&](std::int64_t at) {
    for (std::size_t k = shape_.size(); k-- > 0; at /= shape_[k])
      if (const std::int64_t i = at % shape_[k]; i < box.low[k] || i > box.high[k]) return true;
    return false;
  };
  if (box.count == 0 || !pays_outside(is_outside)) return {};
  const std::vector<AxisRange> ranges = box.ranges(shape_);
  const std::string where = index_text(ranges);
  // The block alone, of both.
  Shape sizes, strides_a, strides_b;
  std::int64_t from = 0, to = 0, c_stride = 1;
  for (std::size_t k = shape_.size(); k-- > 0; c_stride *= shape_[k]) {
    sizes.insert(sizes.begin(), ranges[k].end - ranges[k].begin);
    strides_a.insert(strides_a.begin(), is_c_order(view_a_) ? c_stride : view_a_.strides[k]);
    strides_b.insert(strides_b.begin(), is_c_order(view_b_) ? c_stride : view_b_.strides[k]);
    from += ranges[k].begin * strides_a.front();
    to += ranges[k].begin * strides_b.front();
  }
  const auto item_a = static_cast<std::int64_t>(item_size(view_a_.dtype));
  const auto item_b = static_cast<std::int64_t>(item_size(view_b_.dtype));
  const TensorView block_a{static_cast<const std::byte*>(view_a_.data) + from * item_a, view_a_.dtype, sizes,
                           strides_a};
  const TensorView block_b{static_cast<const std::byte*>(view_b_.data) + to * item_b, view_b_.dtype, sizes, strides_b};
  Explanation inside = RelationSearch(block_a, block_b).find();
  // What it is made of: parts of a around the block, along each axis that it cuts.
  std::string text = inside.numpy.starts_with("b = ") && inside.numpy.find("b ==") == std::string::npos &&
                             inside.numpy.find("(b)") == std::string::npos
                         ? of_part(inside.numpy.substr(4), fmt::format("a{}", where))
                         : fmt::format("b{}", where);
  std::vector<AxisRange> around = ranges;
  for (std::size_t k = ranges.size(); k-- > 0;) {
    around[k] = {0, ranges[k].size, ranges[k].size};
    if (ranges[k].is_whole()) continue;
    std::vector<std::string> parts;
    std::vector<AxisRange> before = around, behind = around;
    before[k].end = ranges[k].begin;
    behind[k].begin = ranges[k].end;
    if (before[k].end > 0) parts.push_back(fmt::format("a{}", index_text(before)));
    parts.push_back(text);
    if (behind[k].begin < behind[k].size) parts.push_back(fmt::format("a{}", index_text(behind)));
    text = fmt::format("np.concatenate([{}], axis={})", fmt::join(parts, ", "), k);
  }
  std::string words = fmt::format("b is a but for {}", where);
  if (inside.found()) words += fmt::format(", where {}", inside.words);
  Explanation found = said("equal but for a block", words, as_b(text, false));
  found.arrays = std::move(inside.arrays);
  return found;
}

}  // namespace tenscope::compare
