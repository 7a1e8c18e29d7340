// Overview. Equal elements first; then the relations of tensors with as many elements (relation.cpp), where a is seen
// in b's shape; then those where one is a part of the other (move_search.cpp); at last what is less than a relation.
#include "tenscope/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "compare/move_search.hpp"
#include "compare/relation_search.hpp"
#include "kernels/compare.hpp"

namespace tenscope {
namespace {

using namespace compare;

Shape shape_of(const TensorView& view) { return {view.shape.begin(), view.shape.end()}; }

bool is_complex(const TensorView& view) { return kind_of(view.dtype) == DTypeKind::Complex; }

Explanation if_equal(const TensorView& a, const TensorView& b) {
  if (shape_of(a) != shape_of(b)) return {};
  kernels::CompareOptions options;
  options.tolerance = {0, 0};
  options.equal_nan = true;
  if (!kernels::all_close(a, b, options)) return {};
  if (a.dtype == b.dtype) return {"equal", "b equals a", "b = a", {}};
  return {"equal", fmt::format("b equals a, as {}", to_string(b.dtype)), "b = " + cast("a", b.dtype), {}};
}

// The expression of a tensor a that makes b, as one of b that makes a: the names are exchanged.
std::string exchanged(std::string text) {
  const auto is_letter = [&](std::size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] == 'a' || text[i] == 'b') && (i == 0 || !is_letter(i - 1)) && !is_letter(i + 1))
      text[i] = text[i] == 'a' ? 'b' : 'a';
  return text;
}

// Whether every element of b outside of the ranges is the first one there, and which.
std::optional<double> value_around(const TensorView& b, const std::vector<AxisRange>& ranges) {
  const Elements elements(b);
  const DoubleReader reader(b);
  std::optional<double> value;
  const Shape shape = shape_of(b);
  const std::int64_t count = element_count(b.shape), columns = shape.back();
  const auto is_inside = [&](std::int64_t at) {
    for (std::size_t k = shape.size(); k-- > 0; at /= shape[k])
      if (const std::int64_t i = at % shape[k]; i < ranges[k].begin || i >= ranges[k].end) return false;
    return true;
  };
  for (std::int64_t row = 0; row < count; row += columns) {
    const bool is_row_inside = is_inside(row + ranges.back().begin);
    for (std::int64_t i = 0; i < columns; ++i) {
      if (is_row_inside && i == ranges.back().begin) i = ranges.back().end;
      if (i >= columns) break;
      const double x = elements[row + i];
      if (!value) value = x;
      if (x != *value && !(std::isnan(x) && std::isnan(*value))) return std::nullopt;
    }
  }
  return value;
}

// a is a part of b: padded, or joined with something else.
Explanation joined(const TensorView& a, const TensorView& b, const ValueRange& range_a) {
  MoveSearch search(b, a, range_a);
  const Explanation part = search.find();
  if (part.relation != "slice") return {};
  const std::string text = exchanged(part.numpy);
  const std::string where = text.substr(text.find(" = ") + 3);
  Explanation found{"joined", fmt::format("a is a part of b: {}", where), text, {}};
  const std::vector<AxisRange>& ranges = search.part();
  if (ranges.empty() || a.dtype != b.dtype) return found;
  if (const std::optional<double> value = value_around(b, ranges)) {
    std::string widths;
    for (const AxisRange& range : ranges)
      widths += fmt::format("{}({}, {})", widths.empty() ? "" : ", ", range.begin, range.size - range.end);
    const std::string fill = *value == 0 ? "" : fmt::format(", constant_values={}", number_text(*value));
    return {"padded",
            fmt::format("b is a, padded with {:.6g}: a is {}", *value, where),
            fmt::format("b = np.pad(a, ({}{}){})", widths, ranges.size() == 1 ? "," : "", fill),
            {}};
  }
  std::vector<std::size_t> cut;
  for (std::size_t k = 0; k < ranges.size(); ++k)
    if (!ranges[k].is_whole()) cut.push_back(k);
  if (cut.size() != 1) return found;
  const AxisRange& range = ranges[cut[0]];
  const std::int64_t before = range.begin, behind = range.size - range.end;
  const std::string more = before == 0   ? fmt::format("{} more behind it", behind)
                           : behind == 0 ? fmt::format("{} more before it", before)
                                         : fmt::format("{} more before and {} behind it", before, behind);
  found.words = fmt::format("b is a with {} along axis {}", more, cut[0]);
  return found;
}

Explanation of_other_counts(const TensorView& a, const TensorView& b) {
  const ValueRange range_a = range_of(a), range_b = range_of(b);
  constexpr double kExactIntegers = 0x1p53;
  const auto is_rounded = [&](const TensorView& view, const ValueRange& range) {
    return is_integer_kind(view.dtype) && range.largest >= kExactIntegers;
  };
  if (is_rounded(a, range_a) || is_rounded(b, range_b)) return {};
  const auto is_within = [](const ValueRange& part, const ValueRange& whole) {
    const double reach = 0x1p-2 * whole.largest;
    return part.low >= whole.low - reach && part.high <= whole.high + reach;
  };
  if (is_within(range_b, range_a))
    if (Explanation found = MoveSearch(a, b, range_b).find(); found.found()) return found;
  if (element_count(a.shape) < element_count(b.shape) && is_within(range_a, range_b)) return joined(a, b, range_a);
  return {};
}

}  // namespace

Explanation explain(const TensorView& a, const TensorView& b) {
  validate(a);
  validate(b);
  const std::int64_t count_a = element_count(a.shape), count_b = element_count(b.shape);
  Explanation found = if_equal(a, b);
  if (!found.found() && count_a > 0 && count_b > 0 && !is_complex(a) && !is_complex(b)) {
    if (count_a == count_b) {
      RelationSearch search(a, b);
      found = search.find();
      if (!found.found()) found = search.find_weaker();
    } else {
      found = of_other_counts(a, b);
    }
  }
  if (found.found()) return found;
  const std::string other = shape_of(a) == shape_of(b)
                                ? ""
                                : fmt::format(" of [{}] and [{}]", list_text(shape_of(a)), list_text(shape_of(b)));
  return {"nothing", fmt::format("no simple relation{} was found", other), "", {}};
}

}  // namespace tenscope
