// Overview. Where a step is forgotten (a residual that is not added, a rotation that is left out), its result has the
// values of its input. The two are then one group, which is paired with the other run's input, and the other run's
// result has no partner left. Other layers tell what belongs to it: there names pair the two results. A name counts for
// that where as many pairs speak for it as for the one that equal values suggest.
#include "compare/content_doubles.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compare/name_rules.hpp"

namespace tenscope::compare {
namespace {

struct Member {
  NameTemplate name;
  const Content* content = nullptr;
  std::size_t group = 0;
};

// What is no parameter, by item.
std::map<std::size_t, Member> members_of(const ContentSide& side, const Interner& interner) {
  std::map<std::size_t, Member> members;
  for (std::size_t group = 0; group < side.groups.size(); ++group)
    if (!side.groups[group].has_parameter)
      for (const Content& content : side.groups[group].members) members[content.item] = {{}, &content, group};
  std::unordered_map<TextId, std::int64_t> seen;
  for (std::size_t i = 0; i < side.lane.items.size(); ++i) {
    const std::int64_t repetition = seen[side.lane.items[i].name]++;
    if (const auto member = members.find(i); member != members.end())
      member->second.name = numbered(interner.text(side.lane.items[i].name), repetition);
  }
  return members;
}

// From one run, of which a group may have such a result, to the other, whose result has no partner.
class Doubles {
 public:
  Doubles(ContentPairs& pairs, const Interner& interner, bool is_double_in_a)
      : pairs_(pairs),
        is_double_in_a_(is_double_in_a),
        own_(is_double_in_a ? pairs.a : pairs.b),
        other_(is_double_in_a ? pairs.b : pairs.a),
        members_(members_of(own_, interner)),
        others_(members_of(other_, interner)) {
    for (const auto& [item, member] : others_) by_name_.emplace(member.name, &member);
    for (const GroupPair& pair : pairs.pairs()) {
      const std::size_t own = is_double_in_a ? pair.a : pair.b, other = is_double_in_a ? pair.b : pair.a;
      if (own_.groups[own].has_parameter || other_.groups[other].has_parameter) continue;
      partners_.emplace(own, other);
      for (const Content& x : own_.groups[own].members)
        for (const Content& y : other_.groups[other].members)
          rules_.learn(members_.at(x.item).name, others_.at(y.item).name);
    }
  }

  void match() {
    for (const auto& [item, member] : members_) {
      if (own_.groups[member.group].members.size() < 2 || partners_.count(member.group) != 1) continue;
      const std::size_t partner = partners_.find(member.group)->second;
      const Member* best = nullptr;
      std::size_t votes = 0, votes_for_partner = 0;
      for (const RuleAnswer& answer : rules_.ask(member.name)) {
        const auto found = by_name_.find(answer.name);
        if (!answer.is_exact || found == by_name_.end()) continue;
        const Member& other = *found->second;
        if (other.group == partner) votes_for_partner = std::max(votes_for_partner, answer.votes);
        if (other_.is_taken[other.group] || !is_same_sort(member, other) || answer.votes <= votes) continue;
        best = &other;
        votes = answer.votes;
      }
      if (best != nullptr && votes >= votes_for_partner) pair(item, member, *best);
    }
  }

 private:
  bool is_same_sort(const Member& one, const Member& other) const {
    return one.content->count == other.content->count && one.content->is_integer == other.content->is_integer &&
           own_.lane.items[one.content->item].step == other_.lane.items[other.content->item].step;
  }

  void pair(std::size_t item, const Member& own, const Member& other) {
    const Member &a = is_double_in_a_ ? own : other, &b = is_double_in_a_ ? other : own;
    auto found = pairs_.likely_layout(*a.content, *b.content);
    if (found)
      pairs_.pair_one(a.group, b.group, std::move(*found), is_double_in_a_ ? item : a.content->item, b.content->item);
  }

  ContentPairs& pairs_;
  bool is_double_in_a_;
  const ContentSide &own_, &other_;
  std::map<std::size_t, Member> members_, others_;
  std::map<NameTemplate, const Member*> by_name_;
  std::multimap<std::size_t, std::size_t> partners_;  // groups
  NameRules rules_;
};

}  // namespace

void match_doubles(ContentPairs& pairs, const Interner& interner) {
  for (const bool is_double_in_a : {false, true}) Doubles(pairs, interner, is_double_in_a).match();
}

}  // namespace tenscope::compare
