// Overview. One engine keeps in one tensor what another keeps in several: q, k and v (one behind another along an axis,
// or the three of each head together), gate and up, the experts of a layer in one stack. Whichever run has the whole,
// its parts are looked for one after another: of all tensors that fit in shape those whose first element stands at the
// place that is next, and of these the one whose sampled values do. Only what covers the whole tensor counts, and each
// part is verified on all its elements. A single slice (the last token's row) is one part of which the rest was not
// recorded. Where one of a parameter's parts alone is not found, the parameter of its size and layer that was recorded
// nearest to the others is that part, and has other values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "compare/content_pairs.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostWholes = 256;     // that one slice is tried with
constexpr std::size_t kMostCandidates = 64;  // that one place of a whole is tried with
constexpr std::size_t kMostPieces = 256;     // of one whole: experts, heads

// One run has the whole tensors, the other the parts.
class PartMatcher {
 public:
  PartMatcher(ContentPairs& pairs, bool is_whole_in_a)
      : pairs_(pairs),
        is_whole_in_a_(is_whole_in_a),
        wholes_(is_whole_in_a ? pairs.a : pairs.b),
        parts_(is_whole_in_a ? pairs.b : pairs.a) {}

  void match_joined() {
    index_parts();
    for (std::size_t i = 0; i < wholes_.groups.size(); ++i) {
      const Content& whole = wholes_.groups[i].first();
      if (!is_candidate(wholes_, i) || whole.l2 == 0) continue;
      const std::size_t last = whole.shape.size() - 1;
      if (!join(i, 0) && last > 0) join(i, last);
    }
  }

  void match_changed(const Interner& interner) {
    index_parts();
    for (std::size_t j = 0; j < parts_.groups.size(); ++j)
      if (is_candidate(parts_, j))
        numbers_[j] = numbered(interner.text(parts_.lane.items[parts_.groups[j].first().item].name), 0).numbers;
    for (std::size_t i = 0; i < wholes_.groups.size(); ++i) {
      if (!is_candidate(wholes_, i) || !wholes_.groups[i].has_parameter || wholes_.groups[i].first().l2 == 0) continue;
      const std::size_t last = wholes_.groups[i].first().shape.size() - 1;
      if (!join_but_one(i, 0) && last > 0) join_but_one(i, last);
    }
  }

  void match_slices() {
    std::map<Shape, std::vector<std::size_t>> wholes;  // by their shape without the first axis
    for (std::size_t i = 0; i < wholes_.groups.size(); ++i) {
      const Content& whole = wholes_.groups[i].first();
      if (is_candidate(wholes_, i)) wholes[Shape(whole.shape.begin() + 1, whole.shape.end())].push_back(i);
    }
    for (std::size_t j = 0; j < parts_.groups.size(); ++j) {
      if (!is_candidate(parts_, j)) continue;
      const Content& part = parts_.groups[j].first();
      const auto found = wholes.find(part.shape);
      if (found == wholes.end() || found->second.size() > kMostWholes) continue;
      for (const std::size_t i : found->second) {
        const Content& whole = wholes_.groups[i].first();
        if (wholes_.is_taken[i] || whole.l2 < part.l2 * pairing::kLeastPartOfNorm) continue;
        if (auto slice = best_slice(whole, part)) {
          take(i, j, std::move(*slice));
          break;
        }
      }
    }
  }

 private:
  // How a part lies at a place of the whole.
  struct Piece {
    std::size_t group = 0;
    Layout::Range range;
    bool is_transposed = false;
  };

  static bool is_candidate(const ContentSide& side, std::size_t group) {
    const Content& content = side.groups[group].first();
    return side.is_free(group) && !content.is_integer && !content.shape.empty() && content.count > 1;
  }

  void take(std::size_t whole, std::size_t part, FoundLayout found) {
    pairs_.pair(is_whole_in_a_ ? whole : part, is_whole_in_a_ ? part : whole, std::move(found), ContentHow::Part);
  }

  Layout layout_of(const Content& part, const Piece& piece) const {
    Layout layout = layout_of_part(whole_->shape, part.shape, piece.range, is_whole_in_a_);
    if (piece.is_transposed) std::ranges::reverse(layout.order);
    return layout;
  }

