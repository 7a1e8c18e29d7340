// Overview. One engine has heads in front of tokens, another behind them; one has a batch axis, another none; one joins
// what another splits. A layout says which elements belong together: each axis of a is seen as one or several (256 as
// 8 heads of 32, a head as two halves), and these are put in another order. The candidates are few, since the sizes
// must be known from somewhere and must fold up to b's shape; a sample of elements refutes almost all of them, and what
// survives is verified on all.
#include "compare/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "compare/shape.hpp"
#include "kernels/compare_table.hpp"
#include "kernels/element_reader.hpp"
#include "tenscope/dtype.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kSample = 256;
constexpr std::size_t kMostAtoms = 5;
constexpr double kLargestExact = 0x1p53;
constexpr std::size_t kMostSplits = 24;  // of one axis
constexpr std::int64_t kRun = 512;       // elements that are read together

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Any element of a tensor as a double, by its place in C order.
class Elements {
 public:
  explicit Elements(const TensorView& view)
      : reader_(view), widen_(kernels::compare_table().widen[static_cast<std::size_t>(view.dtype)]) {}

  double value(std::int64_t index) const {
    alignas(16) std::byte scratch[16];
    double value[2];
    widen_(reader_.read(index, 1, scratch), 1, value);
    return value[0];
  }

  // The elements at `index` and every `stride` behind it, kRun of them at most.
  void values(std::int64_t index, std::int64_t stride, std::int64_t count, double* out) const {
    if (stride == 1) {
      alignas(16) std::byte scratch[16 * kRun];
      widen_(reader_.read(index, count, scratch), count, out);
    } else {
      for (std::int64_t i = 0; i < count; ++i) out[i] = value(index + i * stride);
    }
  }

  // For the search: what is not finite counts as 0.
  double at(std::int64_t index) const {
    const double found = value(index);
    return std::isfinite(found) ? found : 0;
  }

 private:
  kernels::ElementReader reader_;
  void (*widen_)(const std::byte* bytes, std::int64_t count, double* out);
};

// A box of a tensor's elements: sizes, distances in C order, and where it begins.
struct Grid {
  Shape shape, strides;
  std::int64_t offset = 0;

  std::int64_t count() const { return product(shape); }
};

Grid whole(const TensorView& view) {
  Grid grid;
  std::int64_t stride = 1;
  for (std::size_t axis = view.shape.size(); axis-- > 0;) {
    if (view.shape[axis] != 1) {
      grid.shape.insert(grid.shape.begin(), view.shape[axis]);
      grid.strides.insert(grid.strides.begin(), stride);
    }
    stride *= view.shape[axis];
  }
  return grid;
}

