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
// Tensors of one run with the same content (an output and the next one's input) are one group and are paired together
// (content_group.hpp). Several parameters of one content (norms as they are initialised) cannot be told apart by it and
// are left to rules. Parts of tensors are in content_parts.cpp, what goes by order in content_order.cpp.
//
// A weight whose content is that of another one, while the names of all others say what it should be, contradicts the
// rules: most likely two weights were exchanged when the model was converted.
#include "compare/content_match.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "compare/content_doubles.hpp"
#include "compare/content_forms.hpp"
#include "compare/content_oddities.hpp"
#include "compare/content_owners.hpp"
#include "compare/content_pairs.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool may_be_same(const Content& a, const Content& b, double level) {
  if (a.is_integer != b.is_integer || (a.filled != b.filled && a.count != b.count)) return false;
  return distance(a, b) <= level;
}

class Matcher {
 public:
  Matcher(const Lane& a, const Lane& b, const std::vector<std::int64_t>& partner_a,
          const std::vector<std::int64_t>& partner_b, const Interner& interner, const ContentSource& source)
      : interner_(interner),
        pairs_(group_by_content(0, a, partner_a, source), group_by_content(1, b, partner_b, source), source) {}

  ContentMatch match() {
    match_values([](const ContentGroup& group) { return group.has_parameter; });
    match_siblings(pairs_, interner_);
    match_operands(a_, b_, false);
    match_operands(b_, a_, true);
    match_values([](const ContentGroup&) { return true; });
    match_parts(pairs_);
    match_rules();
    match_changed_parts(pairs_, interner_);
    match_doubles(pairs_, interner_);
    match_ties(pairs_);
    match_order(pairs_, interner_);
    other_forms_ = drop_other_forms(pairs_, interner_);
    return result();
  }

 private:
  // ---- by values

  // A single number is left to rules and to the order, and so is a result that is one number everywhere: too many are
  // 0, 1 or an epsilon.
  template <class Wanted>
  void match_values(Wanted is_wanted) {
    const auto wanted = [&](const ContentGroup& group) {
      const Content& first = group.first();
      return first.count > 1 && (group.has_parameter || !first.is_constant) && is_wanted(group);
    };
    std::map<std::pair<std::size_t, std::size_t>, FoundLayout> known;
    for (const double level : pairing::kLevels) {
      const double limit = std::clamp(pairing::kValuesOfLevel * level, pairing::kLeastLimit, pairing::kLargestLimit);
      std::vector<std::pair<double, std::size_t>> by_norm;  // of b's free groups
      for (std::size_t j = 0; j < b_.groups.size(); ++j)
        if (b_.is_free(j) && wanted(b_.groups[j])) by_norm.emplace_back(b_.groups[j].first().l2, j);
      std::ranges::sort(by_norm);
      struct Found {
        double error;
        std::size_t a, b;
      };
      std::vector<Found> found;
      for (std::size_t i = 0; i < a_.groups.size(); ++i) {
        if (!a_.is_free(i) || !wanted(a_.groups[i])) continue;
        const Content& a = a_.groups[i].first();
        for (const std::size_t j : candidates(a_.groups[i], by_norm, level)) {
          const Content& b = b_.groups[j].first();
          const auto [place, is_new] = known.try_emplace({i, j}, FoundLayout{{}, kNever});
          if (is_new)
            if (auto one = pairs_.layout(a, b, a.is_integer ? 0 : limit, pairing::kMostOfSample * limit))
              place->second = std::move(*one);
          const double error = place->second.error;
          if (error <= (a.is_integer ? 0 : limit) && bits_of_evidence(a.count, error) >= pairing::kBitsBesideStatistics)
            found.push_back({error, i, j});
        }
      }
      std::ranges::stable_sort(found, {}, &Found::error);
      for (const Found& one : found)
        if (a_.is_free(one.a) && b_.is_free(one.b))
          pairs_.pair(one.a, one.b, known.at({one.a, one.b}), ContentHow::Content);
    }
  }