  std::optional<double> error_of(const Content& part, const Piece& piece) const {
    const TensorData whole = pairs_.data(wholes_, *whole_), own = pairs_.data(parts_, part);
    const Layout layout = layout_of(part, piece);
    const auto distance =
        is_whole_in_a_ ? distance_in(whole.view, own.view, layout) : distance_in(own.view, whole.view, layout);
    return distance ? std::optional(distance->error) : std::nullopt;
  }

  // Beyond `limit` it is no more than a bound.
  std::optional<double> sampled_error_of(const Content& part, const Piece& piece, double limit) const {
    const TensorData whole = pairs_.data(wholes_, *whole_), own = pairs_.data(parts_, part);
    const Layout layout = layout_of(part, piece);
    return is_whole_in_a_ ? sampled_error(whole.view, own.view, layout, limit)
                          : sampled_error(own.view, whole.view, layout, limit);
  }

  // ---- several parts

  // A part, and its first element: where the part stands in a whole, the whole has it too.
  struct Part {
    double first = 0;
    std::size_t group = 0;
  };
  using Index = std::map<Shape, std::vector<Part>>;

  void index_parts() {
    for (std::size_t j = 0; j < parts_.groups.size(); ++j) {
      const Content& part = parts_.groups[j].first();
      if (!is_candidate(parts_, j) || part.l2 == 0) continue;
      const Part entry{element_at(pairs_.data(parts_, part).view, 0), j};
      by_shape_[part.shape].push_back(entry);
      without_first_[Shape(part.shape.begin() + 1, part.shape.end())].push_back(entry);
      without_last_[Shape(part.shape.begin(), part.shape.end() - 1)].push_back(entry);
    }
    for (Index* index : {&by_shape_, &without_first_, &without_last_})
      for (auto& [shape, parts] : *index) std::ranges::sort(parts, {}, &Part::first);
  }

  bool join(std::size_t group, std::size_t axis) {
    whole_ = &wholes_.groups[group].first();
    std::vector<Piece> pieces = in_a_row(axis);
    if (pieces.empty()) pieces = by_heads(axis);
    if (pieces.size() < 2) return false;
    auto found = verified(pieces);
    if (!found) return false;
    for (std::size_t k = 0; k < pieces.size(); ++k) take(group, pieces[k].group, std::move((*found)[k]));
    return true;
  }

  // On all elements. One of several parts may have a few that are off, which its sample has missed.
  std::optional<std::vector<FoundLayout>> verified(const std::vector<Piece>& pieces) const {
    std::vector<FoundLayout> found;
    std::size_t changed = 0;
    for (const Piece& piece : pieces) {
      const Content& part = parts_.groups[piece.group].first();
      const auto error = error_of(part, piece);
      if (!error || bits_of_evidence(part.count, std::min(*error, pairing::kLayoutAgrees)) < pairing::kBitsOfPart)
        return std::nullopt;
      if (*error > pairing::kLayoutAgrees) ++changed;
      found.push_back({layout_of(part, piece), *error});
    }
    return changed > 1 || changed == pieces.size() ? std::nullopt : std::optional(found);
  }

  // All in a row, but for one that has other values.
  bool join_but_one(std::size_t group, std::size_t axis) {
    whole_ = &wholes_.groups[group].first();
    const std::int64_t extent = whole_->shape[axis];
    const std::vector<Piece> front = in_a_row(axis, 0, true);
    const std::int64_t begin = front.empty() ? 0 : front.back().range.end;
    for (const std::int64_t size : sizes_along(axis)) {
      if (begin + size > extent || size == extent) continue;
      std::vector<Piece> pieces = front;
      const std::vector<Piece> behind = in_a_row(axis, begin + size);
      if (behind.empty() && begin + size < extent) continue;
      std::ranges::copy(behind, std::back_inserter(pieces));
      if (pieces.empty() || is_rest_zero(pieces)) continue;
      const auto changed = nearest_of_size(axis, size, pieces);
      auto found = verified(pieces);
      if (!changed || !found) continue;
      const Piece piece{*changed, {.axis = axis, .begin = begin, .end = begin + size}, pieces.front().is_transposed};
      const Content& part = parts_.groups[*changed].first();
      const auto error = error_of(part, piece);
      if (!error) continue;
      for (std::size_t k = 0; k < pieces.size(); ++k) take(group, pieces[k].group, std::move((*found)[k]));
      take(group, *changed, {layout_of(part, piece), *error});
      return true;
    }
    return false;
  }

