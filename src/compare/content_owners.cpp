#include "compare/content_owners.hpp"

#include <algorithm>
#include <vector>

namespace tenscope::compare {
namespace {

std::string_view name_of(const ContentSide& side, std::size_t group, const Interner& interner) {
  return interner.text(side.lane.items[side.groups[group].first().item].name);
}

std::string_view own_name(std::string_view name) {
  const std::string_view owner = owner_of(name);
  return name.substr(owner.empty() ? 0 : owner.size() + 1);
}

}  // namespace

std::string_view owner_of(std::string_view name) noexcept {
  const auto end = name.find_last_of("./");
  return end == std::string_view::npos ? std::string_view{} : name.substr(0, end);
}

void Owners::learn(std::string_view name_a, std::string_view name_b, std::int64_t count) {
  const std::string_view a = owner_of(name_a), b = owner_of(name_b);
  if (!a.empty() && !b.empty()) counts_[{std::string(a), std::string(b)}] += count;
}

void Owners::finish() {
  constexpr std::size_t kMostPartners = 2;  // its own, and one that a parameter was exchanged with
  std::map<std::string_view, std::size_t> partners_a, partners_b;
  for (const auto& [owners, count] : counts_) {
    ++partners_a[owners.first];
    ++partners_b[owners.second];
  }
  std::vector<std::pair<std::pair<std::string, std::string>, std::int64_t>> order(counts_.begin(), counts_.end());
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& one) { return one.second; });
  for (const auto& [owners, count] : order) {
    const auto& [a, b] = owners;
    if (partners_a[a] > kMostPartners || partners_b[b] > kMostPartners) continue;
    if (to_b_.contains(a) || to_a_.contains(b)) continue;
    to_b_.emplace(a, b);
    to_a_.emplace(b, a);
  }
}

std::string_view Owners::in_b(std::string_view name_a) const {
  const auto found = to_b_.find(owner_of(name_a));
  return found == to_b_.end() ? std::string_view() : found->second;
}

bool Owners::are_strangers(std::string_view name_a, std::string_view name_b) const {
  const auto partner_of_a = to_b_.find(owner_of(name_a)), partner_of_b = to_a_.find(owner_of(name_b));
  return partner_of_a != to_b_.end() && partner_of_b != to_a_.end() && partner_of_a->second != owner_of(name_b);
}

Owners owners_of(const ContentPairs& pairs, const Interner& interner) {
  Owners owners;
  for (const GroupPair& pair : pairs.pairs())
    if (pairs.a.groups[pair.a].has_parameter && pairs.b.groups[pair.b].has_parameter)
      owners.learn(name_of(pairs.a, pair.a, interner), name_of(pairs.b, pair.b, interner),
                   pairs.a.groups[pair.a].first().count);
  owners.finish();
  return owners;
}

void match_siblings(ContentPairs& pairs, const Interner& interner) {
  const Owners owners = owners_of(pairs, interner);
  const auto is_left = [](const ContentSide& side, std::size_t group) {
    return side.is_free(group) && side.groups[group].has_parameter;
  };
  std::map<std::string_view, std::vector<std::size_t>> left_b;  // by owner
  for (std::size_t j = 0; j < pairs.b.groups.size(); ++j)
    if (is_left(pairs.b, j)) left_b[owner_of(name_of(pairs.b, j, interner))].push_back(j);
  for (std::size_t i = 0; i < pairs.a.groups.size(); ++i) {
    if (!is_left(pairs.a, i)) continue;
    const std::string_view name = name_of(pairs.a, i, interner);
    const std::string_view owner = owners.in_b(name);
    const auto siblings = left_b.find(owner);
    if (owner.empty() || siblings == left_b.end()) continue;
    std::vector<std::size_t> candidates;
    for (const std::size_t j : siblings->second)
      if (pairs.b.groups[j].first().count == pairs.a.groups[i].first().count) candidates.push_back(j);
    const auto namesake = std::ranges::find_if(
        candidates, [&](std::size_t j) { return own_name(name_of(pairs.b, j, interner)) == own_name(name); });
    if (candidates.size() == 1)
      pairs.pair_if_alike(i, candidates.front(), ContentHow::Rule);
    else if (namesake != candidates.end())
      pairs.pair_if_alike(i, *namesake, ContentHow::Rule);
  }
}

}  // namespace tenscope::compare
