// Overview. What neither values nor rules paired lies between pairs that ascend in both runs. In each such gap, what
// has the same size is aligned in its order. Where what follows agrees, values that do not are other things, and so are
// their namesakes in other layers. Where what follows has diverged, or where a step ends, a tensor of the same size is
// more likely wrong than another one.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compare/content_pairs.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostInGap = 400;
constexpr std::size_t kLookAhead = 4;  // anchors after a gap: those of parallel branches (k and v after q) tell nothing

using Anchor = std::pair<std::size_t, std::size_t>;  // an item of a, an item of b

std::vector<Anchor> longest_ascending(const std::vector<Anchor>& anchors) {
  std::vector<std::size_t> tails, before(anchors.size());  // patience sorting; ties in b ascend
  for (std::size_t k = 0; k < anchors.size(); ++k) {
    const auto place =
        std::ranges::upper_bound(tails, anchors[k].second, {}, [&](std::size_t at) { return anchors[at].second; });
    before[k] = place == tails.begin() ? anchors.size() : *(place - 1);
    if (place == tails.end())
      tails.push_back(k);
    else
      *place = k;
  }
  std::vector<Anchor> chain;
  for (std::size_t k = tails.empty() ? anchors.size() : tails.back(); k < anchors.size(); k = before[k])
    chain.push_back(anchors[k]);
  std::ranges::reverse(chain);
  return chain;
}

// What is left between two anchors.
struct Gap {
  std::vector<std::size_t> a, b;  // groups
  bool has_agreed = false;        // what follows does
  bool is_settled = false;        // what the step ends with does
  bool has_diverged = false;      // what follows has, or nothing follows: here may be why
  bool is_end = false;            // of a step, or of the run: what the models return is here
  bool is_begin = false;          // of a step but the first: what the models take in is here
};

// Several weights of one run that are one in the other, the first recorded first; along the axis that they share.
struct Join {
  bool is_whole_in_a = false;
  std::int64_t extent = 0;
  std::vector<Layout::Range> ranges;

  std::int64_t size_of(const Layout::Range& range) const {
    return (range.end - range.begin) * (range.period > 0 ? extent / range.period : 1);
  }
};

class OrderMatcher {
 public:
  OrderMatcher(ContentPairs& pairs, const Interner& interner)
      : pairs_(pairs),
        kinds_a_(kinds_of(pairs.a, interner)),
        kinds_b_(kinds_of(pairs.b, interner)),
        has_anchors_(!pairs.pairs().empty()) {}

  void match() {
    const std::vector<Gap> gaps = find_gaps();
    for (const Gap& gap : gaps)
      if (gap.has_agreed) find_strangers(gap);
    joins_ = find_joins();
    for (const Gap& gap : gaps) {
      align(gap);
      if (gap.is_end)
        for (const bool is_whole_in_a : {true, false}) match_row(gap, is_whole_in_a);
    }
  }

 private:
  // Of each group the name that it was first recorded under, without numbers.
  static std::vector<std::string> kinds_of(const ContentSide& side, const Interner& interner) {
    std::vector<std::string> kinds;
    kinds.reserve(side.groups.size());
    for (const ContentGroup& group : side.groups)
      kinds.push_back(numbered(interner.text(side.lane.items[group.first().item].name), 0).text);
    return kinds;
  }

