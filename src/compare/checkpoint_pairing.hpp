#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/checkpoint_match.hpp"
#include "compare/name_rules.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {

// The work of match_checkpoints. By names, content and rules in checkpoint_match.cpp; what that leaves (copies, biases,
// tensors of one number, what is changed beyond recognition) in checkpoint_left.cpp.
class Pairing {
 public:
  Pairing(const Weights& a, const Weights& b, const Interner& interner);
  CheckpointMatch match(const std::vector<std::string>& map);

 private:
  static constexpr std::size_t kMostTried = 64;  // tensors that one is tried with, where names do not help
  static constexpr std::int64_t kFewestOfCopy = 8;
  using Groups = std::map<std::string, std::vector<std::size_t>>;  // by names with their numbers as unknowns

  const StoredTensor& stored_a(std::size_t i) const { return a_.checkpoint.tensors()[i]; }
  const StoredTensor& stored_b(std::size_t j) const { return b_.checkpoint.tensors()[j]; }
  static std::string_view name(const Weights& side, std::size_t i) { return side.checkpoint.tensors()[i].name; }
  static bool is_unreadable(const Weights& side, std::size_t i) { return !side.checkpoint.tensors()[i].is_readable; }
  // Also where there is no element at all.
  static bool is_one_number(const TensorRecord& record) {
    return record.stats.count == 0 || record.stats.min == record.stats.max;
  }
  static Groups by_template(const Weights& side, const std::vector<bool>& is_free);

  void set_unreadable_aside();
  double limit(std::size_t i, std::size_t j) const { return rounding_limit(stored_a(i), stored_b(j)); }
  bool agrees(const WeightMatch& pair) const;
  void take(WeightMatch pair);
  // In the best layout: the same order, one that was found for tensors of these shapes, or a new one.
  WeightMatch compare(std::size_t i, std::size_t j, WeightHow how);

  void match_map(const std::string& text);
  // Where values disagree, equal names may be chance: what else fits goes first.
  void match_names(bool may_differ);

  bool is_coarse(std::size_t i, std::size_t j) const;
  bool may_be_same(std::size_t i, std::size_t j) const;
  void match_coarse();
  std::vector<std::pair<std::size_t, std::size_t>> at_same_numbers(const std::vector<std::size_t>& members_a,
                                                                   const std::vector<std::size_t>& members_b) const;
  Groups::const_iterator best_template(const Groups& groups_a, const std::vector<std::size_t>& members_b);
  void match_best(const std::vector<std::size_t>& others, std::size_t j);
  void match_content();
  void match_rules();
  static std::vector<NameTemplate> exact_answers(const NameRules& rules, const NameTemplate& name);
  void take_part(std::size_t i, std::size_t j);

  // The second and later tensors of the same bytes; `first` tells of each which one it repeats.
  static std::vector<std::size_t> set_repeated_aside(const Weights& side, std::vector<bool>& is_free,
                                                     std::map<std::size_t, std::size_t>& first);
  static std::vector<std::size_t> all_of(std::size_t first, const std::map<std::size_t, std::size_t>& repeated);
  bool are_tied(const AlikeWeights& alike) const;
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> likely_pairs(const AlikeWeights& alike) const;
  void match_repeated();
  void add_alike(AlikeWeights alike);
  void match_copies();
  void match_siblings();
  void match_part_siblings();
  void match_numbers();
  void match_alike();
  void match_left();

  const Weights& a_;
  const Weights& b_;
  const Interner& interner_;
  std::vector<bool> free_a_, free_b_;
  std::map<std::string_view, std::size_t> names_a_, names_b_;
  std::map<std::size_t, std::size_t> first_a_, first_b_;  // of what is stored twice: the first
  AxisSizes sizes_;
  std::map<std::pair<Shape, Shape>, std::vector<Layout>> layouts_;  // that were found, by shapes
  NameRules rules_, rules_back_;                                    // from a to b, from b to a
  // Of two names without their first number, which is the layer's: an expert's part is at its own number.
  using PartKey = std::tuple<std::string, std::string, std::vector<std::int64_t>, std::vector<std::int64_t>>;
  static PartKey part_key(const NameTemplate& a, const NameTemplate& b) {
    return {a.text, b.text, {a.numbers.begin() + 1, a.numbers.end()}, {b.numbers.begin() + 1, b.numbers.end()}};
  }
  std::map<PartKey, Layout> part_layouts_;
  std::set<std::pair<std::string, std::string>> part_names_;  // that parts have, numbers as unknowns
  using PartPlace = std::tuple<bool, std::size_t, std::size_t, std::int64_t>;
  static PartPlace place_of(std::size_t i, std::size_t j, const Layout& layout) {
    const bool is_in_a = !layout.of_a.empty();
    const Layout::Range& range = (is_in_a ? layout.of_a : layout.of_b).front();
    return {is_in_a, is_in_a ? i : j, range.axis, range.begin};
  }
  bool is_whole(bool is_in_a, std::size_t tensor) const {
    const auto found = part_places_.lower_bound({is_in_a, tensor, 0, 0});
    return found != part_places_.end() && std::get<0>(*found) == is_in_a && std::get<1>(*found) == tensor;
  }
  std::set<PartPlace> part_places_;  // that are taken: in a or in b, the whole, the axis, where it begins
  CheckpointMatch result_;
};

}  // namespace tenscope::compare