  // A bias that a part does not have, or that is zero, has not changed.
  bool is_rest_zero(const std::vector<Piece>& pieces) const {
    double squares = whole_->l2 * whole_->l2;
    for (const Piece& piece : pieces) {
      const double own = parts_.groups[piece.group].first().l2;
      squares -= own * own;
    }
    return squares <= pairing::kRestIsZero * whole_->l2 * whole_->l2;
  }

  // Of parameters that are left and may be parts of the whole: their sizes along the axis.
  std::set<std::int64_t> sizes_along(std::size_t axis) const {
    std::set<std::int64_t> sizes;
    for (const Piece& piece : parts_near(axis, 0, kNever))
      if (is_candidate(parts_, piece.group) && parts_.groups[piece.group].has_parameter) sizes.insert(piece.range.end);
    return sizes;
  }

  std::optional<std::size_t> nearest_of_size(std::size_t axis, std::int64_t size,
                                             const std::vector<Piece>& pieces) const {
    std::optional<std::size_t> nearest;
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (const Piece& candidate : parts_near(axis, 0, kNever)) {
      const bool is_chosen = std::ranges::find(pieces, candidate.group, &Piece::group) != pieces.end();
      if (numbers_.at(candidate.group) != numbers_.at(pieces.front().group)) continue;
      if (candidate.range.end != size || is_chosen || candidate.is_transposed != pieces.front().is_transposed ||
          !is_candidate(parts_, candidate.group) || !parts_.groups[candidate.group].has_parameter)
        continue;
      const std::size_t item = parts_.groups[candidate.group].first().item;
      for (const Piece& piece : pieces) {
        const std::size_t other = parts_.groups[piece.group].first().item;
        const std::size_t apart = std::max(item, other) - std::min(item, other);
        if (apart >= least) continue;
        least = apart;
        nearest = candidate.group;
      }
    }
    return nearest;
  }

  // One behind another along the axis. Empty unless they cover what is behind `from`, or `may_end` before.
  std::vector<Piece> in_a_row(std::size_t axis, std::int64_t from = 0, bool may_end = false) const {
    std::vector<Piece> pieces;
    const std::int64_t extent = whole_->shape[axis];
    for (std::int64_t begin = from; begin < extent && pieces.size() < kMostPieces; begin = pieces.back().range.end) {
      const auto next = best_piece(axis, begin, pieces, [&](std::int64_t size) -> std::optional<Layout::Range> {
        if (size >= extent || begin + size > extent) return std::nullopt;
        return Layout::Range{.axis = axis, .begin = begin, .end = begin + size};
      });
      if (!next) return may_end ? pieces : std::vector<Piece>();
      pieces.push_back(*next);
    }
    return pieces.empty() || pieces.back().range.end < extent ? std::vector<Piece>() : pieces;
  }

  // The axis is heads x (q, k, v) x size of a head. Empty unless the parts cover it.
  std::vector<Piece> by_heads(std::size_t axis) const {
    const std::int64_t extent = whole_->shape[axis];
    constexpr std::int64_t kLargestHead = 1024;
    for (std::int64_t size = 2; size <= kLargestHead && 2 * size < extent; ++size) {
      if (size % 8 != 0 && !pairs_.sizes().contains(size)) continue;
      for (const std::int64_t count : {2, 3}) {
        if (extent % (size * count) != 0 || extent == size * count) continue;
        std::vector<Piece> pieces;
        for (std::int64_t k = 0; k < count; ++k) {
          const auto next = best_piece(axis, k * size, pieces, [&](std::int64_t own) -> std::optional<Layout::Range> {
            if (own * count != extent) return std::nullopt;
            return Layout::Range{.axis = axis, .begin = k * size, .end = (k + 1) * size, .period = count * size};
          });
          if (!next) break;
          pieces.push_back(*next);
        }
        if (std::ssize(pieces) == count) return pieces;
      }
    }
    return {};
  }

