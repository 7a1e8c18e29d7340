#include "compare/content_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

Shape permuted(const Shape& shape, const std::vector<int>& order) {
  Shape moved;
  for (const int axis : order) moved.push_back(shape[static_cast<std::size_t>(axis)]);
  return moved;
}

}  // namespace

double bits_of_evidence(std::int64_t count, double error) {
  return static_cast<double>(count) * std::log2(1 / std::max(error, pairing::kLeastErrorOfEvidence));
}

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
    const ContentGroup& group = a.groups[group_a];
    if (!group.has_parameter && found.layout.sizes == group.first().shape && !found.layout.is_same_order())
      permutations_.insert(found.layout.order);
  }
  pairs_.push_back({group_a, group_b, std::move(found), how, std::move(items_a), {}});
  a.is_taken[group_a] = b.is_taken[group_b] = true;
}

void ContentPairs::pair_if_alike(std::size_t group_a, std::size_t group_b, ContentHow how,
                                 std::set<std::size_t> items_a) {
  if (a.is_taken[group_a] || b.is_taken[group_b]) return;
  const Content &x = a.groups[group_a].first(), &y = b.groups[group_b].first();
  if (x.count != y.count || x.is_integer != y.is_integer) return;
  auto found = likely_layout(x, y);
  const bool is_sure = how != ContentHow::Order;
  if (is_sure && (!found || found->error > pairing::kSureLayout))
    if (auto other = layout(x, y, pairing::kSureLayout); other && (!found || other->error < found->error / 2))
      found = std::move(other);
  if (found) pair(group_a, group_b, std::move(*found), how, std::move(items_a));
}

void ContentPairs::pair_one(std::size_t group_a, std::size_t group_b, FoundLayout found, std::size_t item_a,
                            std::size_t item_b) {
  for (GroupPair& known : pairs_) {
    if (known.a != group_a) continue;
    if (known.items_a.empty())
      for (const Content& member : a.groups[group_a].members) known.items_a.insert(member.item);
    known.items_a.erase(item_a);
  }
  std::erase_if(pairs_, [&](const GroupPair& known) { return known.a == group_a && known.items_a.empty(); });
  pairs_.push_back({group_a, group_b, std::move(found), ContentHow::Rule, {item_a}, item_b});
  a.is_taken[group_a] = b.is_taken[group_b] = true;
}

void ContentPairs::take_apart(const std::vector<std::size_t>& places) {
  for (const std::size_t place : places | std::views::reverse)
    pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(place));
}

TensorData ContentPairs::data(const ContentSide& side, const Content& content) const {
  return source_.data(side.number, side.lane.items[content.item]);
}

std::optional<FoundLayout> ContentPairs::layout(const Content& x, const Content& y, double limit, double most) const {
  const TensorData data_a = data(a, x), data_b = data(b, y);
  return find_layout(data_a.view, data_b.view, sizes_, limit, most);
}

double ContentPairs::weight_error() const {
  std::vector<double> errors;
  for (const GroupPair& pair : pairs_)
    if (pair.how == ContentHow::Content && a.groups[pair.a].has_parameter) errors.push_back(pair.found.error);
  if (errors.empty()) return 0;
  const auto middle = errors.begin() + std::ssize(errors) / 2;
  std::ranges::nth_element(errors, middle);
  return *middle;
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
  for (const std::vector<int>& order : permutations_)
    if (order.size() == x.shape.size() && permuted(x.shape, order) == y.shape)
      attempt({.sizes = x.shape, .order = order, .of_a = {}, .of_b = {}});
  return best;
}

}  // namespace tenscope::compare
