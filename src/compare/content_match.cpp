// Overview. Two engines that compute the same thing have no names in common, other shapes and other precisions, but the
// same numbers. What no reordering changes (the number of elements that are not zero, sum, Euclidean norm, extremes) is
// in the journals. Tensors whose statistics agree are candidates, at a tight level of noise first; a candidate counts
// only where a layout is found in which the values agree (layout.hpp).
//
// Parameters go first: they agree whatever went wrong later. Where a recording says what a tensor was made of
// (meta.inputs), the product with a paired weight is the output of the module that owns it. What agrees teaches rules:
// names with their numbers as unknowns (blk.{i}.attn_q is model.layers.{i}.self_attn.q_proj), which pair what has
// diverged. What is left between pairs is aligned in its order.
//
// Tensors of one run with the same content (an output and the next one's input) are one group and are paired together.
// Several parameters of one content (norms as they are initialised) cannot be told apart by it and are left to rules.
#include "compare/content_match.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "compare/name_rules.hpp"
#include "compare/sequence.hpp"

namespace tenscope::compare {
namespace {

constexpr std::array<double, 6> kLevels = {1e-6, 1e-5, 1e-4, 1e-3, 4e-3, 1.5e-2};
constexpr double kSameContent = 1e-9;
constexpr std::int64_t kFewestElements = 16;  // of what is paired by its order or its parts
constexpr std::size_t kMostInGap = 400;
constexpr std::size_t kMostWholes = 256, kMostParts = 64;  // that one slice, or one joined tensor, is tried with

using Shape = std::vector<std::int64_t>;

struct Content {
  std::size_t item = 0;
  Shape shape;  // without axes of size 1
  std::int64_t count = 0, filled = 0;
  double sum = 0, l2 = 0, high = 0, low = 0;
  Fingerprint fingerprint;
  bool is_integer = false, is_parameter = false;
};

// How far the statistics of two tensors are apart, of the order of the noise between the tensors.
double distance(const Content& a, const Content& b) {
  constexpr double kTiny = 1e-30;
  const double l2 = std::max({a.l2, b.l2, kTiny}), peak = std::max({a.high - a.low, b.high - b.low, kTiny});
  return std::max({std::abs(a.l2 - b.l2) / l2, std::abs(a.sum - b.sum) / l2 / 2, std::abs(a.high - b.high) / peak / 2,
                   std::abs(a.low - b.low) / peak / 2});
}

bool may_be_same(const Content& a, const Content& b, double level) {
  if (a.is_integer != b.is_integer || (a.filled != b.filled && a.count != b.count)) return false;
  return distance(a, b) <= level;
}

struct Group {
  std::vector<Content> members;  // in the order of recording
  bool is_tie = false;
  bool has_parameter = false;
  const Content& first() const { return members.front(); }
};

struct Side {
  int number = 0;
  const Lane& lane;
  std::vector<Group> groups;
  std::unordered_map<std::size_t, std::size_t> group_of;  // by item
  std::vector<bool> is_taken;                             // by group
};

class Matcher {
 public:
  Matcher(const Lane& a, const Lane& b, const std::vector<std::int64_t>& partner_a,
          const std::vector<std::int64_t>& partner_b, const Interner& interner, const ContentSource& source)
      : interner_(interner), source_(source), a_{0, a, {}, {}, {}}, b_{1, b, {}, {}, {}} {
    collect(a_, partner_a);
    collect(b_, partner_b);
  }

  ContentMatch match() {
    match_values([](const Group& group) { return group.has_parameter; });
    match_operands(a_, b_, false);
    match_operands(b_, a_, true);
    match_values([](const Group&) { return true; });
    match_slices();
    match_joined();
    match_rules();
    match_order();
    return result();
  }

 private:
  struct Partner {
    std::size_t group = 0;
    FoundLayout found;
    ContentHow how = ContentHow::Content;
  };