  // Groups of b whose statistics agree with a's, the nearest first. Where very many have the same norm at this level,
  // statistics do not tell them apart, and none is tried.
  std::vector<std::size_t> candidates(const ContentGroup& group,
                                      const std::vector<std::pair<double, std::size_t>>& by_norm, double level) const {
    const Content& a = group.first();
    constexpr std::ptrdiff_t kMostOfOneNorm = 4096;
    constexpr std::size_t kMostTried = 8;
    const auto begin = std::ranges::lower_bound(by_norm, std::pair{a.l2 * (1 - 2 * level), std::size_t{0}});
    const auto end =
        std::ranges::upper_bound(begin, by_norm.end(), std::pair{a.l2 * (1 + 2 * level), b_.groups.size()});
    if (end - begin > kMostOfOneNorm) return {};
    std::vector<std::pair<double, std::size_t>> near;
    for (auto one = begin; one != end; ++one)
      if (const Content& b = b_.groups[one->second].first();
          may_be_same(a, b, level) && may_be_at_once(group, b_.groups[one->second]))
        near.emplace_back(distance(a, b), one->second);
    std::ranges::sort(near);
    std::vector<std::size_t> groups;
    for (std::size_t k = 0; k < std::min(near.size(), kMostTried); ++k) groups.push_back(near[k].second);
    return groups;
  }

  // Where both runs count the same steps, what one computes in a step the other does not compute in another one, though
  // the numbers may be the same: a token that comes again, at a position that is off by one.
  bool may_be_at_once(const ContentGroup& a, const ContentGroup& b) const {
    if (!have_same_steps_ || a.has_parameter || b.has_parameter) return true;
    const auto step = [](const ContentSide& side, const Content& content) {
      return side.lane.items[content.item].step;
    };
    return step(a_, a.first()) <= step(b_, b.members.back()) && step(b_, b.first()) <= step(a_, a.members.back());
  }

  static std::set<std::int64_t> steps_of(const ContentSide& side) {
    std::set<std::int64_t> steps;
    for (const ContentGroup& group : side.groups)
      if (!group.has_parameter)
        for (const Content& member : group.members) steps.insert(side.lane.items[member.item].step);
    return steps;
  }

  // ---- by operands

