// Overview. Names and owners pair parameters whose values do not agree. Where they were not loaded rightly, what is
// made with them is wrong. Where what is made with them agrees, and nearly every element is another number, the two
// engines compute the same thing from other numbers. What is made with a parameter is what its module returns; where
// only one run has that, what the module returns that takes it in; and where there is none, what the module around it
// returns.
#include "compare/content_forms.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

// What the modules of one run make.
class Results {
 public:
  Results(const ContentSide& side, const std::unordered_map<std::size_t, double>& errors, const Interner& interner,
          double noise)
      : side_(side),
        errors_(errors),
        interner_(interner),
        same_(std::max(pairing::kSameResult, pairing::kSameResultNoise * noise)) {
    for (std::size_t i = 0; i < side.lane.items.size(); ++i)
      if (const Item& item = side.lane.items[i]; item.io == Io::Output && item.root != 0 && side.group_of.contains(i))
        outputs_[module_of(item)].push_back(side.group_of.at(i));
  }

  bool agree(const Item& parameter) const { return parameter.root != 0 && agree(module_of(parameter), 0); }

 private:
  using Module = std::pair<TextId, std::string>;  // its root and its path

  Module module_of(const Item& item) const { return {item.root, std::string(interner_.text(item.scope))}; }

  bool agree(const Module& module, int depth) const {
    constexpr int kDeepest = 8;
    const auto outputs = outputs_.find(module);
    if (outputs == outputs_.end() || depth > kDeepest) return false;
    std::size_t compared = 0;
    std::vector<Module> takers;
    for (const std::size_t group : outputs->second) {
      if (const auto error = errors_.find(group); error != errors_.end()) {
        if (error->second > same_) return false;
        ++compared;
        continue;
      }
      for (const Content& member : side_.groups[group].members)
        if (const Item& item = side_.lane.items[member.item]; item.io == Io::Input && item.root != 0)
          takers.push_back(module_of(item));
    }
    if (compared > 0) return true;
    if (!takers.empty())
      return std::ranges::all_of(takers, [&](const Module& taker) { return agree(taker, depth + 1); });
    return !module.second.empty() && agree({module.first, std::string(parent_path(module.second))}, depth + 1);
  }

  const ContentSide& side_;
  const std::unordered_map<std::size_t, double>& errors_;  // of paired groups
  const Interner& interner_;
  double same_;
  std::map<Module, std::vector<std::size_t>> outputs_;  // groups
};

// The part of the elements that are other numbers.
double part_that_differs(const ContentPairs& pairs, const GroupPair& pair) {
  const TensorData a = pairs.data(pairs.a, pairs.a.groups[pair.a].first()),
                   b = pairs.data(pairs.b, pairs.b.groups[pair.b].first());
  const std::optional<LaidOut> both = lay_out(a.view, b.view, pair.found.layout);
  if (!both || both->a.empty()) return 0;
  std::size_t others = 0;
  for (std::size_t i = 0; i < both->a.size(); ++i)
    others += !(std::abs(both->b[i] - both->a[i]) <= pairing::kOtherForm * std::abs(both->a[i])) ? 1 : 0;
  return static_cast<double>(others) / static_cast<double>(both->a.size());
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> drop_other_forms(ContentPairs& pairs, const Interner& interner) {
  const double noise = pairs.weight_error();
  std::unordered_map<std::size_t, double> errors_a, errors_b;
  std::vector<std::size_t> apart;  // pairs of parameters
  for (std::size_t k = 0; k < pairs.pairs().size(); ++k) {
    const GroupPair& pair = pairs.pairs()[k];
    if (pairs.a.groups[pair.a].has_parameter && pairs.b.groups[pair.b].has_parameter) {
      if (pair.found.error > std::max(pairing::kOtherForm, pairing::kOtherFormNoise * noise)) apart.push_back(k);
      continue;
    }
    for (const auto& [errors, group] : {std::tie(errors_a, pair.a), std::tie(errors_b, pair.b)}) {
      double& error = errors.try_emplace(group, 0).first->second;
      error = std::max(error, pair.found.error);
    }
  }
  if (apart.empty()) return {};
  const Results results_a(pairs.a, errors_a, interner, noise), results_b(pairs.b, errors_b, interner, noise);
  using Kind = std::pair<std::string, std::string>;
  const auto items_of = [&](std::size_t place) {
    const GroupPair& pair = pairs.pairs()[place];
    return std::pair{pairs.a.groups[pair.a].first().item, pairs.b.groups[pair.b].first().item};
  };
  const auto kind_of = [&](std::size_t place) {
    const auto [a, b] = items_of(place);
    return Kind{numbered(interner.text(pairs.a.lane.items[a].name), 0).text,
                numbered(interner.text(pairs.b.lane.items[b].name), 0).text};
  };
  std::vector<std::pair<std::size_t, std::size_t>> known;
  std::set<Kind> kinds;
  for (const std::size_t place : apart) {
    const auto [a, b] = items_of(place);
    if (!results_a.agree(pairs.a.lane.items[a]) && !results_b.agree(pairs.b.lane.items[b])) continue;
    if (part_that_differs(pairs, pairs.pairs()[place]) < pairing::kOtherFormElements) continue;
    known.emplace_back(a, b);
    kinds.insert(kind_of(place));
  }
  std::erase_if(apart, [&](std::size_t place) { return !kinds.contains(kind_of(place)); });
  pairs.take_apart(apart);
  return known;
}

}  // namespace tenscope::compare