Grid cut(Grid grid, const std::vector<Layout::Range>& ranges) {
  for (const Layout::Range& range : ranges) {
    const auto axis = static_cast<std::ptrdiff_t>(range.axis);
    const std::int64_t stride = grid.strides[range.axis], repeats = range.period > 0 ? grid.shape[range.axis] : 0;
    grid.offset += range.begin * stride;
    grid.shape[range.axis] = range.end - range.begin;
    if (repeats == 0) continue;
    grid.shape.insert(grid.shape.begin() + axis, repeats / range.period);
    grid.strides.insert(grid.strides.begin() + axis, stride * range.period);
  }
  for (std::size_t axis = grid.shape.size(); axis-- > 0;)
    if (grid.shape[axis] == 1) {
      grid.shape.erase(grid.shape.begin() + static_cast<std::ptrdiff_t>(axis));
      grid.strides.erase(grid.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    }
  return grid;
}

// Calls use(offset) for all elements of a grid, in its order.
template <class Use>
void for_each_offset(const Grid& grid, Use use) {
  const std::int64_t count = grid.count();
  Shape index(grid.shape.size(), 0);
  std::int64_t at = grid.offset;
  for (std::int64_t i = 0; i < count; ++i) {
    use(at);
    for (std::size_t axis = grid.shape.size(); axis-- > 0;) {
      at += grid.strides[axis];
      if (++index[axis] < grid.shape[axis]) break;
      at -= grid.strides[axis] * grid.shape[axis];
      index[axis] = 0;
    }
  }
}

// Where a walk over a grid stands, and how many elements follow at one distance.
class GridWalk {
 public:
  explicit GridWalk(const Grid& grid) : grid_(grid), index_(grid.shape.size(), 0), at_(grid.offset) {}

  std::int64_t at() const { return at_; }
  std::int64_t stride() const { return grid_.shape.empty() ? 1 : grid_.strides.back(); }
  std::int64_t left_in_row() const { return grid_.shape.empty() ? 1 : grid_.shape.back() - index_.back(); }

  // By no more than what is left in the row.
  void advance(std::int64_t count) {
    if (grid_.shape.empty()) return;
    at_ += count * grid_.strides.back();
    index_.back() += count;
    for (std::size_t axis = grid_.shape.size(); axis-- > 0 && index_[axis] == grid_.shape[axis];) {
      at_ -= grid_.strides[axis] * grid_.shape[axis];
      index_[axis] = 0;
      if (axis == 0) return;
      at_ += grid_.strides[axis - 1];
      ++index_[axis - 1];
    }
  }

 private:
  const Grid& grid_;
  Shape index_;
  std::int64_t at_;
};

// Calls use(a, b, count) with the elements of two grids of one count, in the order of each, a run after another.
template <class Use>
void for_each_run(const Elements& a, const Grid& grid_a, const Elements& b, const Grid& grid_b, const Use& use) {
  GridWalk walk_a(grid_a), walk_b(grid_b);
  double of_a[2 * kRun], of_b[2 * kRun];
  for (std::int64_t left = grid_a.count(); left > 0;) {
    const std::int64_t count = std::min({left, kRun, walk_a.left_in_row(), walk_b.left_in_row()});
    a.values(walk_a.at(), walk_a.stride(), count, of_a);
    b.values(walk_b.at(), walk_b.stride(), count, of_b);
    use(of_a, of_b, count);
    walk_a.advance(count);
    walk_b.advance(count);
    left -= count;
  }
}

std::int64_t offset_of(const Grid& grid, std::int64_t place) {
  std::int64_t at = grid.offset;
  for (std::size_t axis = grid.shape.size(); axis-- > 0;) {
    at += place % grid.shape[axis] * grid.strides[axis];
    place /= grid.shape[axis];
  }
  return at;
}

// The axes of a grid split into sizes and put in an order.
Grid rearranged(const Grid& grid, const Shape& sizes, const std::vector<int>& order) {
  Shape strides(sizes.size());
  std::size_t atom = sizes.size();
  for (std::size_t axis = grid.shape.size(); axis-- > 0;) {
    std::int64_t stride = grid.strides[axis], rest = grid.shape[axis];
    while (rest > 1) {
      --atom;
      strides[atom] = stride;
      stride *= sizes[atom];
      rest /= sizes[atom];
    }
  }
  Grid result{{}, {}, grid.offset};
  for (const int i : order) {
    result.shape.push_back(sizes[static_cast<std::size_t>(i)]);
    result.strides.push_back(strides[static_cast<std::size_t>(i)]);
  }
  return result;
}

// Ways to see one axis as several: by sizes known from elsewhere, and those in two halves, as rotary embeddings do.
std::vector<Shape> splits(std::int64_t size, const AxisSizes& known) {
  std::set<Shape> ways = {{size}};
  for (const std::int64_t part : known) {
    if (part <= 1 || part >= size || size % part != 0) continue;
    if (ways.size() >= kMostSplits) break;
    ways.insert({{size / part, part}});
    ways.insert({{part, size / part}});
    if (part % 2 == 0 && part > 2) {
      ways.insert({{size / part, 2, part / 2}});
      ways.insert({{size / part, part / 2, 2}});
    }
  }
  return {ways.begin(), ways.end()};
}

// Whether consecutive products of `sizes` are `shape`.
bool folds(const Shape& sizes, const Shape& shape) {
  std::size_t axis = 0;
  std::int64_t gathered = 1;
  for (const std::int64_t size : sizes) {
    gathered *= size;
    if (axis < shape.size() && gathered == shape[axis]) {
      ++axis;
      gathered = 1;
    }
  }
  return axis == shape.size() && gathered == 1;
}

// The range of an axis in which anything is not zero.
std::vector<Layout::Range> used_ranges(const Elements& elements, const Grid& grid, const Shape& other) {
  std::vector<Layout::Range> ranges;
  for (std::size_t axis = 0; axis < grid.shape.size(); ++axis) {
    if (std::ranges::find(other, grid.shape[axis]) != other.end()) continue;
    Layout::Range range{.axis = axis, .begin = grid.shape[axis], .end = 0};
    for_each_offset(grid, [&](std::int64_t at) {
      const std::int64_t slice = at / grid.strides[axis] % grid.shape[axis];
      if ((slice >= range.begin && slice < range.end) || elements.at(at) == 0) return;
      range.begin = std::min(range.begin, slice);
      range.end = std::max(range.end, slice + 1);
    });
    const bool is_part = range.begin < range.end && range.end - range.begin < grid.shape[axis];
    if (is_part) ranges.push_back(range);
  }
  return ranges;
}

bool are_within(const std::vector<Layout::Range>& ranges, const Grid& grid) {
  return std::ranges::all_of(ranges, [&](const Layout::Range& range) {
    return range.axis < grid.shape.size() && range.begin >= 0 && range.begin < range.end &&
           range.end <= grid.shape[range.axis] && (range.period == 0 || range.end <= range.period) &&
           (range.period == 0 || grid.shape[range.axis] % range.period == 0);
  });
}

// Without splits that the order does not need: neighbours of one axis that stay neighbours are one.
void simplify(Layout& layout, const Shape& axes) {
  std::size_t atom = 0;
  std::vector<std::size_t> axis_of;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    for (std::int64_t rest = axes[axis]; rest > 1 && atom < layout.sizes.size(); ++atom) {
      axis_of.push_back(axis);
      rest /= layout.sizes[atom];
    }
  for (std::size_t k = layout.order.size(); k-- > 1;) {
    const auto first = static_cast<std::size_t>(layout.order[k - 1]),
               second = static_cast<std::size_t>(layout.order[k]);
    if (second != first + 1 || axis_of[first] != axis_of[second]) continue;
    layout.sizes[first] *= layout.sizes[second];
    layout.sizes.erase(layout.sizes.begin() + layout.order[k]);
    axis_of.erase(axis_of.begin() + layout.order[k]);
    layout.order.erase(layout.order.begin() + static_cast<std::ptrdiff_t>(k));
    for (int& i : layout.order)
      if (static_cast<std::size_t>(i) > first) --i;
  }
}

class Search {
 public:
  Search(const TensorView& a, const TensorView& b, double limit, double most)
      : a_(a),
        b_(b),
        limit_(limit),
        most_(most),
        is_integer_(kind_of(a.dtype) != DTypeKind::Float || kind_of(b.dtype) != DTypeKind::Float) {}

  std::optional<FoundLayout> find(Grid grid_a, Grid grid_b, const AxisSizes& known) {
    if (grid_a.count() != grid_b.count()) {
      best_.layout.of_a = used_ranges(a_, grid_a, grid_b.shape);
      best_.layout.of_b = used_ranges(b_, grid_b, grid_a.shape);
      grid_a = cut(grid_a, best_.layout.of_a);
      grid_b = cut(grid_b, best_.layout.of_b);
      if (grid_a.count() != grid_b.count()) return std::nullopt;
    }
    grid_a_ = std::move(grid_a);
    grid_b_ = std::move(grid_b);
    take_sample();
    std::vector<int> order(grid_a_.shape.size());
    std::iota(order.begin(), order.end(), 0);
    best_.error = most_;
    attempt(grid_a_.shape, order);
    if (best_.error > limit_) attempt_splits(known);
    if (best_.layout.sizes.empty()) return std::nullopt;
    simplify(best_.layout, grid_a_.shape);
    best_.error = error_of(rearranged(grid_a_, best_.layout.sizes, best_.layout.order));
    if (!std::isfinite(best_.error)) return std::nullopt;
    return best_;
  }

 private:
  void take_sample() {
    std::mt19937_64 random(1);
    const std::int64_t count = grid_b_.count();
    for (std::int64_t i = 0; i < std::min(kSample, count); ++i) {
      places_.push_back(count <= kSample ? i : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count)));
      sample_.push_back(b_.at(offset_of(grid_b_, places_.back())));
      norm_ += sample_.back() * sample_.back();
    }
    norm_ = std::max(norm_, std::numeric_limits<double>::min());
  }

  void attempt(const Shape& sizes, const std::vector<int>& order) {
    const Grid grid = rearranged(grid_a_, sizes, order);
    const double bound = best_.error * best_.error * norm_;
    double sum = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const double difference = a_.at(offset_of(grid, places_[i])) - sample_[i];
      sum += difference * difference;
      if (sum >= bound) return;
    }
    best_.layout.sizes = sizes;
    best_.layout.order = order;
    best_.error = std::sqrt(sum / norm_);
  }

  void attempt_splits(const AxisSizes& known) {
    std::vector<std::vector<Shape>> ways;
    for (const std::int64_t size : grid_a_.shape) ways.push_back(splits(size, known));
    std::set<Shape> tried;
    std::vector<std::size_t> choice(ways.size(), 0);
    while (true) {
      Shape sizes;
      for (std::size_t axis = 0; axis < ways.size(); ++axis)
        sizes.insert(sizes.end(), ways[axis][choice[axis]].begin(), ways[axis][choice[axis]].end());
      if (sizes.size() <= kMostAtoms && tried.insert(sizes).second) attempt_orders(sizes);
      if (best_.error <= limit_) return;
      std::size_t axis = ways.size();
      while (axis > 0 && ++choice[axis - 1] == ways[axis - 1].size()) choice[--axis] = 0;
      if (axis == 0) return;
    }
  }

  void attempt_orders(const Shape& sizes) {
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      Shape moved;
      for (const int i : order) moved.push_back(sizes[static_cast<std::size_t>(i)]);
      if (folds(moved, grid_b_.shape)) attempt(sizes, order);
    } while (std::next_permutation(order.begin(), order.end()));
  }

  // What is not finite counts as 0.
  double error_of(const Grid& grid) const {
    double sum = 0, norm = 0;
    bool is_exact = true;
    for_each_run(a_, grid, b_, grid_b_, [&](const double* of_a, const double* of_b, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = std::isfinite(of_a[i]) ? of_a[i] : 0, y = std::isfinite(of_b[i]) ? of_b[i] : 0;
        is_exact &= std::abs(x) < kLargestExact;
        sum += (y - x) * (y - x);
        norm += x * x;
      }
    });
    if (!is_exact && is_integer_) return std::numeric_limits<double>::infinity();
    return std::sqrt(sum / std::max(norm, std::numeric_limits<double>::min()));
  }

  Elements a_, b_;
  double limit_, most_;
  bool is_integer_;  // at least one of them: beyond 2^53 a double does not hold it
  Grid grid_a_, grid_b_;
  std::vector<std::int64_t> places_;
  std::vector<double> sample_;
  double norm_ = 0;
  FoundLayout best_;
};

}  // namespace