  // Where `made` says what its tensors were made of, what is made with the last of a module's weights that were paired
  // (the bias after the matrix) is the output of that module of `modules`.
  void match_operands(ContentSide& modules, ContentSide& made, bool is_swapped) {
    struct Weight {
      TextId module = 0;
      std::size_t group = 0;  // of `made`
    };
    std::unordered_map<std::string, Weight> weights;          // by their names in `made`
    std::unordered_map<TextId, std::set<std::size_t>> owned;  // by module
    std::unordered_map<std::string_view, TextId> modules_of;  // by owners in `made`
    std::vector<std::size_t> strangers;                       // in `made`
    const Owners owners = owners_of(pairs_, interner_);
    const auto name = [&](const ContentSide& side, std::size_t group) {
      return interner_.text(side.lane.items[side.groups[group].first().item].name);
    };
    const auto own = [&](TextId module, std::size_t in_made) {
      owned[module].insert(in_made);
      for (const Content& member : made.groups[in_made].members)
        weights.emplace(interner_.text(made.lane.items[member.item].name), Weight{module, in_made});
    };
    for (const GroupPair& pair : pairs_.pairs()) {
      const std::size_t in_made = is_swapped ? pair.a : pair.b;
      const Item& weight = modules.lane.items[modules.groups[is_swapped ? pair.b : pair.a].first().item];
      if (weight.io != Io::Param || weight.root == 0) continue;
      if (owners.are_strangers(name(a_, pair.a), name(b_, pair.b))) {
        strangers.push_back(in_made);
        continue;
      }
      own(weight.scope, in_made);
      modules_of.emplace(owner_of(name(made, in_made)), weight.scope);
    }
    // A bias that was exchanged with another module's is still what its own module adds.
    for (const std::size_t in_made : strangers)
      if (const auto module = modules_of.find(owner_of(name(made, in_made))); module != modules_of.end())
        own(module->second, in_made);
    if (weights.empty()) return;
    std::unordered_map<TextId, std::vector<std::size_t>> outputs;  // by module, in the order of its calls
    for (std::size_t i = 0; i < modules.lane.items.size(); ++i) {
      const Item& item = modules.lane.items[i];
      if (item.io == Io::Output && interner_.text(item.tail) == "output") outputs[item.scope].push_back(i);
    }
    std::unordered_map<TextId, std::size_t> uses;
    std::unordered_map<TextId, std::set<std::size_t>> seen;  // weights in the call under way
    for (std::size_t j = 0; j < made.lane.items.size(); ++j) {
      const auto found = made.group_of.find(j);
      if (found == made.group_of.end() || made.groups[found->second].has_parameter) continue;
      for (const std::string& input : operands(made.number, made.lane.items[j])) {
        const auto weight = weights.find(input);
        if (weight == weights.end()) continue;
        const TextId module = weight->second.module;
        seen[module].insert(weight->second.group);
        if (seen[module] != owned[module]) continue;
        seen[module].clear();
        const std::vector<std::size_t>& calls = outputs[module];
        const std::size_t use = uses[module]++;
        if (use >= calls.size()) break;
        const auto own = modules.group_of.find(calls[use]);
        if (own == modules.group_of.end()) break;
        pairs_.pair_if_alike(is_swapped ? found->second : own->second, is_swapped ? own->second : found->second,
                             ContentHow::Operands);
        break;
      }
    }
  }