  // The part that stands at `begin` of the axis. range_of(its size along the axis) says where it would be.
  template <class RangeOf>
  std::optional<Piece> best_piece(std::size_t axis, std::int64_t begin, const std::vector<Piece>& chosen,
                                  RangeOf range_of) const {
    const double mean_square = whole_->l2 * whole_->l2 / static_cast<double>(whole_->count);
    const double first = element_at(pairs_.data(wholes_, *whole_).view, begin * c_strides(whole_->shape)[axis]);
    for (const double noise : pairing::kNoiseOfElement) {
      const auto near = parts_near(axis, first, noise * std::sqrt(mean_square));
      if (near.size() > kMostCandidates) return std::nullopt;  // the first element does not tell them apart
      std::optional<Piece> best;
      double least = pairing::kLayoutAgrees;
      for (Piece piece : near) {
        const Content& part = parts_.groups[piece.group].first();
        const auto range = range_of(piece.range.end);
        const bool is_left = parts_.is_free(piece.group) && part.l2 <= whole_->l2 * 1.01;
        if (!range || !is_left || std::ranges::find(chosen, piece.group, &Piece::group) != chosen.end()) continue;
        piece.range = *range;
        const auto error = sampled_error_of(part, piece, least);
        if (!error || *error > least) continue;
        least = *error;
        best = piece;
      }
      if (best) return best;
    }
    return std::nullopt;
  }

  // Parts whose first element is near `value`. The end of a piece's range is its size along the axis.
  std::vector<Piece> parts_near(std::size_t axis, double value, double reach) const {
    std::vector<Piece> near;
    Shape rest = whole_->shape;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(axis));
    const auto add = [&](const Index& index, const auto& size, bool is_transposed) {
      const auto at = index.find(rest);
      if (at == index.end()) return;
      for (auto part = std::ranges::lower_bound(at->second, value - reach, {}, &Part::first);
           part != at->second.end() && part->first <= value + reach && near.size() <= kMostCandidates; ++part)
        near.push_back({part->group, {.end = size(parts_.groups[part->group].first())}, is_transposed});
    };
    const auto one = [](const Content&) { return std::int64_t{1}; };
    const auto first = [](const Content& part) { return part.shape.front(); };
    const auto last = [](const Content& part) { return part.shape.back(); };
    if (!rest.empty()) add(by_shape_, one, false);
    axis == 0 ? add(without_first_, first, false) : add(without_last_, last, false);
    if (whole_->shape.size() == 2) axis == 0 ? add(without_last_, last, true) : add(without_first_, first, true);
    return near;
  }

  // ---- one slice

  // Of rows that are as good as equal (a prompt may repeat a token) the last, since that is what engines keep.
  std::optional<FoundLayout> best_slice(const Content& whole, const Content& part) {
    whole_ = &whole;
    FoundLayout best{{}, kNever};
    double second = kNever;
    for (std::int64_t row = 0; row < whole.shape[0]; ++row) {
      const Piece piece{0, {.axis = 0, .begin = row, .end = row + 1}, false};
      const auto error = error_of(part, piece);
      if (!error) return std::nullopt;
      const bool is_equal = *error < pairing::kSameRow && best.error < pairing::kSameRow;
      if (!is_equal) second = std::min(second, std::max(*error, best.error));
      if (*error < best.error || is_equal) best = {layout_of(part, piece), *error};
    }
    if (best.error >= pairing::kRowAgrees || second < pairing::kRowMargin * best.error) return std::nullopt;
    return bits_of_evidence(part.count, best.error) < pairing::kBitsOfPart ? std::nullopt : std::optional(best);
  }

  ContentPairs& pairs_;
  bool is_whole_in_a_;
  ContentSide &wholes_, &parts_;
  const Content* whole_ = nullptr;  // the one at hand
  Index by_shape_, without_first_, without_last_;
  std::map<std::size_t, std::vector<std::int64_t>> numbers_;  // in the names of parts
};

}  // namespace

Layout layout_of_part(const Shape& whole, const Shape& part, const Layout::Range& range, bool is_whole_in_a) {
  Layout layout;
  if (is_whole_in_a) {  // the axes of what is cut out of the whole
    Shape shape = whole;
    shape[range.axis] = range.end - range.begin;
    if (range.period > 0)
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(range.axis), whole[range.axis] / range.period);
    layout = same_order(without_ones(std::move(shape)));
    layout.of_a = {range};
  } else {
    layout = same_order(part);
    layout.of_b = {range};
  }
  return layout;
}

void match_changed_parts(ContentPairs& pairs, const Interner& interner) {
  for (const bool is_whole_in_a : {true, false}) PartMatcher(pairs, is_whole_in_a).match_changed(interner);
}

void match_parts(ContentPairs& pairs) {
  for (const bool is_whole_in_a : {true, false}) PartMatcher(pairs, is_whole_in_a).match_joined();
  for (const bool is_whole_in_a : {true, false}) PartMatcher(pairs, is_whole_in_a).match_slices();
}

}  // namespace tenscope::compare
