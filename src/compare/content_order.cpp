#include <algorithm>
#include <cmath>
#include <map>

#include "compare/content_pairs.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostInGap = 400;

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

double likeness(const ContentPairs& pairs, std::size_t i, std::size_t j) {
  const Content &a = pairs.a.groups[i].first(), &b = pairs.b.groups[j].first();
  if (a.count != b.count || a.l2 == 0 || b.l2 == 0) return 0;
  const double norms = std::exp(-5 * std::abs(std::log(a.l2 / b.l2)));
  if (norms < 0.05) return 0;
  const auto found = pairs.likely_layout(a, b);
  if (!found) return 0;
  const double cosine = (a.l2 * a.l2 + b.l2 * b.l2 - found->error * found->error * a.l2 * a.l2) / (2 * a.l2 * b.l2);
  return norms + 2 * std::max(0.0, cosine) - 0.6;
}

void align_gap(ContentPairs& pairs, const std::vector<std::size_t>& left_a, const std::vector<std::size_t>& left_b) {
  if (left_a.empty() || left_b.empty()) return;
  std::vector<std::vector<double>> fit(left_a.size(), std::vector<double>(left_b.size()));
  for (std::size_t i = 0; i < left_a.size(); ++i)
    for (std::size_t j = 0; j < left_b.size(); ++j) fit[i][j] = likeness(pairs, left_a[i], left_b[j]);
  std::vector<std::vector<double>> best(left_a.size() + 1, std::vector<double>(left_b.size() + 1));
  for (std::size_t i = left_a.size(); i-- > 0;)
    for (std::size_t j = left_b.size(); j-- > 0;)
      best[i][j] = std::max({best[i + 1][j], best[i][j + 1], fit[i][j] > 0 ? best[i + 1][j + 1] + fit[i][j] : 0.0});
  for (std::size_t i = 0, j = 0; i < left_a.size() && j < left_b.size();) {
    if (fit[i][j] > 0 && best[i][j] == best[i + 1][j + 1] + fit[i][j]) {
      pairs.pair_if_alike(left_a[i], left_b[j], ContentHow::Order);
      ++i, ++j;
    } else if (best[i][j] == best[i + 1][j]) {
      ++i;
    } else {
      ++j;
    }
  }
}

}  // namespace

void match_order(ContentPairs& pairs) {
  // Anchors: pairs that ascend in both runs.
  std::vector<Anchor> anchors;
  for (const GroupPair& pair : pairs.pairs())
    if (!pairs.a.groups[pair.a].has_parameter)
      anchors.emplace_back(pairs.a.groups[pair.a].first().item, pairs.b.groups[pair.b].first().item);
  std::ranges::sort(anchors);
  const std::vector<Anchor> chain = longest_ascending(anchors);
  std::map<std::size_t, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> gaps;
  const auto is_left = [](const ContentSide& side, std::size_t group) {
    const ContentGroup& g = side.groups[group];
    return !side.is_taken[group] && !g.has_parameter && !g.first().is_integer && g.first().count >= kFewestElements;
  };
  const auto gap_of = [&](std::size_t item, std::size_t Anchor::* side) {
    return static_cast<std::size_t>(std::ranges::upper_bound(chain, item, {}, side) - chain.begin());
  };
  for (std::size_t i = 0; i < pairs.a.groups.size(); ++i)
    if (is_left(pairs.a, i)) gaps[gap_of(pairs.a.groups[i].first().item, &Anchor::first)].first.push_back(i);
  for (std::size_t j = 0; j < pairs.b.groups.size(); ++j)
    if (is_left(pairs.b, j)) gaps[gap_of(pairs.b.groups[j].first().item, &Anchor::second)].second.push_back(j);
  for (const auto& [place, gap] : gaps)
    if (gap.first.size() <= kMostInGap && gap.second.size() <= kMostInGap) align_gap(pairs, gap.first, gap.second);
}

}  // namespace tenscope::compare
