// Overview. A whole is cut along its first or its last axis into blocks as long as the greatest common divisor of the
// whole and a part, so that a part begins where a block does. Squares and sums of the blocks add up to those of a part;
// where they agree with a tensor's, the part is compared with it in every layout. Where all of a whole is found but one
// stretch, and one tensor that is left has its size, that is the part, and is changed.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "compare/checkpoint_match.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/shape.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kFewestElements = 32;
constexpr std::int64_t kMostBlocks = 1024;

// A tensor without axes of size 1, and some of its slices along one axis.
struct Window {
  Shape shape, strides;
  TensorData data;

  Window(TensorData of, std::size_t axis, std::int64_t begin, std::int64_t end) : data(std::move(of)) {
    std::int64_t stride = 1;
    for (std::size_t i = data.view.shape.size(); i-- > 0;) {
      const std::int64_t own = data.view.strides.empty() ? stride : data.view.strides[i];
      stride *= data.view.shape[i];
      if (data.view.shape[i] == 1) continue;
      shape.insert(shape.begin(), data.view.shape[i]);
      strides.insert(strides.begin(), own);
    }
    shape[axis] = end - begin;
    offset_bytes_ = begin * strides[axis] * static_cast<std::int64_t>(item_size(data.view.dtype));
  }

  TensorView view() const {
    return {static_cast<const std::byte*>(data.view.data) + offset_bytes_, data.view.dtype, shape, strides};
  }

 private:
  std::int64_t offset_bytes_ = 0;
};

struct Sums {
  double squares = 0, sum = 0;
};

// One side whole, the other in parts.
class PartSearch {
 public:
  PartSearch(const Weights& wholes, const Weights& parts, bool is_whole_in_a, const AxisSizes& sizes,
             std::vector<bool>& free_wholes, std::vector<bool>& free_parts, bool may_be_changed)
      : wholes_(wholes),
        parts_(parts),
        is_whole_in_a_(is_whole_in_a),
        sizes_(sizes),
        free_wholes_(free_wholes),
        free_parts_(free_parts),
        may_be_changed_(may_be_changed) {}

  std::vector<WeightMatch> find() {
    for (std::size_t whole = 0; whole < free_wholes_.size(); ++whole) {
      if (!is_eligible(wholes_, free_wholes_, whole)) continue;
      shape_ = without_ones(wholes_.records[whole].shape);
      if (shape_.empty()) continue;
      if (!find_parts(whole, 0) && shape_.size() > 1) find_parts(whole, shape_.size() - 1);
    }
    return std::move(found_);
  }

 private:
  static bool is_eligible(const Weights& side, const std::vector<bool>& is_free, std::size_t i) {
    const TensorRecord& record = side.records[i];
    return is_free[i] && record.stats.count >= kFewestElements && record.stats.min != record.stats.max &&
           kind_of(record.dtype) == DTypeKind::Float;
  }

  const StoredTensor& stored(const Weights& side, std::size_t i) const { return side.checkpoint.tensors()[i]; }

  // Whether anything was found. Where only a part of the whole was, what is left of it is told by what it is paired
  // with.
  bool find_parts(std::size_t whole, std::size_t axis) {
    blocks_.clear();
    std::vector<WeightMatch> found;
    std::vector<std::pair<std::int64_t, std::int64_t>> covered;
    for (std::size_t part = 0; part < free_parts_.size(); ++part) {
      if (!is_eligible(parts_, free_parts_, part)) continue;
      if (auto match = find_place(whole, axis, part, covered)) {
        free_parts_[part] = false;
        found.push_back(std::move(*match));
      }
    }
    std::int64_t length = 0;
    for (const auto& [begin, end] : covered) length += end - begin;
    if (found.empty()) return false;
    if (length < shape_[axis] && may_be_changed_)
      if (auto changed = find_changed(whole, axis, found, covered)) {
        length = shape_[axis];
        free_parts_[is_whole_in_a_ ? changed->b : changed->a] = false;
        found.push_back(std::move(*changed));
      }
    // All of it, or it is still looked for elsewhere.
    if (length < shape_[axis]) {
      for (const WeightMatch& match : found) free_parts_[is_whole_in_a_ ? match.b : match.a] = true;
      return false;
    }
    free_wholes_[whole] = false;
    std::ranges::move(found, std::back_inserter(found_));
    return true;
  }

