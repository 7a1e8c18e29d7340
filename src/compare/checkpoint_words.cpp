#include "compare/checkpoint_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tenscope::compare {
namespace {

std::string range_in_words(const Layout::Range& range, std::string_view side) {
  const std::string axis = range.axis == 0 ? "rows" : fmt::format("axis {}", range.axis);
  const std::string every = range.period > 0 ? fmt::format(" of every {}", range.period) : "";
  return fmt::format("{} [{}, {}){} of {}", axis, range.begin, range.end, every, side);
}

}  // namespace

std::int64_t rotary_head(const Layout& layout, std::int64_t rows) {
  const auto& [sizes, order, of_a, of_b] = layout;
  const std::size_t at = order.size() > 2 && order[0] == 0 ? 1 : 0;
  if (order.size() < at + 2) return 0;
  std::vector<int> expected(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) expected[i] = static_cast<int>(i);
  std::swap(expected[at], expected[at + 1]);
  const std::int64_t heads = at == 1 ? sizes[0] : 1;
  const std::int64_t head = sizes[at] * sizes[at + 1];
  return order == expected && (sizes[at] == 2 || sizes[at + 1] == 2) && heads * head == rows ? head : 0;
}

std::string_view owner_word(std::string_view name) {
  const std::string_view owner = name.substr(0, std::min(name.rfind('.'), name.size()));
  return owner.substr(owner.rfind('.') + 1);
}

std::string layout_in_words(const Layout& layout, const Shape& shape_a, const Shape& shape_b) {
  std::vector<std::string> words;
  for (const Layout::Range& range : layout.of_a) words.push_back(range_in_words(range, "a"));
  for (const Layout::Range& range : layout.of_b) words.push_back(range_in_words(range, "b"));
  Shape first = without_ones(shape_a);
  for (const Layout::Range& range : layout.of_a) first[range.axis] = range.end - range.begin;
  first = without_ones(first);
  const bool is_part = !words.empty();
  if (layout.is_same_order()) {
    if (!is_part && first != without_ones(shape_b)) words.emplace_back("reshaped");
  } else if (layout.order == std::vector<int>{1, 0} && first.size() == 2) {
    words.emplace_back("transposed");
  } else if (const std::int64_t head = first.empty() ? 0 : rotary_head(layout, first[0]); head > 0) {
    words.push_back(fmt::format("{}permuted in heads of {} (rotary)", first.size() == 1 ? "" : "rows ", head));
  } else {
    words.push_back(Layout{.sizes = layout.sizes, .order = layout.order}.in_words());
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace tenscope::compare