  std::vector<Gap> find_gaps() const {
    // Anchors: pairs that ascend in both runs.
    std::vector<Anchor> anchors;
    std::set<Anchor> agreed, diverged;
    std::set<std::size_t> agreed_a;  // groups
    const double noise = pairs_.weight_error();
    for (const GroupPair& pair : pairs_.pairs()) {
      if (pairs_.a.groups[pair.a].has_parameter || pairs_.b.groups[pair.b].has_parameter) continue;
      anchors.emplace_back(pairs_.a.groups[pair.a].first().item, pairs_.b.groups[pair.b].first().item);
      if (pair.found.error <= std::max(pairing::kAgreed, pairing::kAgreedNoise * noise)) {
        agreed.insert(anchors.back());
        agreed_a.insert(pair.a);
      }
      if (pair.found.error > std::max(pairing::kAgreed, pairing::kDivergedNoise * noise))
        diverged.insert(anchors.back());
    }
    std::ranges::sort(anchors);
    const std::vector<Anchor> chain = longest_ascending(anchors);
    const auto step_of = [&](std::size_t anchor) { return pairs_.a.lane.items[chain[anchor].first].step; };
    std::map<std::int64_t, std::size_t> last_of_step;  // groups of a
    for (std::size_t i = 0; i < pairs_.a.lane.items.size(); ++i)
      if (const auto group = pairs_.a.group_of.find(i);
          group != pairs_.a.group_of.end() && !pairs_.a.groups[group->second].has_parameter)
        last_of_step[pairs_.a.lane.items[i].step] = group->second;
    std::map<std::pair<std::size_t, bool>, Gap> gaps;  // by the anchor after it; at the end of a step, then before it
    const auto gap_before = [&](const ContentSide& side, std::size_t item, std::size_t Anchor::* of_side) -> Gap& {
      const auto next = static_cast<std::size_t>(std::ranges::upper_bound(chain, item, {}, of_side) - chain.begin());
      const bool is_end =
          next == chain.size() || (next > 0 && step_of(next - 1) != step_of(next) &&
                                   side.lane.items[item].step != side.lane.items[chain[next].*of_side].step);
      Gap& gap = gaps[{next, !is_end}];
      gap.is_end = is_end;
      gap.is_begin = !is_end && next > 0 && step_of(next - 1) != step_of(next);
      auto last = next;
      while (last < std::min(next + kLookAhead, chain.size()) && step_of(last) == step_of(next)) ++last;
      const auto ahead = std::ranges::subrange(chain.begin() + static_cast<std::ptrdiff_t>(next),
                                               chain.begin() + static_cast<std::ptrdiff_t>(last));
      const auto is_in = [](const std::set<Anchor>& set) {
        return [&](const Anchor& one) { return set.contains(one); };
      };
      gap.has_agreed = !is_end && std::ranges::all_of(ahead, is_in(agreed));
      gap.is_settled = gap.has_agreed && agreed_a.contains(last_of_step.at(step_of(next)));
      gap.has_diverged = is_end || std::ranges::any_of(ahead, is_in(diverged));
      return gap;
    };
    const auto is_left = [](const ContentSide& side, std::size_t group) {
      return !side.is_taken[group] && !side.groups[group].has_parameter;
    };
    for (std::size_t i = 0; i < pairs_.a.groups.size(); ++i)
      if (is_left(pairs_.a, i)) gap_before(pairs_.a, pairs_.a.groups[i].first().item, &Anchor::first).a.push_back(i);
    for (std::size_t j = 0; j < pairs_.b.groups.size(); ++j)
      if (is_left(pairs_.b, j)) gap_before(pairs_.b, pairs_.b.groups[j].first().item, &Anchor::second).b.push_back(j);
    std::vector<Gap> found;
    for (auto& [next, gap] : gaps)
      if (!gap.a.empty() && !gap.b.empty() && gap.a.size() <= kMostInGap && gap.b.size() <= kMostInGap)
        found.push_back(std::move(gap));
    return found;
  }

  // ---- by likeness

  static bool is_same_sort(const Content& a, const Content& b) {
    return a.count == b.count && a.is_integer == b.is_integer;
  }

  // Where all around them agrees and they do not, two names are not the same thing, here or in other layers.
  void find_strangers(const Gap& gap) {
    for (const std::size_t i : gap.a)
      for (const std::size_t j : gap.b)
        if (const Content &a = pairs_.a.groups[i].first(), &b = pairs_.b.groups[j].first();
            is_same_sort(a, b) && likeness(a, b) < pairing::kAlike)
          strangers_.emplace(kinds_a_[i], kinds_b_[j]);
  }

  // Zero: not the same thing.
  double likeness(const Content& a, const Content& b) const {
    if (a.l2 == 0 || b.l2 == 0) return 0;
    const double norms = std::exp(-pairing::kNormFalls * std::abs(std::log(a.l2 / b.l2)));
    if (norms < pairing::kLeastNorms) return 0;
    const auto found = pairs_.likely_layout(a, b);
    if (!found) return 0;
    const double cosine = (a.l2 * a.l2 + b.l2 * b.l2 - found->error * found->error * a.l2 * a.l2) / (2 * a.l2 * b.l2);
    return std::max(0.0, norms + pairing::kCosineCounts * std::max(0.0, cosine) - pairing::kNothingSpeaks);
  }

  // What is further apart than noise, while the step ends as it should, is something else: one addend of a sum, scores
  // before they are scaled.
  bool may_be_noise(const Content& a, const Content& b) const {
    const auto found = pairs_.likely_layout(a, b);
    return found && found->error <= std::clamp(pairing::kNoiseAtEnd * pairs_.weight_error(), pairing::kLeastNoiseAtEnd,
                                               pairing::kMostNoiseAtEnd);
  }