  void collect(Side& side, const std::vector<std::int64_t>& partner) {
    std::vector<Content> contents;
    for (std::size_t i = 0; i < side.lane.items.size(); ++i) {
      const Item& item = side.lane.items[i];
      if (!item.is_tensor() || !item.has_bytes || partner[i] >= 0) continue;
      if (item.io == Io::Grad || item.io == Io::GradInput || item.io == Io::GradOutput) continue;
      Content content = make_content(side.number, item, i);
      if (content.count > 1) contents.push_back(std::move(content));
    }
    // By norm, so that equal contents stand together; then back into the order of recording.
    std::vector<std::size_t> order(contents.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return contents[i].l2; });
    std::vector<std::vector<std::size_t>> classes;
    for (const std::size_t i : order) {
      const auto is_same = [&](std::size_t j) {
        const Content &x = contents[i], &y = contents[j];
        return x.is_integer == y.is_integer && x.filled == y.filled &&
               (x.fingerprint == y.fingerprint || distance(x, y) < kSameContent);
      };
      bool is_placed = false;
      for (std::size_t back = 1; back <= std::min<std::size_t>(classes.size(), 8) && !is_placed; ++back) {
        std::vector<std::size_t>& group = classes[classes.size() - back];
        if (!is_same(group.front())) continue;
        group.push_back(i);
        is_placed = true;
      }
      if (!is_placed) classes.push_back({i});
    }
    for (std::vector<std::size_t>& members : classes) std::ranges::sort(members);
    std::ranges::sort(classes, {}, [](const auto& members) { return members.front(); });
    for (const std::vector<std::size_t>& members : classes) {
      Group group;
      std::set<TextId> parameters;
      for (const std::size_t i : members) {
        const Content& content = contents[i];
        if (content.is_parameter) parameters.insert(side.lane.items[content.item].name);
        side.group_of[content.item] = side.groups.size();
        group.members.push_back(content);
        for (const std::int64_t size : content.shape) sizes_.insert(size);
      }
      group.has_parameter = !parameters.empty();
      group.is_tie = parameters.size() > 1;
      side.groups.push_back(std::move(group));
    }
    side.is_taken.assign(side.groups.size(), false);
  }

  Content make_content(int side, const Item& item, std::size_t index) const {
    const TensorRecord record = source_.record(side, item);
    const Stats& stats = record.stats;
    const auto finite = [](double value) { return std::isfinite(value) ? value : 0; };
    Content content;
    content.item = index;
    std::ranges::copy_if(record.shape, std::back_inserter(content.shape), [](std::int64_t size) { return size != 1; });
    content.count = stats.count;
    content.filled = stats.count - stats.zero - stats.neg_inf;
    content.l2 = finite(stats.l2);
    content.sum = finite(stats.mean) * static_cast<double>(stats.count - stats.nan - stats.pos_inf - stats.neg_inf);
    content.high = std::max(finite(stats.max), 0.0);
    content.low = std::min(finite(stats.min), 0.0);
    content.fingerprint = record.fingerprint;
    content.is_integer = kind_of(record.dtype) != DTypeKind::Float && kind_of(record.dtype) != DTypeKind::Complex;
    content.is_parameter = item.io == Io::Param;
    return content;
  }

  TensorData data(const Side& side, const Content& content) const {
    return source_.data(side.number, side.lane.items[content.item]);
  }

  std::optional<FoundLayout> layout(const Content& a, const Content& b, double limit) const {
    const TensorData x = data(a_, a), y = data(b_, b);
    return find_layout(x.view, y.view, sizes_, limit);
  }

  // ---- by values

  template <class Wanted>
  void match_values(Wanted wanted) {
    std::map<std::pair<std::size_t, std::size_t>, FoundLayout> known;
    for (const double level : kLevels) {
      const double limit = std::min(std::max(30 * level, 1e-4), 0.3);
      std::vector<std::pair<double, std::size_t>> by_norm;  // of b's free groups
      for (std::size_t j = 0; j < b_.groups.size(); ++j)
        if (is_free(b_, j) && wanted(b_.groups[j])) by_norm.emplace_back(b_.groups[j].first().l2, j);
      std::ranges::sort(by_norm);
      struct Found {
        double error;
        std::size_t a, b;
      };
      std::vector<Found> found;
      for (std::size_t i = 0; i < a_.groups.size(); ++i) {
        if (!is_free(a_, i) || !wanted(a_.groups[i])) continue;
        const Content& a = a_.groups[i].first();
        for (const std::size_t j : candidates(a, by_norm, level)) {
          const Content& b = b_.groups[j].first();
          const auto [place, is_new] = known.try_emplace({i, j}, FoundLayout{{}, kNever});
          if (is_new)
            if (auto one = layout(a, b, a.is_integer ? 0 : limit)) place->second = std::move(*one);
          if (place->second.error <= (a.is_integer ? 0 : limit)) found.push_back({place->second.error, i, j});
        }
      }
      std::ranges::stable_sort(found, {}, &Found::error);
      for (const Found& one : found)
        if (is_free(a_, one.a) && is_free(b_, one.b)) pair(one.a, one.b, known.at({one.a, one.b}), ContentHow::Content);
    }
  }