bool Layout::is_same_order() const { return std::ranges::is_sorted(order); }

std::string Layout::in_words() const {
  std::string text;
  const auto add = [&](const std::vector<Range>& ranges, std::string_view run) {
    for (const Range& range : ranges) {
      const bool is_one = range.end - range.begin == 1;
      text += is_one ? fmt::format("slice {}", range.begin) : fmt::format("[{}, {})", range.begin, range.end);
      if (range.period > 0) text += fmt::format(" of every {}", range.period);
      text += fmt::format(" of axis {} of the {}; ", range.axis, run);
    }
  };
  add(of_a, "first");
  add(of_b, "second");
  return text + (is_same_order()
                     ? "same order"
                     : fmt::format("[{}] permuted to [{}]", fmt::join(sizes, ", "), fmt::join(order, ", ")));
}

std::optional<FoundLayout> find_layout(const TensorView& a, const TensorView& b, const AxisSizes& known, double limit,
                                       double most) {
  if (element_count(a.shape) == 0 || element_count(b.shape) == 0) return std::nullopt;
  if (kind_of(a.dtype) == DTypeKind::Complex || kind_of(b.dtype) == DTypeKind::Complex) return std::nullopt;
  return Search(a, b, limit, most).find(whole(a), whole(b), known);
}

