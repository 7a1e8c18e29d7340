#include "compare/checkpoint_joined.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "compare/name_rules.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {
namespace {

std::vector<std::string> components(const std::string& name) {
  std::vector<std::string> result(1);
  for (const char c : name) {
    if (c == '.')
      result.emplace_back();
    else
      result.back() += c;
  }
  return result;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// What is different in these names: "q_proj" of "layers.3.q_proj.weight", a number where that is all, or all of each
// name where they are of other forms.
std::vector<std::string> labels_of(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> parts;
  for (const std::string& name : names) parts.push_back(components(name));
  const std::size_t size = parts.front().size();
  if (names.size() == 1) return names;
  if (std::ranges::any_of(parts, [&](const auto& one) { return one.size() != size; })) return names;
  std::vector<std::string> words(names.size()), numbers(names.size());
  for (std::size_t k = 0; k < size; ++k) {
    if (std::ranges::all_of(parts, [&](const auto& one) { return one[k] == parts.front()[k]; })) continue;
    const bool are_numbers = std::ranges::all_of(parts, [&](const auto& one) { return is_number(one[k]); });
    std::vector<std::string>& labels = are_numbers ? numbers : words;
    for (std::size_t i = 0; i < parts.size(); ++i) labels[i] += (labels[i].empty() ? "" : ".") + parts[i][k];
  }
  return words.front().empty() ? numbers : words;
}

struct Part {
  std::size_t pair = 0;
  std::string label;  // what tells it from the whole's other parts: "q_proj"
  Layout::Range range;
  bool is_turned = false;  // transposed, or in another order
};

// A tensor of one side that is several of the other.
struct Whole {
  bool is_in_a = false;
  std::size_t tensor = 0;
  std::vector<Part> parts;  // in their order along the axis

  bool is_by_heads() const { return parts.front().range.period > 0; }
  bool is_numbered() const {
    return std::ranges::all_of(parts, [](const Part& part) { return is_number(part.label); });
  }
  std::string order() const {
    std::vector<std::string> labels;
    const bool are_all_turned = std::ranges::all_of(parts, &Part::is_turned);
    for (const Part& part : parts)
      labels.push_back(part.label + (part.is_turned && !are_all_turned ? " in another order" : ""));
    return fmt::format("{}{}{}", fmt::join(labels, " | "), is_by_heads() ? " of each head" : "",
                       are_all_turned ? ", each in another order" : "");
  }
};

// ---- what names say

}  // namespace

char role_of(std::string_view label) {
  struct Role {
    std::string_view word;
    char role;
  };
  constexpr std::array<Role, 12> kRoles = {{{"query", 'q'},
                                            {"q_proj", 'q'},
                                            {"q_lin", 'q'},
                                            {"key", 'k'},
                                            {"k_proj", 'k'},
                                            {"k_lin", 'k'},
                                            {"value", 'v'},
                                            {"v_proj", 'v'},
                                            {"v_lin", 'v'},
                                            {"gate", 'g'},
                                            {"up_proj", 'u'},
                                            {"ffn_up", 'u'}}};
  for (const Role& one : kRoles)
    if (label.find(one.word) != label.npos) return one.role;
  constexpr std::string_view kLetters = "qkv";
  const char last = label.empty() ? '\0' : label.back(), before = label.size() < 2 ? '_' : label[label.size() - 2];
  if (kLetters.find(last) != kLetters.npos && (before == '_' || (label.size() == 2 && before == 'w'))) return last;
  return label == "up" ? 'u' : '\0';
}

namespace {

enum class Joined : std::uint8_t { InARow, ByHeads, Unknown };

struct KnownWhole {
  std::string_view word;   // in its name
  std::string_view roles;  // in their order
  Joined joined;
};
// As transformers, PyTorch, timm and llama.cpp have them. A name that engines use in several ways is in no list.
constexpr std::array<KnownWhole, 8> kKnownWholes = {{{"query_key_value", "qkv", Joined::ByHeads},
                                                     {"c_attn", "qkv", Joined::InARow},
                                                     {"qkv_proj", "qkv", Joined::InARow},
                                                     {"attn_qkv", "qkv", Joined::InARow},
                                                     {"in_proj_", "qkv", Joined::InARow},
                                                     {"attn.qkv", "qkv", Joined::InARow},
                                                     {"qkv", "qkv", Joined::Unknown},
                                                     {"gate_up", "gu", Joined::InARow}}};

class PartJudge {
 public:
  PartJudge(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff)
      : a_(a), b_(b), match_(match), diff_(diff) {}