  // How much speaks for two groups of a gap being the same thing; zero: they are not. Any two tensors of few elements
  // may be alike.
  double fit_of(const Gap& gap, std::size_t i, std::size_t j) const {
    const Content &a = pairs_.a.groups[i].first(), &b = pairs_.b.groups[j].first();
    if (!is_same_sort(a, b)) return 0;
    if (!has_anchors_ && a.is_constant && b.is_constant) return 0;  // zeros are in every program
    if (!gap.is_end && !gap.is_begin && (a.is_integer || a.count == 1)) return 0;
    if (gap.is_settled && !may_be_noise(a, b)) return 0;
    if (!gap.has_diverged && a.count < pairing::kFewestElements)
      return gap.is_begin && a.is_integer ? pairing::kSameSize : 0;
    if (!gap.has_diverged) return likeness(a, b);
    return strangers_.contains({kinds_a_[i], kinds_b_[j]}) ? 0 : std::max(likeness(a, b), pairing::kSameSize);
  }

  // A step of the way through both lists: so many of each belong together, by a join where it is not one of each.
  struct Move {
    std::size_t a = 1, b = 1;
    const Join* join = nullptr;
    double fit = 0;
  };

  // The way through both lists, in their order, that fits best.
  void align(const Gap& gap) {
    const std::size_t rows = gap.a.size(), columns = gap.b.size();
    std::vector<std::vector<Move>> moves(rows, std::vector<Move>(columns));
    std::vector<std::vector<double>> best(rows + 1, std::vector<double>(columns + 1));
    for (std::size_t i = rows; i-- > 0;)
      for (std::size_t j = columns; j-- > 0;) {
        Move& move = moves[i][j];
        const auto total = [&](const Move& one) { return best[i + one.a][j + one.b] + one.fit; };
        move.fit = fit_of(gap, gap.a[i], gap.b[j]);
        for (const Join& join : joins_)
          if (const Move other = move_of(gap, i, j, join); other.fit > 0 && total(other) > total(move)) move = other;
        best[i][j] = std::max({best[i + 1][j], best[i][j + 1], move.fit > 0 ? total(move) : 0.0});
      }
    for (std::size_t i = 0, j = 0; i < rows && j < columns;) {
      const Move& move = moves[i][j];
      if (move.fit > 0 && best[i][j] == best[i + move.a][j + move.b] + move.fit) {
        if (move.join == nullptr)
          pairs_.pair_if_alike(gap.a[i], gap.b[j], ContentHow::Order);
        else
          take_join(gap, i, j, *move.join);
        i += move.a, j += move.b;
      } else if (best[i][j] == best[i + 1][j]) {
        ++i;
      } else {
        ++j;
      }
    }
  }

  // ---- products with joined weights

  std::vector<Join> find_joins() const {
    struct Piece {
      std::size_t item;  // of the part
      Layout::Range range;
    };
    std::map<std::pair<bool, std::size_t>, std::vector<Piece>> wholes;  // in a, group
    for (const GroupPair& pair : pairs_.pairs()) {
      const Layout& layout = pair.found.layout;
      const std::size_t in_a = layout.of_a.size(), in_b = layout.of_b.size();
      if (pair.how != ContentHow::Part || !pairs_.a.groups[pair.a].has_parameter || in_a + in_b != 1) continue;
      if (in_a == 1)
        wholes[{true, pair.a}].push_back({pairs_.b.groups[pair.b].first().item, layout.of_a[0]});
      else
        wholes[{false, pair.b}].push_back({pairs_.a.groups[pair.a].first().item, layout.of_b[0]});
    }
    std::vector<Join> joins;
    for (auto& [whole, pieces] : wholes) {
      const Content& content = (whole.first ? pairs_.a : pairs_.b).groups[whole.second].first();
      std::ranges::sort(pieces, {}, &Piece::item);
      Join join{.is_whole_in_a = whole.first, .extent = content.shape[pieces.front().range.axis], .ranges = {}};
      for (const Piece& piece : pieces) join.ranges.push_back(piece.range);
      const auto is_known = [&](const Join& other) {
        return other.is_whole_in_a == join.is_whole_in_a && other.extent == join.extent && other.ranges == join.ranges;
      };
      if (std::ranges::none_of(joins, is_known)) joins.push_back(std::move(join));
    }
    return joins;
  }

  // What was made with weights that are joined in one run alone lies as they do, along its last axis. Whether the next
  // tensors of a gap may be that, by their shapes.
  Move move_of(const Gap& gap, std::size_t i, std::size_t j, const Join& join) const {
    const std::size_t count = join.ranges.size();
    const Move move = join.is_whole_in_a ? Move{1, count, &join} : Move{count, 1, &join};
    if (!gap.has_diverged || i + move.a > gap.a.size() || j + move.b > gap.b.size()) return {};
    const Shape& whole = (join.is_whole_in_a ? pairs_.a.groups[gap.a[i]] : pairs_.b.groups[gap.b[j]]).first().shape;
    if (whole.empty() || whole.back() != join.extent) return {};
    for (std::size_t k = 0; k < count; ++k) {
      const ContentGroup& part = join.is_whole_in_a ? pairs_.b.groups[gap.b[j + k]] : pairs_.a.groups[gap.a[i + k]];
      Shape shape = whole;
      shape.back() = join.size_of(join.ranges[k]);
      if (part.first().shape != without_ones(std::move(shape))) return {};
    }
    return {move.a, move.b, &join, pairing::kSameSize * static_cast<double>(count)};
  }