namespace {

// The elements of both that a layout calls for: a's in a's own order, and b's in b's, with a's beside them.
struct Grids {
  Grid a, a_as_b, b;
};

std::optional<Grids> grids_of(const TensorView& a, const TensorView& b, const Layout& layout) {
  if (kind_of(a.dtype) == DTypeKind::Complex || kind_of(b.dtype) == DTypeKind::Complex) return std::nullopt;
  const Grid all_a = whole(a), all_b = whole(b);
  if (!are_within(layout.of_a, all_a) || !are_within(layout.of_b, all_b)) return std::nullopt;
  Grid grid_a = cut(all_a, layout.of_a), grid_b = cut(all_b, layout.of_b);
  if (grid_a.count() != grid_b.count() || !folds(layout.sizes, grid_a.shape)) return std::nullopt;
  Grid moved = rearranged(grid_a, layout.sizes, layout.order);
  return Grids{std::move(grid_a), std::move(moved), std::move(grid_b)};
}

Grid contiguous(const Shape& shape) { return {shape, c_strides(shape), 0}; }

}  // namespace

Layout same_order(const std::vector<std::int64_t>& shape) {
  Layout layout{.sizes = shape, .order = std::vector<int>(shape.size()), .of_a = {}, .of_b = {}};
  std::iota(layout.order.begin(), layout.order.end(), 0);
  return layout;
}