  void judge() {
    collect();
    std::map<std::pair<bool, std::string>, std::vector<const Whole*>> kinds;
    for (const Whole& whole : wholes_) {
      kinds[{whole.is_in_a, numbered(name_of(whole), 0).text}].push_back(&whole);
      judge_numbers(whole);
      judge_name(whole);
      judge_rest(whole);
    }
    for (const auto& [kind, members] : kinds) {
      find_odd(members);
      say(members);
    }
  }

 private:
  const Weights& side(const Whole& whole) const { return whole.is_in_a ? a_ : b_; }
  const Weights& other_side(const Whole& whole) const { return whole.is_in_a ? b_ : a_; }
  const std::string& name_of(const Whole& whole) const { return side(whole).checkpoint.tensors()[whole.tensor].name; }
  std::size_t tensor_of(const Whole& whole, const Part& part) const {
    return whole.is_in_a ? match_.pairs[part.pair].b : match_.pairs[part.pair].a;
  }

  void collect() {
    std::map<std::pair<bool, std::size_t>, Whole> wholes;
    for (std::size_t i = 0; i < match_.pairs.size(); ++i) {
      const WeightMatch& pair = match_.pairs[i];
      const bool is_in_a = !pair.layout.of_a.empty();
      const auto& ranges = is_in_a ? pair.layout.of_a : pair.layout.of_b;
      if (ranges.size() != 1) continue;
      Whole& whole = wholes[{is_in_a, is_in_a ? pair.a : pair.b}];
      whole.is_in_a = is_in_a;
      whole.tensor = is_in_a ? pair.a : pair.b;
      whole.parts.push_back({i, {}, ranges.front(), !pair.layout.is_same_order()});
    }
    for (auto& [key, whole] : wholes) {
      std::ranges::sort(whole.parts, {}, [](const Part& part) { return part.range.begin; });
      std::vector<std::string> names;
      for (const Part& part : whole.parts)
        names.push_back(other_side(whole).checkpoint.tensors()[tensor_of(whole, part)].name);
      const std::vector<std::string> labels = labels_of(names);
      for (std::size_t k = 0; k < labels.size(); ++k) whole.parts[k].label = labels[k];
      wholes_.push_back(std::move(whole));
    }
  }

  void blame(const Part& part, const std::string& finding) {
    WeightPair& pair = diff_.pairs[part.pair];
    if (pair.is_changed) return;
    pair.is_changed = true;
    pair.finding = finding;
  }

  // Experts, or layers in a stack, lie in the order of their numbers.
  void judge_numbers(const Whole& whole) {
    if (whole.parts.size() < 2 || !whole.is_numbered()) return;
    std::vector<std::int64_t> numbers;
    for (const Part& part : whole.parts) numbers.push_back(std::stoll(part.label.substr(0, 17)));
    std::vector<std::int64_t> sorted = numbers;
    std::ranges::sort(sorted);
    for (std::size_t k = 0; k < numbers.size(); ++k)
      if (numbers[k] != sorted[k])
        blame(whole.parts[k],
              fmt::format("it is where {} should be in {}, by the order of their numbers", sorted[k], name_of(whole)));
  }