  // Groups of b whose statistics agree with a's, the nearest first. Where very many have the same norm at this level,
  // statistics do not tell them apart, and none is tried.
  std::vector<std::size_t> candidates(const Content& a, const std::vector<std::pair<double, std::size_t>>& by_norm,
                                      double level) const {
    constexpr std::ptrdiff_t kMostOfOneNorm = 4096;
    constexpr std::size_t kMostTried = 8;
    const auto begin = std::ranges::lower_bound(by_norm, std::pair{a.l2 * (1 - 2 * level), std::size_t{0}});
    const auto end =
        std::ranges::upper_bound(begin, by_norm.end(), std::pair{a.l2 * (1 + 2 * level), b_.groups.size()});
    if (end - begin > kMostOfOneNorm) return {};
    std::vector<std::pair<double, std::size_t>> near;
    for (auto one = begin; one != end; ++one)
      if (const Content& b = b_.groups[one->second].first(); may_be_same(a, b, level))
        near.emplace_back(distance(a, b), one->second);
    std::ranges::sort(near);
    std::vector<std::size_t> groups;
    for (std::size_t k = 0; k < std::min(near.size(), kMostTried); ++k) groups.push_back(near[k].second);
    return groups;
  }

  // A tie is left alone, unless rules say which is which.
  static bool is_free(const Side& side, std::size_t group) {
    return !side.is_taken[group] && !side.groups[group].is_tie;
  }

  void pair(std::size_t a, std::size_t b, FoundLayout found, ContentHow how) {
    if (how == ContentHow::Content && found.layout.of_a.empty() && found.layout.of_b.empty()) {
      std::vector<Layout>& learned = learned_[{a_.groups[a].first().shape, b_.groups[b].first().shape}];
      if (std::ranges::find(learned, found.layout) == learned.end()) learned.push_back(found.layout);
    }
    partners_[a] = {b, std::move(found), how};
    a_.is_taken[a] = b_.is_taken[b] = true;
  }

  // ---- by operands

  // Where `made` says what its tensors were made of, what is made with a weight that was paired is the output of the
  // module of `modules` that owns the weight.
  void match_operands(Side& modules, Side& made, bool is_swapped) {
    std::unordered_map<std::string, TextId> owner;  // weight of `made`: module
    for (const auto& [a, partner] : partners_) {
      const Group &of_modules = modules.groups[is_swapped ? partner.group : a],
                  &of_made = made.groups[is_swapped ? a : partner.group];
      const Item& weight = modules.lane.items[of_modules.first().item];
      if (weight.io != Io::Param || weight.root == 0) continue;
      for (const Content& member : of_made.members)
        owner.emplace(interner_.text(made.lane.items[member.item].name), weight.scope);
    }
    if (owner.empty()) return;
    std::unordered_map<TextId, std::vector<std::size_t>> outputs;  // by module, in the order of its calls
    for (std::size_t i = 0; i < modules.lane.items.size(); ++i) {
      const Item& item = modules.lane.items[i];
      if (item.io == Io::Output && interner_.text(item.tail) == "output") outputs[item.scope].push_back(i);
    }
    std::unordered_map<TextId, std::size_t> uses;
    for (std::size_t j = 0; j < made.lane.items.size(); ++j) {
      const auto found = made.group_of.find(j);
      if (found == made.group_of.end()) continue;
      for (const std::string& input : operands(made.number, made.lane.items[j])) {
        const auto module = owner.find(input);
        if (module == owner.end()) continue;
        const std::vector<std::size_t>& calls = outputs[module->second];
        const std::size_t use = uses[module->second]++;
        if (use >= calls.size()) break;
        const auto own = modules.group_of.find(calls[use]);
        if (own == modules.group_of.end()) break;
        pair_if_alike(is_swapped ? found->second : own->second, is_swapped ? own->second : found->second,
                      ContentHow::Operands);
        break;
      }
    }
  }