std::optional<LayoutDistance> distance_in(const TensorView& a, const TensorView& b, const Layout& layout) {
  const auto grids = grids_of(a, b, layout);
  if (!grids) return std::nullopt;
  LayoutDistance result;
  double sum = 0, norm = 0, norm_b = 0, dot = 0;
  for_each_run(Elements(a), grids->a_as_b, Elements(b), grids->b,
               [&](const double* of_a, const double* of_b, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) {
                   const double x = of_a[i], y = of_b[i];
                   if (!std::isfinite(x) || !std::isfinite(y)) {
                     result.has_other_finite |= x != y && !(std::isnan(x) && std::isnan(y));
                     continue;
                   }
                   const double difference = std::abs(y - x);
                   sum += difference * difference;
                   norm += x * x;
                   norm_b += y * y;
                   dot += x * y;
                   result.max_abs = std::max(result.max_abs, difference);
                   result.scale = std::max(result.scale, std::abs(x));
                 }
               });
  constexpr double kTiny = std::numeric_limits<double>::min();
  result.error = std::sqrt(sum / std::max(norm, kTiny));
  result.factor = dot / std::max(norm, kTiny);
  result.rest = std::sqrt(std::max(norm_b - result.factor * dot, 0.0) / std::max(norm_b, kTiny));
  return result;
}