  // The one tensor that fits into what is left of the whole, in the order that the other parts have.
  std::optional<WeightMatch> find_changed(std::size_t whole, std::size_t axis, const std::vector<WeightMatch>& found,
                                          std::vector<std::pair<std::int64_t, std::int64_t>> covered) const {
    std::ranges::sort(covered);
    covered.emplace_back(shape_[axis], shape_[axis]);
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
    std::int64_t end = 0;
    for (const auto& range : covered) {
      if (range.first > end) gaps.emplace_back(end, range.first);
      end = range.second;
    }
    if (gaps.size() != 1) return std::nullopt;
    const auto [begin, behind] = gaps.front();
    Shape shape = shape_;
    shape[axis] = behind - begin;
    std::optional<std::size_t> changed;
    for (std::size_t part = 0; part < free_parts_.size(); ++part) {
      const TensorRecord& record = parts_.records[part];
      const bool fits = free_parts_[part] && record.stats.count == element_count(shape) &&
                        kind_of(record.dtype) == DTypeKind::Float &&
                        may_be_of(stored(wholes_, whole), stored(parts_, part));
      if (!fits) continue;
      if (changed) return std::nullopt;
      changed = part;
    }
    if (!changed) return std::nullopt;
    Layout layout = same_order(without_ones(is_whole_in_a_ ? shape : parts_.records[*changed].shape));
    if (found.front().layout.order == std::vector<int>{1, 0}) layout.order = {1, 0};
    (is_whole_in_a_ ? layout.of_a : layout.of_b) = {{.axis = axis, .begin = begin, .end = behind}};
    const TensorData of_whole = wholes_.checkpoint.data(whole), of_part = parts_.checkpoint.data(*changed);
    const auto distance = is_whole_in_a_ ? distance_in(of_whole.view, of_part.view, layout)
                                         : distance_in(of_part.view, of_whole.view, layout);
    if (!distance) return std::nullopt;
    return WeightMatch{.a = is_whole_in_a_ ? whole : *changed,
                       .b = is_whole_in_a_ ? *changed : whole,
                       .layout = std::move(layout),
                       .distance = *distance,
                       .how = WeightHow::Part};
  }

  std::optional<WeightMatch> find_place(std::size_t whole, std::size_t axis, std::size_t part,
                                        std::vector<std::pair<std::int64_t, std::int64_t>>& covered) {
    const TensorRecord &of_whole = wholes_.records[whole], &of_part = parts_.records[part];
    const std::int64_t size = shape_[axis], unit = of_whole.stats.count / size;
    const std::int64_t length = of_part.stats.count / unit;
    if (of_part.stats.count % unit != 0 || length < 1 || length >= size) return std::nullopt;
    const StoredTensor &stored_whole = stored(wholes_, whole), &stored_part = stored(parts_, part);
    const double rounding = rounding_of(stored_whole, stored_part), limit = rounding_limit(stored_whole, stored_part);
    if (rounding > pairing::kCoarseRounding && !may_be_of(stored_whole, stored_part)) return std::nullopt;
    const std::int64_t step = std::gcd(size, length);
    if (size / step > kMostBlocks) return std::nullopt;
    const std::vector<Sums>& blocks = blocks_of(whole, axis, step);
    const double l2 = of_part.stats.l2, sum = of_part.stats.mean * static_cast<double>(of_part.stats.count);
    for (std::int64_t begin = 0; begin + length <= size; begin += step) {
      const auto overlaps = [&](const auto& range) { return begin < range.second && range.first < begin + length; };
      if (std::ranges::any_of(covered, overlaps)) continue;
      Sums window;
      for (std::int64_t k = begin / step; k < (begin + length) / step; ++k) {
        window.squares += blocks[static_cast<std::size_t>(k)].squares;
        window.sum += blocks[static_cast<std::size_t>(k)].sum;
      }
      const bool may_be = std::abs(std::sqrt(window.squares) - l2) <= std::max(limit, 1e-5) * l2 &&
                          std::abs(window.sum - sum) <= std::max(10 * limit, 1e-3) * l2;
      if (!may_be) continue;
      if (auto match = compare(whole, axis, part, begin, begin + length, limit)) {
        covered.emplace_back(begin, begin + length);
        return match;
      }
    }
    return std::nullopt;
  }