  void take_join(const Gap& gap, std::size_t i, std::size_t j, const Join& join) {
    for (std::size_t k = 0; k < join.ranges.size(); ++k) {
      const std::size_t whole = join.is_whole_in_a ? gap.a[i] : gap.b[j],
                        part = join.is_whole_in_a ? gap.b[j + k] : gap.a[i + k];
      const Content& content = (join.is_whole_in_a ? pairs_.a : pairs_.b).groups[whole].first();
      Layout::Range range = join.ranges[k];
      range.axis = content.shape.size() - 1;
      const Content& own = (join.is_whole_in_a ? pairs_.b : pairs_.a).groups[part].first();
      if (auto found = part_at(content, own, range, join.is_whole_in_a))
        take_part(whole, part, std::move(*found), join.is_whole_in_a);
    }
  }

  // ---- one row

  // One run may return the last token's row alone. Of what has diverged, the row that is nearest, or else the last.
  void match_row(const Gap& gap, bool is_whole_in_a) {
    constexpr std::int64_t kMostRows = 4096;
    ContentSide &wholes = is_whole_in_a ? pairs_.a : pairs_.b, &parts = is_whole_in_a ? pairs_.b : pairs_.a;
    for (const std::size_t group : is_whole_in_a ? gap.a : gap.b) {
      const Content& whole = wholes.groups[group].first();
      if (wholes.is_taken[group] || whole.shape.size() < 2 || whole.shape[0] > kMostRows) continue;
      const Shape rest(whole.shape.begin() + 1, whole.shape.end());
      for (const std::size_t part : is_whole_in_a ? gap.b : gap.a) {
        const Content& content = parts.groups[part].first();
        if (parts.is_taken[part] || content.shape != rest || content.is_integer != whole.is_integer) continue;
        std::optional<FoundLayout> best;
        for (std::int64_t row = whole.shape[0]; row-- > 0;) {
          auto found = part_at(whole, content, {.axis = 0, .begin = row, .end = row + 1}, is_whole_in_a);
          if (found && (!best || (found->error < pairing::kNearestRow && found->error < best->error)))
            best = std::move(found);
        }
        if (best) take_part(group, part, std::move(*best), is_whole_in_a);
        break;
      }
    }
  }

  std::optional<FoundLayout> part_at(const Content& whole, const Content& part, const Layout::Range& range,
                                     bool is_whole_in_a) const {
    const Layout layout = layout_of_part(whole.shape, part.shape, range, is_whole_in_a);
    const TensorData x = pairs_.data(pairs_.a, is_whole_in_a ? whole : part),
                     y = pairs_.data(pairs_.b, is_whole_in_a ? part : whole);
    const auto distance = distance_in(x.view, y.view, layout);
    return distance ? std::optional(FoundLayout{layout, distance->error}) : std::nullopt;
  }

  void take_part(std::size_t whole, std::size_t part, FoundLayout found, bool is_whole_in_a) {
    pairs_.pair(is_whole_in_a ? whole : part, is_whole_in_a ? part : whole, std::move(found), ContentHow::Order);
  }

  ContentPairs& pairs_;
  std::vector<std::string> kinds_a_, kinds_b_;               // by group
  const bool has_anchors_;                                   // pairs by content, between which the order counts
  std::set<std::pair<std::string, std::string>> strangers_;  // kinds that are not the same thing
  std::vector<Join> joins_;
};

}  // namespace

void match_ties(ContentPairs& pairs) {
  const auto is_free_tie = [](const ContentSide& side, std::size_t group) {
    return side.groups[group].is_tie && !side.is_taken[group];
  };
  std::multimap<double, std::size_t> in_b;  // by norm
  for (std::size_t j = 0; j < pairs.b.groups.size(); ++j)
    if (is_free_tie(pairs.b, j)) in_b.emplace(pairs.b.groups[j].first().l2, j);
  for (std::size_t i = 0; i < pairs.a.groups.size(); ++i) {
    if (!is_free_tie(pairs.a, i)) continue;
    const ContentGroup& group = pairs.a.groups[i];
    for (auto [place, end] = in_b.equal_range(group.first().l2); place != end; ++place) {
      const ContentGroup& other = pairs.b.groups[place->second];
      if (group.members.size() == other.members.size() && distance(group.first(), other.first()) == 0)
        pairs.pair_if_alike(i, place->second, ContentHow::Order);
    }
  }
}

void match_order(ContentPairs& pairs, const Interner& interner) { OrderMatcher(pairs, interner).match(); }

}  // namespace tenscope::compare
