#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// How a tensor of one engine lies in another: the axes of a (those of size 1 left out) are split into `sizes`, and put
// in `order`, which makes the elements of b in C order. Where one of the two is padded with zeros, or holds one slice
// or part of the other, only a range of its elements counts.
struct Layout {
  struct Range {
    std::size_t axis = 0;  // among those that are not of size 1
    std::int64_t begin = 0, end = 0;
    std::int64_t period = 0;  // the range repeats along the axis: q in heads x (q, k, v); 0: it does not
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<std::int64_t> sizes;
  std::vector<int> order;
  std::vector<Range> of_a, of_b;

  friend bool operator==(const Layout&, const Layout&) = default;
  bool is_same_order() const;
  std::string in_words() const;  // "same order", "[8, 32] permuted to [1, 0]", "row 11 of the first"
};

struct FoundLayout {
  Layout layout;
  double error = 0;  // |b - a| / |a|, Euclidean, over all elements
};

Layout same_order(const std::vector<std::int64_t>& shape);

// The sizes that axes of either run have: 8 heads of 32 may be found where both sides have one axis of 256.
using AxisSizes = std::set<std::int64_t>;

// The best way to lay a out as b; the search ends where they agree to `limit`. Layouts in which they do not agree to
// `most` do not count. Tries a sample of elements first.
// Nothing for complex tensors, and for integers that a double does not hold.
std::optional<FoundLayout> find_layout(const TensorView& a, const TensorView& b, const AxisSizes& known, double limit,
                                       double most = std::numeric_limits<double>::infinity());

// How far b is from a in a layout, over the pairs that are finite on both sides; in one pass, without a copy.
struct LayoutDistance {
  double error = 0;               // |b - a| / |a|, Euclidean
  double max_abs = 0;             // largest |b - a|
  double scale = 0;               // largest |a|
  double factor = 0;              // f, where |b - f a| is least
  double rest = 0;                // |b - f a| / |b|
  bool has_other_finite = false;  // a NaN or infinity on one side only
};
// Nothing where the layout is not one of these shapes.
std::optional<LayoutDistance> distance_in(const TensorView& a, const TensorView& b, const Layout& layout);

// Calls use(elements of a, those of b, count) with what belongs together, some after others, in the C order of one
// side. Returns how many elements a row of that side has; nothing where the layout is not one of these shapes.
enum class LayoutSide : std::uint8_t { A, B };
using UseElements = std::function<void(const double* a, const double* b, std::int64_t count)>;
std::optional<std::int64_t> for_each_pair(const TensorView& a, const TensorView& b, const Layout& layout,
                                          LayoutSide order, const UseElements& use);

// The elements of both that belong together, as doubles in the order of a.
struct LaidOut {
  std::vector<double> a, b;
  std::vector<std::int64_t> shape;  // of both
};
// Nothing where the layout is not one of these shapes, or where doubles do not hold the elements.
std::optional<LaidOut> lay_out(const TensorView& a, const TensorView& b, const Layout& layout);

// Where an element of what is laid out stands in all of a, which has this shape; both in C order.
std::int64_t place_in_first(Span<const std::int64_t> shape, const Layout& layout, std::int64_t place);

// |b - a| / |a| of a sample of the elements that belong together; beyond `limit` no more than a bound.
std::optional<double> sampled_error(const TensorView& a, const TensorView& b, const Layout& layout,
                                    double limit = std::numeric_limits<double>::infinity());

// An element as a double, by its place in C order. Not for complex tensors.
double element_at(const TensorView& view, std::int64_t place);

}  // namespace tenscope::compare