  std::vector<std::string> operands(int side, const Item& item) const {
    const std::string meta = source_.meta(side, item);
    std::vector<std::string> names;
    if (meta.find("\"inputs\"") == std::string::npos) return names;
    simdjson::dom::parser parser;
    simdjson::dom::array inputs;
    if (parser.parse(meta)["inputs"].get(inputs) != simdjson::SUCCESS) return names;
    for (const auto input : inputs) {
      std::string_view name;
      if (input.get(name) == simdjson::SUCCESS) names.emplace_back(name);
    }
    return names;
  }

  // Of what may have diverged the values tell the layout only where they still agree well. Pairs that agree do, where
  // they have the same shapes.
  void pair_if_alike(std::size_t a, std::size_t b, ContentHow how) {
    if (a_.is_taken[a] || b_.is_taken[b]) return;
    const Content &x = a_.groups[a].first(), &y = b_.groups[b].first();
    if (x.count != y.count || x.is_integer != y.is_integer) return;
    auto found = likely_layout(x, y);
    const bool is_sure = how != ContentHow::Order;
    if (is_sure && (!found || found->error > 1e-3))
      if (auto other = layout(x, y, 1e-3); other && (!found || other->error < found->error / 2))
        found = std::move(other);
    if (found) pair(a, b, std::move(*found), how);
  }

  std::optional<FoundLayout> likely_layout(const Content& a, const Content& b) const {
    const TensorData x = data(a_, a), y = data(b_, b);
    std::optional<FoundLayout> best;
    const auto attempt = [&](const Layout& layout) {
      const auto both = lay_out(x.view, y.view, layout);
      if (!both) return;
      const double size = error(both->a, both->b);
      if (!best || size < best->error) best = {layout, size};
    };
    Layout same{.sizes = a.shape, .order = {}, .of_a = {}, .of_b = {}};
    for (std::size_t axis = 0; axis < a.shape.size(); ++axis) same.order.push_back(static_cast<int>(axis));
    attempt(same);
    if (const auto learned = learned_.find({a.shape, b.shape}); learned != learned_.end())
      for (const Layout& layout : learned->second) attempt(layout);
    return best;
  }