  // The part has the whole's numbers in its name, and perhaps one more: an expert's.
  static bool may_be_of(const StoredTensor& whole, const StoredTensor& part) {
    std::vector<std::int64_t> of_whole = numbered(whole.name, 0).numbers, of_part = numbered(part.name, 0).numbers;
    of_whole.pop_back();
    return std::ranges::equal(of_whole, std::span(of_part).first(std::min(of_whole.size(), of_part.size() - 1)));
  }

  const std::vector<Sums>& blocks_of(std::size_t whole, std::size_t axis, std::int64_t step) {
    const auto [place, is_new] = blocks_.try_emplace(step);
    if (!is_new) return place->second;
    for (std::int64_t begin = 0; begin < shape_[axis]; begin += step) {
      const Window window(wholes_.checkpoint.data(whole), axis, begin, begin + step);
      const Stats stats = kernels::statistics(window.view());
      place->second.push_back({stats.l2 * stats.l2, stats.mean * static_cast<double>(stats.count)});
    }
    return place->second;
  }

  std::optional<WeightMatch> compare(std::size_t whole, std::size_t axis, std::size_t part, std::int64_t begin,
                                     std::int64_t end, double limit) const {
    const Window window(wholes_.checkpoint.data(whole), axis, begin, end);
    const TensorData other = parts_.checkpoint.data(part);
    const TensorView a = is_whole_in_a_ ? window.view() : other.view, b = is_whole_in_a_ ? other.view : window.view();
    const auto layout = find_layout(a, b, sizes_, limit);
    if (!layout || layout->error > limit) return std::nullopt;
    WeightMatch match{.a = is_whole_in_a_ ? whole : part,
                      .b = is_whole_in_a_ ? part : whole,
                      .layout = layout->layout,
                      .how = WeightHow::Part};
    const auto distance = distance_in(a, b, layout->layout);
    if (!distance || distance->has_other_finite) return std::nullopt;
    match.distance = *distance;
    (is_whole_in_a_ ? match.layout.of_a : match.layout.of_b) = {{.axis = axis, .begin = begin, .end = end}};
    return match;
  }

  const Weights& wholes_;
  const Weights& parts_;
  bool is_whole_in_a_;
  const AxisSizes& sizes_;
  std::vector<bool>& free_wholes_;
  std::vector<bool>& free_parts_;
  bool may_be_changed_;
  Shape shape_;                                       // of the whole that is looked at, without axes of size 1
  std::map<std::int64_t, std::vector<Sums>> blocks_;  // of it, by their length
  std::vector<WeightMatch> found_;
};

}  // namespace

std::vector<WeightMatch> match_parts(const Weights& a, const Weights& b, const AxisSizes& sizes,
                                     std::vector<bool>& free_a, std::vector<bool>& free_b, bool may_be_changed) {
  std::vector<WeightMatch> found = PartSearch(b, a, false, sizes, free_b, free_a, may_be_changed).find();
  std::ranges::move(PartSearch(a, b, true, sizes, free_a, free_b, may_be_changed).find(), std::back_inserter(found));
  return found;
}

}  // namespace tenscope::compare
