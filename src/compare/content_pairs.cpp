#include "compare/content_pairs.hpp"

#include <algorithm>

namespace tenscope::compare {

ContentPairs::ContentPairs(ContentSide side_a, ContentSide side_b, const ContentSource& source)
    : a(std::move(side_a)), b(std::move(side_b)), source_(source), sizes_(source.sizes) {
  for (const ContentSide* side : {&a, &b})
    for (const ContentGroup& group : side->groups)
      for (const Content& member : group.members) sizes_.insert(member.shape.begin(), member.shape.end());
}

void ContentPairs::pair(std::size_t group_a, std::size_t group_b, FoundLayout found, ContentHow how,
                        std::set<std::size_t> items_a) {
  if (how == ContentHow::Content && found.layout.of_a.empty() && found.layout.of_b.empty()) {
    std::vector<Layout>& learned = learned_[{a.groups[group_a].first().shape, b.groups[group_b].first().shape}];
    if (std::ranges::find(learned, found.layout) == learned.end()) learned.push_back(found.layout);
  }
  pairs_.push_back({group_a, group_b, std::move(found), how, std::move(items_a)});
  a.is_taken[group_a] = b.is_taken[group_b] = true;
}

void ContentPairs::pair_if_alike(std::size_t group_a, std::size_t group_b, ContentHow how,
                                 std::set<std::size_t> items_a) {
  if (a.is_taken[group_a] || b.is_taken[group_b]) return;
  const Content &x = a.groups[group_a].first(), &y = b.groups[group_b].first();
  if (x.count != y.count || x.is_integer != y.is_integer) return;
  auto found = likely_layout(x, y);
  const bool is_sure = how != ContentHow::Order;
  if (is_sure && (!found || found->error > 1e-3))
    if (auto other = layout(x, y, 1e-3); other && (!found || other->error < found->error / 2)) found = std::move(other);
  if (found) pair(group_a, group_b, std::move(*found), how, std::move(items_a));
}

TensorData ContentPairs::data(const ContentSide& side, const Content& content) const {
  return source_.data(side.number, side.lane.items[content.item]);
}

std::optional<FoundLayout> ContentPairs::layout(const Content& x, const Content& y, double limit, double most) const {
  const TensorData data_a = data(a, x), data_b = data(b, y);
  return find_layout(data_a.view, data_b.view, sizes_, limit, most);
}

std::optional<FoundLayout> ContentPairs::likely_layout(const Content& x, const Content& y) const {
  const TensorData data_a = data(a, x), data_b = data(b, y);
  std::optional<FoundLayout> best;
  const auto attempt = [&](const Layout& layout) {
    const auto distance = distance_in(data_a.view, data_b.view, layout);
    if (distance && (!best || distance->error < best->error)) best = {layout, distance->error};
  };
  attempt(same_order(x.shape));
  if (const auto learned = learned_.find({x.shape, y.shape}); learned != learned_.end())
    for (const Layout& layout : learned->second) attempt(layout);
  return best;
}

}  // namespace tenscope::compare