  // Where the whole's name says which parts it has and how they lie.
  void judge_name(const Whole& whole) {
    const std::string& name = name_of(whole);
    const auto known =
        std::ranges::find_if(kKnownWholes, [&](const KnownWhole& one) { return name.find(one.word) != name.npos; });
    if (known == kKnownWholes.end() || whole.parts.size() != known->roles.size()) return;
    std::string roles, sorted_roles, sorted_known(known->roles);
    for (const Part& part : whole.parts) roles += role_of(part.label);
    sorted_roles = roles;
    std::ranges::sort(sorted_roles);
    std::ranges::sort(sorted_known);
    if (sorted_roles != sorted_known) return;
    const auto size = [](const Part& part) { return part.range.end - part.range.begin; };
    const bool is_even =
        std::ranges::all_of(whole.parts, [&](const Part& part) { return size(part) == size(whole.parts.front()); });
    std::string problem;
    if (roles != known->roles)
      problem =
          fmt::format("the parts of {} lie as {}, which is not the order that its name says", name, whole.order());
    else if (known->joined == Joined::ByHeads && is_even && !whole.is_by_heads())
      problem =
          fmt::format("{} has q, k and v of each head together by its name; here they lie one behind another", name);
    else if (known->joined == Joined::InARow && whole.is_by_heads())
      problem =
          fmt::format("the parts of {} lie one behind another by its name; here those of each head are together", name);
    if (problem.empty()) return;
    misnamed_.insert(&whole);
    for (std::size_t k = 0; k < whole.parts.size(); ++k)
      if (roles == known->roles || roles[k] != known->roles[k]) blame(whole.parts[k], problem);
  }

  // What no part covers should be zero: a bias that a part does not have.
  void judge_rest(const Whole& whole) {
    const Stats& all = side(whole).records[whole.tensor].stats;
    double squares = all.l2 * all.l2, limit = 1e-5;
    std::int64_t count = all.count;
    for (const Part& part : whole.parts) {
      const Stats& own = other_side(whole).records[tensor_of(whole, part)].stats;
      const WeightMatch& pair = match_.pairs[part.pair];
      squares -= own.l2 * own.l2;
      count -= own.count;
      limit = std::max(limit, rounding_of(a_.checkpoint.tensors()[pair.a], b_.checkpoint.tensors()[pair.b]));
    }
    if (count > 0 && squares > limit * all.l2 * all.l2)
      blame(whole.parts.front(), fmt::format("{} of the {} elements of {} have no counterpart, and are not zero", count,
                                             all.count, name_of(whole)));
  }

  // Of wholes of one kind, those whose parts lie in another order than in most.
  void find_odd(const std::vector<const Whole*>& members) {
    std::map<std::string, std::vector<const Whole*>> by_order;
    for (const Whole* whole : members)
      if (!misnamed_.contains(whole)) by_order[whole->order()].push_back(whole);
    if (by_order.size() < 2) return;
    const auto most = std::ranges::max_element(by_order, {}, [](const auto& one) { return one.second.size(); });
    for (const auto& [order, own] : by_order) {
      if (order == most->first) continue;
      const std::size_t count = most->second.size();
      const std::string_view doubt = own.size() == count ? ": which is right is not known" : "";
      for (const Whole* whole : own)
        for (const Part& part : whole->parts) {
          const Whole& usual = *most->second.front();
          const auto same = std::ranges::find(usual.parts, part.label, &Part::label);
          if (same != usual.parts.end() && same->range == part.range && same->is_turned == part.is_turned) continue;
          blame(part, fmt::format("the parts of {} lie as {}, in {}{} of its kind as {}{}", name_of(*whole), order,
                                  by_order.size() == 2 ? "the other " : "", count, most->first, doubt));
        }
    }
  }

  void say(const std::vector<const Whole*>& members) {
    std::map<std::string, std::vector<const Whole*>> by_order;
    for (const Whole* whole : members) by_order[whole->order()].push_back(whole);
    for (const auto& [order, own] : by_order) {
      const Whole& first = *own.front();
      const std::string name = own.size() == 1 ? name_of(first) : pattern_in_words(numbered(name_of(first), 0));
      std::string what = order;
      if (first.is_numbered())
        what = fmt::format("{} tensors of {}, such as {}", first.parts.size(), first.is_in_a ? "b" : "a",
                           other_side(first).checkpoint.tensors()[tensor_of(first, first.parts.front())].name);
      diff_.joined.push_back(fmt::format("{} of {} is {}", name, first.is_in_a ? "a" : "b", what));
    }
  }

  const Weights& a_;
  const Weights& b_;
  const CheckpointMatch& match_;
  CheckpointDiff& diff_;
  std::vector<Whole> wholes_;
  std::set<const Whole*> misnamed_;  // that lie otherwise than their name says
};

}  // namespace

void judge_parts(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff) {
  PartJudge(a, b, match, diff).judge();
}

}  // namespace tenscope::compare
