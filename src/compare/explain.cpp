// Overview. Equal elements first; then the relations of tensors with as many elements (relation.cpp), where a is seen
// in b's shape; then those where one is a part of the other (move_search.cpp); at last what is less than a relation.
#include "tenscope/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// "64 more behind it along axis 0": where the smaller stands in the larger.
Explanation joined(const TensorView& a, const TensorView& b, const ValueRange& range_a) {
  Explanation part = MoveSearch(b, a, range_a).find();
  if (part.relation != "slice") return {};
  // It is an expression of the other tensor: the names are exchanged.
  for (std::string* text : {&part.words, &part.numpy})
    for (std::size_t i = 0; i < text->size(); ++i) {
      char& c = (*text)[i];
      const auto is_letter = [&](std::size_t at) {
        return at < text->size() && std::isalpha(static_cast<unsigned char>((*text)[at])) != 0;
      };
      if ((c != 'a' && c != 'b') || (i > 0 && is_letter(i - 1)) || is_letter(i + 1)) continue;
      if (text == &part.words && c == 'a' && i + 1 < text->size() && (*text)[i + 1] == ' ') continue;  // the article
      c = c == 'a' ? 'b' : 'a';
    }
  part.relation = "joined";
  part.words = "b is a with more around it: " + part.words;
  return part;
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
