// Overview. One engine keeps in one tensor what another keeps in several: q, k and v (one behind another along an axis,
// or the three of each head together), gate and up, the experts of a layer in one stack. Whichever run has the whole,
// its parts are looked for one after another: of all tensors that fit in shape the one whose sampled values stand at
// the place that is next. Only what covers the whole tensor counts, and each part is verified on all its elements.
// A single slice (the last token's row) is one part of which the rest was not recorded.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "compare/content_pairs.hpp"

namespace tenscope::compare {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostWholes = 256;      // that one slice is tried with
constexpr std::size_t kMostCandidates = 512;  // that one place of a whole is tried with
constexpr std::size_t kMostPieces = 256;      // of one whole: experts, heads
constexpr double kAgrees = 0.03;

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
        if (wholes_.is_taken[i] || whole.l2 < part.l2 * 0.95) continue;
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
    return side.is_free(group) && !content.is_integer && !content.shape.empty() && content.count >= kFewestElements;
  }

  void take(std::size_t whole, std::size_t part, FoundLayout found) {
    pairs_.pair(is_whole_in_a_ ? whole : part, is_whole_in_a_ ? part : whole, std::move(found), ContentHow::Part);
  }

  Layout layout_of(const Content& part, const Piece& piece) const {
    const Content& whole = *whole_;
    Layout layout;
    if (is_whole_in_a_) {  // the axes of what is cut out of the whole
      Shape shape = whole.shape;
      const std::size_t axis = piece.range.axis;
      shape[axis] = piece.range.end - piece.range.begin;
      if (piece.range.period > 0)
        shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), whole.shape[axis] / piece.range.period);
      std::erase(shape, 1);
      layout = same_order(shape);
      layout.of_a = {piece.range};
    } else {
      layout = same_order(part.shape);
      layout.of_b = {piece.range};
    }
    if (piece.is_transposed) std::ranges::reverse(layout.order);
    return layout;
  }

  std::optional<LaidOut> lay_out_piece(const Content& part, const Piece& piece) const {
    const TensorData whole = pairs_.data(wholes_, *whole_), own = pairs_.data(parts_, part);
    const Layout layout = layout_of(part, piece);
    return is_whole_in_a_ ? lay_out(whole.view, own.view, layout) : lay_out(own.view, whole.view, layout);
  }

  // ---- several parts

  void index_parts() {
    for (std::size_t j = 0; j < parts_.groups.size(); ++j) {
      if (!is_candidate(parts_, j) || parts_.groups[j].first().l2 == 0) continue;
      const Shape& shape = parts_.groups[j].first().shape;
      by_shape_[shape].push_back(j);
      without_first_[Shape(shape.begin() + 1, shape.end())].push_back(j);
      without_last_[Shape(shape.begin(), shape.end() - 1)].push_back(j);
    }
  }

  struct Candidate {
    std::size_t group = 0;
    std::int64_t extent = 1;  // along the axis that is joined
    bool is_transposed = false;
  };

  std::vector<Candidate> candidates(const Content& whole, std::size_t axis) const {
    std::vector<Candidate> found;
    Shape rest = whole.shape;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(axis));
    const auto add = [&](const std::map<Shape, std::vector<std::size_t>>& index, const auto& extent,
                         bool is_transposed) {
      const auto at = index.find(rest);
      if (at == index.end()) return;
      for (const std::size_t j : at->second) {
        const Content& part = parts_.groups[j].first();
        const bool fits = !parts_.is_taken[j] && part.l2 <= whole.l2 * 1.01 && extent(part) < whole.shape[axis];
        if (fits && found.size() < kMostCandidates) found.push_back({j, extent(part), is_transposed});
      }
    };
    const auto first = [](const Content& part) { return part.shape.front(); };
    const auto last = [](const Content& part) { return part.shape.back(); };
    if (!rest.empty()) add(by_shape_, [](const Content&) { return std::int64_t{1}; }, false);
    axis == 0 ? add(without_first_, first, false) : add(without_last_, last, false);
    if (whole.shape.size() == 2) axis == 0 ? add(without_last_, last, true) : add(without_first_, first, true);
    return found;
  }

  bool join(std::size_t group, std::size_t axis) {
    whole_ = &wholes_.groups[group].first();
    const std::vector<Candidate> fitting = candidates(*whole_, axis);
    if (fitting.size() < 2) return false;
    std::vector<Piece> pieces = in_a_row(fitting, axis);
    if (pieces.empty()) pieces = by_heads(fitting, axis);
    if (pieces.size() < 2) return false;
    std::vector<FoundLayout> found;
    for (const Piece& piece : pieces) {
      const Content& part = parts_.groups[piece.group].first();
      const auto both = lay_out_piece(part, piece);
      if (!both) return false;
      found.push_back({layout_of(part, piece), relative_error(*both)});
      if (found.back().error > kAgrees) return false;
    }
    for (std::size_t k = 0; k < pieces.size(); ++k) take(group, pieces[k].group, std::move(found[k]));
    return true;
  }

  // One behind another along the axis. Empty unless they cover it.
  std::vector<Piece> in_a_row(const std::vector<Candidate>& fitting, std::size_t axis) const {
    std::vector<Piece> pieces;
    for (std::int64_t begin = 0; begin < whole_->shape[axis] && pieces.size() < kMostPieces;) {
      const auto next = best_piece(fitting, pieces, [&](const Candidate& candidate) {
        return Layout::Range{.axis = axis, .begin = begin, .end = begin + candidate.extent};
      });
      if (!next) return {};
      pieces.push_back(*next);
      begin = next->range.end;
    }
    return pieces.empty() || pieces.back().range.end < whole_->shape[axis] ? std::vector<Piece>() : pieces;
  }

  // The axis is heads x (q, k, v) x size of a head. Empty unless the parts cover it.
  std::vector<Piece> by_heads(const std::vector<Candidate>& fitting, std::size_t axis) const {
    const std::int64_t extent = whole_->shape[axis];
    constexpr std::int64_t kLargestHead = 1024;
    for (std::int64_t size = 2; size <= kLargestHead && 2 * size < extent; ++size) {
      if (size % 8 != 0 && !pairs_.sizes().contains(size)) continue;
      for (const std::int64_t count : {2, 3}) {
        if (extent % (size * count) != 0 || extent == size * count) continue;
        std::vector<Piece> pieces;
        for (std::int64_t k = 0; k < count; ++k) {
          const auto next = best_piece(fitting, pieces, [&](const Candidate&) {
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

  template <class RangeOf>
  std::optional<Piece> best_piece(const std::vector<Candidate>& fitting, const std::vector<Piece>& chosen,
                                  RangeOf range_of) const {
    std::optional<Piece> best;
    double least = kAgrees;
    for (const Candidate& candidate : fitting) {
      if (std::ranges::find(chosen, candidate.group, &Piece::group) != chosen.end()) continue;
      const Piece piece{candidate.group, range_of(candidate), candidate.is_transposed};
      const Content& part = parts_.groups[candidate.group].first();
      const TensorData whole = pairs_.data(wholes_, *whole_), own = pairs_.data(parts_, part);
      const Layout layout = layout_of(part, piece);
      const auto error =
          is_whole_in_a_ ? sampled_error(whole.view, own.view, layout) : sampled_error(own.view, whole.view, layout);
      if (!error || *error > least) continue;
      least = *error;
      best = piece;
    }
    return best;
  }

  // ---- one slice

  std::optional<FoundLayout> best_slice(const Content& whole, const Content& part) {
    whole_ = &whole;
    FoundLayout best{{}, kNever};
    double second = kNever;
    for (std::int64_t row = 0; row < whole.shape[0]; ++row) {
      const Piece piece{0, {.axis = 0, .begin = row, .end = row + 1}, false};
      const auto both = lay_out_piece(part, piece);
      if (!both) return std::nullopt;
      const double size = relative_error(*both);
      second = std::min(second, std::max(size, best.error));
      if (size < best.error) best = {layout_of(part, piece), size};
    }
    if (best.error >= 0.05 || second < 5 * best.error) return std::nullopt;
    return best;
  }

  ContentPairs& pairs_;
  bool is_whole_in_a_;
  ContentSide &wholes_, &parts_;
  const Content* whole_ = nullptr;  // the one at hand
  std::map<Shape, std::vector<std::size_t>> by_shape_, without_first_, without_last_;
};

}  // namespace

void match_parts(ContentPairs& pairs) {
  for (const bool is_whole_in_a : {true, false}) PartMatcher(pairs, is_whole_in_a).match_joined();
  for (const bool is_whole_in_a : {true, false}) PartMatcher(pairs, is_whole_in_a).match_slices();
}

}  // namespace tenscope::compare