  std::vector<std::string> operands(int side, const Item& item) const {
    const std::string meta = pairs_.source().meta(side, item);
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

  // ---- by rules

  std::vector<NumberedName> names_of(const ContentSide& side) const {
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

  // How names follow from names, by the pairs that were found.
  void match_rules() {
    const std::vector<NumberedName> names_a = names_of(a_), names_b = names_of(b_);
    std::unordered_map<std::size_t, std::vector<const NumberedName*>> members_a, members_b;  // by group
    for (const NumberedName& name : names_a) members_a[name.group].push_back(&name);
    for (const NumberedName& name : names_b) members_b[name.group].push_back(&name);
    NameRules rules;
    std::map<std::pair<std::string, std::string>, const Layout*> parts;  // of names, how one is a part of the other
    for (const GroupPair& pair : pairs_.pairs())
      for (const NumberedName* name : members_a[pair.a])
        for (const NumberedName* other : members_b[pair.b]) {
          rules.learn(name->name, other->name);
          if (pair.how == ContentHow::Part)
            parts.emplace(std::pair{name->name.text, other->name.text}, &pair.found.layout);
        }
    std::map<NameTemplate, const NumberedName*> by_name;
    for (const NumberedName& name : names_b) by_name.emplace(name.name, &name);
    struct Proposal {
      std::size_t votes, a, b;
      std::optional<Layout> part;
    };
    std::vector<Proposal> proposals;
    for (const NumberedName& name : names_a) {
      if (a_.is_taken[name.group]) continue;
      for (const RuleAnswer& answer : rules.ask(name.name)) {
        const auto found = by_name.find(answer.name);
        if (!answer.is_exact || found == by_name.end() || b_.is_taken[found->second->group]) continue;
        const auto part = parts.find({name.name.text, answer.name.text});
        proposals.push_back({answer.votes, name.group, found->second->group,
                             part == parts.end() ? std::nullopt : std::optional(*part->second)});
      }
    }
    find_contradictions(rules, by_name, members_a, members_b);
    std::ranges::stable_sort(proposals, std::greater<>(), &Proposal::votes);
    for (const Proposal& one : proposals) {
      if (one.part)
        pair_part(one.a, one.b, *one.part);
      else
        pairs_.pair_if_alike(one.a, one.b, ContentHow::Rule, ruled(rules, members_a.at(one.a), members_b.at(one.b)));
    }
  }

  // The items of a group of a that rules pair with one of a group of b. (A norm by weights of one has the same values
  // before and after them.)
  static std::set<std::size_t> ruled(const NameRules& rules, const std::vector<const NumberedName*>& members_a,
                                     const std::vector<const NumberedName*>& members_b) {
    std::set<std::size_t> items;
    for (const NumberedName* name : members_a)
      for (const RuleAnswer& answer : rules.ask(name->name))
        if (std::ranges::any_of(members_b, [&](const NumberedName* other) { return other->name == answer.name; }))
          items.insert(name->item);
    return items;
  }

  // A part may be taken once, its whole by several parts.
  void pair_part(std::size_t a, std::size_t b, const Layout& layout) {
    const bool is_a_taken = a_.is_taken[a] && layout.of_a.empty(), is_b_taken = b_.is_taken[b] && layout.of_b.empty();
    if (is_a_taken || is_b_taken) return;
    const TensorData x = pairs_.data(a_, a_.groups[a].first()), y = pairs_.data(b_, b_.groups[b].first());
    if (const auto distance = distance_in(x.view, y.view, layout))
      pairs_.pair(a, b, {layout, distance->error}, ContentHow::Rule);
  }

  using Members = std::unordered_map<std::size_t, std::vector<const NumberedName*>>;

  // Parameters of equal values whose names belong elsewhere by what at least twice as many other pairs say.
  void find_contradictions(const NameRules& rules, const std::map<NameTemplate, const NumberedName*>& by_name,
                           const Members& members_a, const Members& members_b) {
    for (const GroupPair& pair : pairs_.pairs()) {
      if (pair.how != ContentHow::Content || !a_.groups[pair.a].has_parameter) continue;
      const NumberedName &name = *members_a.at(pair.a).front(), &other = *members_b.at(pair.b).front();
      if (members_a.at(pair.a).size() > 1 || members_b.at(pair.b).size() > 1) continue;
      const RuleAnswer* expected = nullptr;
      std::size_t own = 1;
      const std::vector<RuleAnswer> answers = rules.ask(name.name);
      for (const RuleAnswer& answer : answers) {
        if (answer.name == other.name)
          own = answer.votes;
        else if (by_name.contains(answer.name) && (expected == nullptr || answer.votes > expected->votes))
          expected = &answer;
      }
      if (expected != nullptr && expected->votes >= 2 * own)
        contradictions_.push_back({name.item, other.item, by_name.at(expected->name)->item, expected->votes});
    }
  }

  // ---- the result

  // Of a group of b the member that was made with the weights of a module whose output the group of a has. (A norm by
  // weights of one has the same values before and after them.)
  std::optional<std::size_t> made_by_module(const ContentGroup& group, const ContentGroup& other) const {
    if (other.members.size() < 2) return std::nullopt;
    for (const Content& member : group.members) {
      const Item& item = a_.lane.items[member.item];
      const auto weights = weights_of_.find(item.scope);
      if (item.io != Io::Output || weights == weights_of_.end()) continue;
      for (const Content& candidate : other.members)
        for (const std::string& input : operands(b_.number, b_.lane.items[candidate.item]))
          if (weights->second.contains(input)) return candidate.item;
    }
    return std::nullopt;
  }

  // Of a group of b the member that has the same role, or the first.
  std::size_t member_for(const Item& item, const ContentGroup& group, std::optional<std::size_t> preferred) const {
    if (preferred && b_.lane.items[*preferred].step == item.step) return *preferred;
    for (const Content& member : group.members)
      if (b_.lane.items[member.item].io == item.io && b_.lane.items[member.item].step == item.step) return member.item;
    return group.first().item;
  }

  static bool is_part(const ContentPair& pair) { return !pair.layout.of_a.empty() || !pair.layout.of_b.empty(); }

  ContentMatch result() {
    ContentMatch match;
    for (const GroupPair& partner : pairs_.pairs())
      if (a_.groups[partner.a].has_parameter) add_pairs(partner, match);
    for (const ContentPair& pair : match.pairs)
      if (const Item& item = a_.lane.items[pair.a]; item.io == Io::Param && item.root != 0)
        weights_of_[item.scope].emplace(interner_.text(b_.lane.items[pair.b].name));
    for (const GroupPair& partner : pairs_.pairs())
      if (!a_.groups[partner.a].has_parameter) add_pairs(partner, match);
    match.odd_layouts = find_odd_layouts(match.pairs, a_.lane, b_.lane, interner_);
    match.contradictions = contradictions_;
    if (match.contradictions.empty())
      match.contradictions = find_exchanged_layers(match.pairs, a_.lane, b_.lane, interner_);
    if (match.contradictions.empty())
      match.contradictions = find_exchanged_owners(match.pairs, a_.lane, b_.lane, interner_);
    std::ranges::stable_sort(match.pairs, {}, &ContentPair::a);
    match.weight_error = pairs_.weight_error();
    match.other_forms = std::move(other_forms_);
    return match;
  }

  void add_pairs(const GroupPair& partner, ContentMatch& match) const {
    const ContentGroup &group = a_.groups[partner.a], &other = b_.groups[partner.b];
    const bool are_ties = group.is_tie && other.is_tie && partner.how == ContentHow::Order;
    const auto preferred = made_by_module(group, other);
    for (std::size_t k = 0; k < group.members.size(); ++k) {
      const Content& member = group.members[k];
      if (!partner.items_a.empty() && !partner.items_a.contains(member.item)) continue;
      ContentPair pair{.a = member.item,
                       .b = are_ties ? other.members[k].item : member_for(a_.lane.items[member.item], other, preferred),
                       .layout = partner.found.layout,
                       .error = partner.found.error,
                       .how = partner.how};
      if (partner.item_b) {
        pair.b = *partner.item_b;
        match.pairs.push_back(std::move(pair));
        continue;
      }
      if (is_part(pair) && member.shape != group.first().shape) continue;
      if (fit_layout(group.first(), member, other, pair)) match.pairs.push_back(std::move(pair));
    }
  }

  // The layout was found for the first members. A member with other bytes (a transposed view) or another shape has one
  // of its own, or none.
  bool fit_layout(const Content& first_a, const Content& member, const ContentGroup& other, ContentPair& pair) const {
    const Content& first_b = other.first();
    const auto chosen = std::ranges::find(other.members, pair.b, &Content::item);
    const bool is_same = member.shape == first_a.shape && member.fingerprint == first_a.fingerprint &&
                         chosen->shape == first_b.shape && chosen->fingerprint == first_b.fingerprint;
    if (is_same) return true;
    if (is_part(pair)) {
      pair.b = first_b.item;
      return true;
    }
    const double limit = std::max(pairing::kAgreed, pairing::kAgreedNoise * pair.error);
    auto own = pairs_.layout(member, *chosen, limit);
    if (!own || own->error > limit) return false;
    pair.layout = std::move(own->layout);
    pair.error = own->error;
    return true;
  }

  const Interner& interner_;
  ContentPairs pairs_;
  ContentSide &a_ = pairs_.a, &b_ = pairs_.b;
  bool have_same_steps_ = steps_of(a_) == steps_of(b_);
  std::vector<Contradiction> contradictions_;
  std::vector<std::pair<std::size_t, std::size_t>> other_forms_;
  std::unordered_map<TextId, std::set<std::string>> weights_of_;  // of a module of a, by their names in b
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