  static double error(const std::vector<double>& a, const std::vector<double>& b) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
      difference += (b[i] - a[i]) * (b[i] - a[i]);
      norm += a[i] * a[i];
    }
    return std::sqrt(difference / std::max(norm, 1e-300));
  }

  // ---- by parts

  // Free groups of a by their shape without its first or its last axis.
  std::map<Shape, std::vector<std::size_t>> by_part_of_shape(bool is_without_first) const {
    std::map<Shape, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < a_.groups.size(); ++i) {
      const Content& a = a_.groups[i].first();
      if (!is_free(a_, i) || a.is_integer || a.shape.empty()) continue;
      Shape rest = a.shape;
      rest.erase(is_without_first ? rest.begin() : rest.end() - 1);
      groups[std::move(rest)].push_back(i);
    }
    return groups;
  }

  // b is one slice along the first axis of a: the last token's row, say.
  void match_slices() {
    const std::map<Shape, std::vector<std::size_t>> wholes = by_part_of_shape(true);
    for (std::size_t j = 0; j < b_.groups.size(); ++j) {
      const Content& b = b_.groups[j].first();
      if (!is_free(b_, j) || b.is_integer || b.count < kFewestElements) continue;
      const auto found = wholes.find(b.shape);
      if (found == wholes.end() || found->second.size() > kMostWholes) continue;
      for (const std::size_t i : found->second) {
        const Content& a = a_.groups[i].first();
        if (a_.is_taken[i] || a.l2 < b.l2 * 0.95) continue;
        if (auto slice = best_slice(a, b)) {
          pair(i, j, std::move(*slice), ContentHow::Part);
          break;
        }
      }
    }
  }

  std::optional<FoundLayout> best_slice(const Content& a, const Content& b) const {
    const TensorData x = data(a_, a), y = data(b_, b);
    FoundLayout best{{}, kNever};
    double second = kNever;
    for (std::int64_t row = 0; row < a.shape[0]; ++row) {
      Layout one;
      one.of_a = {{.axis = 0, .begin = row, .end = row + 1}};
      one.sizes = b.shape;
      for (std::size_t axis = 0; axis < b.shape.size(); ++axis) one.order.push_back(static_cast<int>(axis));
      const auto both = lay_out(x.view, y.view, one);
      if (!both) return std::nullopt;
      const double size = error(both->a, both->b);
      second = std::min(second, std::max(size, best.error));
      if (size < best.error) best = {std::move(one), size};
    }
    if (best.error >= 0.05 || second < 5 * best.error) return std::nullopt;
    return best;
  }

  // b is two or three of a's tensors, joined along the last axis: q, k and v in one. Sums and squares add up.
  void match_joined() {
    const std::map<Shape, std::vector<std::size_t>> alike = by_part_of_shape(false);
    for (std::size_t j = 0; j < b_.groups.size(); ++j) {
      const Content& b = b_.groups[j].first();
      if (!is_free(b_, j) || b.is_integer || b.shape.empty() || b.count < kFewestElements) continue;
      const auto found = alike.find(Shape(b.shape.begin(), b.shape.end() - 1));
      if (found == alike.end()) continue;
      std::vector<std::size_t> parts;
      for (const std::size_t i : found->second) {
        const Content& a = a_.groups[i].first();
        if (!a_.is_taken[i] && a.shape.back() < b.shape.back() && a.l2 <= b.l2 * 1.01) parts.push_back(i);
        if (parts.size() == kMostParts) break;
      }
      if (join_parts(parts, j, {}, b.shape.back(), b.l2 * b.l2, b.sum)) b_.is_taken[j] = true;
    }
  }

  bool join_parts(const std::vector<std::size_t>& parts, std::size_t b, std::vector<std::size_t> chosen,
                  std::int64_t width, double square, double sum) {
    const Content& whole = b_.groups[b].first();
    if (width == 0) {
      const bool adds_up = std::abs(square) < 4e-3 * whole.l2 * whole.l2 && std::abs(sum) < 2e-2 * whole.l2;
      return chosen.size() > 1 && adds_up && try_joined(chosen, b);
    }
    if (chosen.size() == 3) return false;
    for (const std::size_t i : parts) {
      const Content& part = a_.groups[i].first();
      if (part.shape.back() > width || std::ranges::find(chosen, i) != chosen.end()) continue;
      std::vector<std::size_t> more = chosen;
      more.push_back(i);
      if (square - part.l2 * part.l2 < -4e-3 * whole.l2 * whole.l2) continue;
      if (join_parts(parts, b, std::move(more), width - part.shape.back(), square - part.l2 * part.l2, sum - part.sum))
        return true;
    }
    return false;
  }

  bool try_joined(const std::vector<std::size_t>& parts, std::size_t b) {
    const Content& whole = b_.groups[b].first();
    const TensorData y = data(b_, whole);
    std::vector<FoundLayout> found;
    std::int64_t begin = 0;
    for (const std::size_t i : parts) {
      const Content& part = a_.groups[i].first();
      Layout one;
      one.of_b = {{.axis = whole.shape.size() - 1, .begin = begin, .end = begin + part.shape.back()}};
      one.sizes = part.shape;
      for (std::size_t axis = 0; axis < part.shape.size(); ++axis) one.order.push_back(static_cast<int>(axis));
      begin += part.shape.back();
      const TensorData x = data(a_, part);
      const auto both = lay_out(x.view, y.view, one);
      if (!both) return false;
      found.push_back({std::move(one), error(both->a, both->b)});
      if (found.back().error > 0.03) return false;
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      partners_[parts[k]] = {b, std::move(found[k]), ContentHow::Part};
      a_.is_taken[parts[k]] = true;
    }
    return true;
  }

  // ---- by rules

  std::vector<NumberedName> names_of(const Side& side) const {
    std::unordered_map<TextId, std::int64_t> seen;
    std::vector<NumberedName> names;
    for (std::size_t i = 0; i < side.lane.items.size(); ++i) {
      const Item& item = side.lane.items[i];
      const std::int64_t repetition = seen[item.name]++;
      if (const auto group = side.group_of.find(i); group != side.group_of.end())
        names.push_back({numbered(interner_.text(item.name), repetition), i, group->second});
    }
    return names;
  }

  void match_rules() {
    const std::vector<NumberedName> names_a = names_of(a_), names_b = names_of(b_);
    std::unordered_map<std::size_t, std::vector<const NumberedName*>> members_b;  // by group
    for (const NumberedName& name : names_b) members_b[name.group].push_back(&name);
    NameRules rules;
    for (const NumberedName& name : names_a) {
      const auto partner = partners_.find(name.group);
      if (partner == partners_.end()) continue;
      for (const NumberedName* other : members_b[partner->second.group]) rules.learn(name.name, other->name);
    }
    std::map<NameTemplate, const NumberedName*> by_name;
    for (const NumberedName& name : names_b) by_name.emplace(name.name, &name);
    struct Proposal {
      std::size_t votes, a, b;
    };
    std::vector<Proposal> proposals;
    for (const NumberedName& name : names_a) {
      if (a_.is_taken[name.group]) continue;
      for (const RuleAnswer& answer : rules.ask(name.name))
        if (const auto found = by_name.find(answer.name); found != by_name.end() && !b_.is_taken[found->second->group])
          proposals.push_back({answer.votes, name.group, found->second->group});
    }
    std::ranges::stable_sort(proposals, std::greater<>(), &Proposal::votes);
    for (const Proposal& proposal : proposals) pair_if_alike(proposal.a, proposal.b, ContentHow::Rule);
  }

  // ---- by order

  void match_order() {
    // Anchors: pairs that ascend in both runs.
    std::vector<std::pair<std::size_t, std::size_t>> anchors;
    for (const auto& [a, partner] : partners_)
      if (!a_.groups[a].has_parameter)
        anchors.emplace_back(a_.groups[a].first().item, b_.groups[partner.group].first().item);
    std::ranges::sort(anchors);
    const std::vector<std::pair<std::size_t, std::size_t>> chain = longest_ascending(anchors);
    std::map<std::size_t, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> gaps;
    const auto is_left = [](const Side& side, std::size_t group) {
      const Group& g = side.groups[group];
      return !side.is_taken[group] && !g.has_parameter && !g.first().is_integer && g.first().count >= kFewestElements;
    };
    const auto gap_of = [&](std::size_t item, std::size_t std::pair<std::size_t, std::size_t>::* side) {
      return static_cast<std::size_t>(std::ranges::upper_bound(chain, item, {}, side) - chain.begin());
    };
    using Anchor = std::pair<std::size_t, std::size_t>;
    for (std::size_t i = 0; i < a_.groups.size(); ++i)
      if (is_left(a_, i)) gaps[gap_of(a_.groups[i].first().item, &Anchor::first)].first.push_back(i);
    for (std::size_t j = 0; j < b_.groups.size(); ++j)
      if (is_left(b_, j)) gaps[gap_of(b_.groups[j].first().item, &Anchor::second)].second.push_back(j);
    for (const auto& [place, gap] : gaps)
      if (gap.first.size() <= kMostInGap && gap.second.size() <= kMostInGap) align_gap(gap.first, gap.second);
  }

  static std::vector<std::pair<std::size_t, std::size_t>> longest_ascending(
      const std::vector<std::pair<std::size_t, std::size_t>>& anchors) {
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
    std::vector<std::pair<std::size_t, std::size_t>> chain;
    for (std::size_t k = tails.empty() ? anchors.size() : tails.back(); k < anchors.size(); k = before[k])
      chain.push_back(anchors[k]);
    std::ranges::reverse(chain);
    return chain;
  }

  double likeness(std::size_t i, std::size_t j) const {
    const Content &a = a_.groups[i].first(), &b = b_.groups[j].first();
    if (a.count != b.count || a.l2 == 0 || b.l2 == 0) return 0;
    const double norms = std::exp(-5 * std::abs(std::log(a.l2 / b.l2)));
    if (norms < 0.05) return 0;
    const auto found = likely_layout(a, b);
    if (!found) return 0;
    const double cosine = (a.l2 * a.l2 + b.l2 * b.l2 - found->error * found->error * a.l2 * a.l2) / (2 * a.l2 * b.l2);
    return norms + 2 * std::max(0.0, cosine) - 0.6;
  }

  void align_gap(const std::vector<std::size_t>& left_a, const std::vector<std::size_t>& left_b) {
    if (left_a.empty() || left_b.empty()) return;
    std::vector<std::vector<double>> fit(left_a.size(), std::vector<double>(left_b.size()));
    for (std::size_t i = 0; i < left_a.size(); ++i)
      for (std::size_t j = 0; j < left_b.size(); ++j) fit[i][j] = likeness(left_a[i], left_b[j]);
    std::vector<std::vector<double>> best(left_a.size() + 1, std::vector<double>(left_b.size() + 1));
    for (std::size_t i = left_a.size(); i-- > 0;)
      for (std::size_t j = left_b.size(); j-- > 0;)
        best[i][j] = std::max({best[i + 1][j], best[i][j + 1], fit[i][j] > 0 ? best[i + 1][j + 1] + fit[i][j] : 0.0});
    for (std::size_t i = 0, j = 0; i < left_a.size() && j < left_b.size();) {
      if (fit[i][j] > 0 && best[i][j] == best[i + 1][j + 1] + fit[i][j]) {
        pair_if_alike(left_a[i], left_b[j], ContentHow::Order);
        ++i, ++j;
      } else if (best[i][j] == best[i + 1][j]) {
        ++i;
      } else {
        ++j;
      }
    }
  }

  // ---- the result

  // Of a group of b the member that has the same role, or the first.
  std::size_t member_for(const Item& item, const Group& group) const {
    for (const Content& member : group.members)
      if (b_.lane.items[member.item].io == item.io && b_.lane.items[member.item].step == item.step) return member.item;
    return group.first().item;
  }

  ContentMatch result() const {
    ContentMatch match;
    std::vector<double> weights;
    for (const auto& [a, partner] : partners_) {
      const Group &group = a_.groups[a], &other = b_.groups[partner.group];
      for (const Content& member : group.members) {
        ContentPair pair{.a = member.item,
                         .b = member_for(a_.lane.items[member.item], other),
                         .layout = partner.found.layout,
                         .error = partner.found.error,
                         .how = partner.how};
        if (partner.how == ContentHow::Part && member.shape != group.first().shape) continue;
        if (fit_layout(group.first(), member, other, pair)) match.pairs.push_back(std::move(pair));
      }
      if (group.has_parameter && partner.how == ContentHow::Content) weights.push_back(partner.found.error);
    }
    for (std::size_t i = 0; i < a_.groups.size(); ++i)
      match.ties += a_.groups[i].is_tie && !a_.is_taken[i] ? a_.groups[i].members.size() : 0;
    std::ranges::sort(match.pairs, {}, &ContentPair::a);
    if (!weights.empty()) {
      std::ranges::nth_element(weights, weights.begin() + static_cast<std::ptrdiff_t>(weights.size() / 2));
      match.weight_error = weights[weights.size() / 2];
    }
    return match;
  }

  // The layout was found for the first members. A member with other bytes (a transposed view) or another shape has one
  // of its own, or none.
  bool fit_layout(const Content& first_a, const Content& member, const Group& other, ContentPair& pair) const {
    const Content& first_b = other.first();
    const auto chosen = std::ranges::find(other.members, pair.b, &Content::item);
    const bool is_same = member.shape == first_a.shape && member.fingerprint == first_a.fingerprint &&
                         chosen->shape == first_b.shape && chosen->fingerprint == first_b.fingerprint;
    if (is_same) return true;
    if (pair.how == ContentHow::Part) {
      pair.b = first_b.item;
      return true;
    }
    const double limit = std::max(1e-3, 2 * pair.error);
    auto own = layout(member, *chosen, limit);
    if (!own || own->error > limit) return false;
    pair.layout = std::move(own->layout);
    pair.error = own->error;
    return true;
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const Interner& interner_;
  const ContentSource& source_;
  Side a_, b_;
  AxisSizes sizes_;
  std::map<std::size_t, Partner> partners_;  // by group of a
  std::map<std::pair<Shape, Shape>, std::vector<Layout>> learned_;
};

}  // namespace

std::string_view to_string(ContentHow how) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"content", "operands", "part", "rule", "order"};
  return kNames[static_cast<std::size_t>(how)];
}

ContentMatch match_by_content(const Lane& a, const Lane& b, const std::vector<std::int64_t>& partner_a,
                              const std::vector<std::int64_t>& partner_b, const Interner& interner,
                              const ContentSource& source) {
  return Matcher(a, b, partner_a, partner_b, interner, source).match();
}

}  // namespace tenscope::compare