std::optional<std::int64_t> for_each_pair(const TensorView& a, const TensorView& b, const Layout& layout,
                                          LayoutSide order, const UseElements& use) {
  const auto grids = grids_of(a, b, layout);
  if (!grids) return std::nullopt;
  Grid grid_a = grids->a_as_b, grid_b = grids->b;
  if (order == LayoutSide::A) {
    Shape moved;
    std::vector<int> back(layout.order.size());
    for (std::size_t i = 0; i < back.size(); ++i) {
      moved.push_back(layout.sizes[static_cast<std::size_t>(layout.order[i])]);
      back[static_cast<std::size_t>(layout.order[i])] = static_cast<int>(i);
    }
    if (!folds(moved, grid_b.shape)) return std::nullopt;
    grid_a = grids->a;
    grid_b = rearranged(grid_b, moved, back);
  }
  for_each_run(Elements(a), grid_a, Elements(b), grid_b, use);
  const Shape& shape = order == LayoutSide::A ? grids->a.shape : grids->b.shape;
  return shape.empty() ? 1 : shape.back();
}

std::optional<LaidOut> lay_out(const TensorView& a, const TensorView& b, const Layout& layout) {
  const auto grids = grids_of(a, b, layout);
  if (!grids) return std::nullopt;
  const Elements of_a(a), of_b(b);
  const auto count = static_cast<std::size_t>(grids->a.count());
  std::optional<LaidOut> laid_out(std::in_place,
                                  LaidOut{.a = {}, .b = std::vector<double>(count), .shape = grids->a.shape});
  LaidOut& result = *laid_out;
  result.a.reserve(count);
  for_each_offset(grids->a, [&](std::int64_t at) { result.a.push_back(of_a.value(at)); });
  // Where an element of a stands in the result, in the order of b.
  std::vector<std::int64_t> places;
  places.reserve(count);
  for_each_offset(rearranged(contiguous(grids->a.shape), layout.sizes, layout.order),
                  [&](std::int64_t place) { places.push_back(place); });
  auto place = places.begin();
  for_each_offset(grids->b, [&](std::int64_t at) { result.b[static_cast<std::size_t>(*place++)] = of_b.value(at); });
  if (kind_of(a.dtype) == DTypeKind::Float && kind_of(b.dtype) == DTypeKind::Float) return laid_out;
  const auto is_exact = [](double value) { return std::abs(value) < kLargestExact; };
  if (!std::ranges::all_of(result.a, is_exact) || !std::ranges::all_of(result.b, is_exact)) return std::nullopt;
  return laid_out;
}

std::int64_t place_in_first(Span<const std::int64_t> shape, const Layout& layout, std::int64_t place) {
  return offset_of(cut(whole({.shape = shape}), layout.of_a), place);
}

std::optional<double> sampled_error(const TensorView& a, const TensorView& b, const Layout& layout, double limit) {
  const auto grids = grids_of(a, b, layout);
  if (!grids) return std::nullopt;
  constexpr std::int64_t kFirst = 16;  // elements after which what is far off is given up
  const Elements of_a(a), of_b(b);
  std::mt19937_64 random(1);
  const std::int64_t count = grids->b.count();
  double difference = 0, norm = 0;
  const auto error = [&] { return std::sqrt(difference / std::max(norm, std::numeric_limits<double>::min())); };
  for (std::int64_t i = 0; i < std::min(kSample, count); ++i) {
    const std::int64_t place =
        count <= kSample ? i : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    const double x = of_a.at(offset_of(grids->a_as_b, place)), y = of_b.at(offset_of(grids->b, place));
    difference += (y - x) * (y - x);
    norm += x * x;
    if (i == kFirst && error() > 4 * limit) break;
  }
  return error();
}

double element_at(const TensorView& view, std::int64_t place) { return Elements(view).at(place); }

}  // namespace tenscope::compare
