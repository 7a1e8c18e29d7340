#include "compare/content_oddities.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "compare/content_owners.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

struct NamedPair {
  const ContentPair* pair = nullptr;
  NameTemplate a, b;
  std::pair<std::string, std::string> kind() const { return {a.text, b.text}; }
  // One number besides the repetition: that of the layer.
  bool is_of_layer() const { return a.numbers.size() == 2 && b.numbers.size() == 2; }
  std::int64_t shift() const { return b.numbers[0] - a.numbers[0]; }
};

std::vector<NamedPair> parameters_of(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                     const Interner& interner) {
  std::vector<NamedPair> named;
  for (const ContentPair& pair : pairs) {
    const Item &x = a.items[pair.a], &y = b.items[pair.b];
    if (x.io == Io::Param && y.io == Io::Param && (pair.how == ContentHow::Content || pair.how == ContentHow::Part))
      named.push_back({&pair, numbered(interner.text(x.name), 0), numbered(interner.text(y.name), 0)});
  }
  return named;
}

std::int64_t count_of(const Layout& layout) {
  return std::accumulate(layout.sizes.begin(), layout.sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// What most of them are, where at least two and two thirds are the same.
template <class Value>
const std::pair<const Value, std::size_t>* most_of(const std::map<Value, std::size_t>& counts) {
  std::size_t total = 0;
  const std::pair<const Value, std::size_t>* most = nullptr;
  for (const auto& entry : counts) {
    total += entry.second;
    if (most == nullptr || entry.second > most->second) most = &entry;
  }
  return most != nullptr && most->second >= 2 && most->second * 3 >= total * 2 ? most : nullptr;
}

// A layout whatever the sizes are: the order of axes, and which of equal parts it is.
std::string way_of(const Layout& layout) {
  std::string way = fmt::format("{}", fmt::join(layout.order, ","));
  for (const auto* ranges : {&layout.of_a, &layout.of_b})
    for (const Layout::Range& range : *ranges) {
      const std::int64_t size = range.end - range.begin;
      way += fmt::format(";{}:{}:{}", range.axis, range.begin / size, range.period / size);
    }
  return way;
}

// How some parameters lie.
class Ways {
 public:
  void add(const Layout& layout) {
    const std::string way = way_of(layout);
    ++counts_[way];
    examples_.emplace(way, &layout);
    ++count_;
  }
  std::size_t count() const { return count_; }
  // An example of the way that most lie, and how many do; null: no such.
  std::pair<const Layout*, std::size_t> usual() const {
    const auto* most = most_of(counts_);
    return most == nullptr ? std::pair<const Layout*, std::size_t>()
                           : std::pair(examples_.at(most->first), most->second);
  }

 private:
  std::map<std::string, std::size_t> counts_;
  std::map<std::string, const Layout*> examples_;
  std::size_t count_ = 0;
};

}  // namespace

std::vector<Contradiction> find_exchanged_layers(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                                 const Interner& interner) {
  const std::vector<NamedPair> named = parameters_of(pairs, a, b, interner);
  std::map<std::int64_t, std::size_t> shifts;  // of layers, over all names
  std::map<std::pair<std::string, std::string>, std::set<std::int64_t>> by_kind;
  std::map<NameTemplate, std::size_t> items_b;
  for (const NamedPair& one : named) {
    items_b.emplace(one.b, one.pair->b);
    if (!one.is_of_layer()) continue;
    ++shifts[one.shift()];
    by_kind[one.kind()].insert(one.shift());
  }
  std::vector<Contradiction> found;
  const auto* usual = most_of(shifts);
  if (usual == nullptr) return found;
  for (const NamedPair& one : named) {
    const bool is_odd = one.is_of_layer() && one.shift() != usual->first;
    if (!is_odd || by_kind[one.kind()].size() == 1) continue;  // all of this name are numbered otherwise
    const auto expected = items_b.find({one.b.text, {one.a.numbers[0] + usual->first, 0}});
    if (expected != items_b.end()) found.push_back({one.pair->a, one.pair->b, expected->second, usual->second});
  }
  return found;
}

std::vector<Contradiction> find_exchanged_owners(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                                 const Interner& interner) {
  Owners owners;
  std::map<std::string, std::size_t, std::less<>> items_b;
  std::size_t count = 0;
  const auto for_each_parameter = [&](auto&& visit) {
    for (const ContentPair& pair : pairs)
      if (a.items[pair.a].io == Io::Param && b.items[pair.b].io == Io::Param && pair.how == ContentHow::Content)
        visit(pair, interner.text(a.items[pair.a].name), interner.text(b.items[pair.b].name));
  };
  for_each_parameter([&](const ContentPair& pair, std::string_view x, std::string_view y) {
    owners.learn(x, y, count_of(pair.layout));
    items_b.emplace(y, pair.b);
    ++count;
  });
  owners.finish();
  std::vector<Contradiction> found;
  std::set<std::size_t> strangers;  // of b
  for_each_parameter([&](const ContentPair& pair, std::string_view x, std::string_view y) {
    if (!owners.are_strangers(x, y)) return;
    strangers.insert(pair.b);
    const auto expected = items_b.find(std::string(owners.in_b(x)).append(y.substr(owner_of(y).size())));
    if (expected != items_b.end()) found.push_back({pair.a, pair.b, expected->second, 0});
  });
  // What should be there is somewhere else, too.
  std::erase_if(found, [&](const Contradiction& one) { return !strangers.contains(one.expected); });
  for (Contradiction& one : found) one.votes = count - found.size();
  return found;
}

std::vector<OddLayout> find_odd_layouts(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                        const Interner& interner) {
  const std::vector<NamedPair> named = parameters_of(pairs, a, b, interner);
  std::map<std::pair<std::string, std::string>, Ways> by_kind;
  std::map<std::pair<TextId, TextId>, Ways> by_shape;
  Ways of_matrices;  // whose shape says how they lie
  const auto shapes_of = [&](const NamedPair& one) {
    return std::pair(a.items[one.pair->a].shape, b.items[one.pair->b].shape);
  };
  for (const NamedPair& one : named) {
    const Layout& layout = one.pair->layout;
    by_kind[one.kind()].add(layout);
    if (one.pair->how != ContentHow::Content) continue;
    by_shape[shapes_of(one)].add(layout);
    if (layout.sizes.size() == 2 && layout.sizes[0] != layout.sizes[1]) of_matrices.add(layout);
  }
  std::vector<OddLayout> found;
  for (const NamedPair& one : named) {
    const Layout& layout = one.pair->layout;
    const bool is_square = layout.sizes.size() == 2 && layout.sizes[0] == layout.sizes[1];
    const Ways* ways = &by_kind[one.kind()];
    if (ways->count() < pairing::kFewestAlike && one.pair->how == ContentHow::Content) ways = &by_shape[shapes_of(one)];
    if (ways->count() < pairing::kFewestAlike && is_square && one.pair->how == ContentHow::Content) ways = &of_matrices;
    if (ways->count() < 2) continue;
    const auto [usual, votes] = ways->usual();
    if (usual != nullptr && way_of(*usual) != way_of(layout))
      found.push_back({.a = one.pair->a,
                       .b = one.pair->b,
                       .layout = layout.in_words(),
                       .usual = usual->in_words(),
                       .votes = votes});
  }
  return found;
}

}  // namespace tenscope::compare
