// Overview. A checkpoint is a run of parameters only, and its tensors are paired as those of runs are
// (content_match.cpp), with what weights need besides:
//
//   - Types of four bits and fewer change the statistics too much to find candidates by them. Here names help: a tensor
//     of each name with its numbers as unknowns (blk.{}.attn_q.weight) is tried with those of each such name on the
//     other side, at the same numbers. What agrees beyond doubt is the rule for the others.
//   - One tensor may be stored several times (an output that is the embedding): all of them follow the first.
//   - A pair counts as found by content only where rounding explains the difference; what is left then goes by rules,
//     and is a finding if it differs.
//   - Tensors of one number are told apart by rules, or not at all: then they are counted.
#include "compare/checkpoint_match.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "compare/content_match.hpp"
#include "compare/name_rules.hpp"
#include "compare/path_rule.hpp"
#include "compare/shape.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

constexpr double kCoarse = 1e-2;        // beyond this rounding, statistics do not find candidates
constexpr std::size_t kMostTried = 64;  // that one tensor of a coarse type is tried with, where names do not help
constexpr std::size_t kTrials = 3;      // numbers at which two names are tried

struct TypeRounding {
  std::string_view type;
  double error;
};
// Measured on normally distributed weights, as ggml quantises them.
constexpr std::array<TypeRounding, 21> kRounding = {{
    {"float16", 2.1e-4},
    {"bfloat16", 1.7e-3},
    {"float8_e4m3fn", 2.7e-2},
    {"float8_e4m3fnuz", 2.7e-2},
    {"float8_e5m2", 5.4e-2},
    {"float8_e5m2fnuz", 5.4e-2},
    {"q8_0", 5.4e-3},
    {"q6_K", 1.8e-2},
    {"q5_0", 4.3e-2},
    {"q5_1", 3.8e-2},
    {"q5_K", 3.6e-2},
    {"q4_0", 8.6e-2},
    {"q4_1", 7.8e-2},
    {"q4_K", 7.1e-2},
    {"iq4_nl", 7.6e-2},
    {"iq4_xs", 7.7e-2},
    {"mxfp4", 1.2e-1},
    {"q3_K", 1.5e-1},
    {"q2_K", 3e-1},
    {"tq1_0", 8e-1},
    {"tq2_0", 8e-1},
}};

class Pairing {
 public:
  Pairing(const Weights& a, const Weights& b, const Interner& interner)
      : a_(a), b_(b), interner_(interner), free_a_(a.records.size(), true), free_b_(b.records.size(), true) {
    for (std::size_t i = 0; i < free_a_.size(); ++i) names_a_[name(a_, i)] = i;
    for (std::size_t j = 0; j < free_b_.size(); ++j) names_b_[name(b_, j)] = j;
    for (const Weights* side : {&a_, &b_})
      for (const TensorRecord& record : side->records)
        for (const std::int64_t size : record.shape)
          if (size > 1) sizes_.insert(size);
    sizes_.insert(head_sizes().begin(), head_sizes().end());
    set_unreadable_aside();
  }

  CheckpointMatch match(const std::vector<std::string>& map) {
    for (const std::string& rule : map) match_map(rule);
    match_names(false);
    const std::vector<std::size_t> repeated_a = set_repeated_aside(a_, free_a_, first_a_),
                                   repeated_b = set_repeated_aside(b_, free_b_, first_b_);
    match_coarse();
    match_content();
    for (WeightMatch& part : match_parts(a_, b_, sizes_, free_a_, free_b_)) take(std::move(part));
    match_rules();
    match_names(true);
    for (const std::size_t i : repeated_a) free_a_[i] = true;
    for (const std::size_t j : repeated_b) free_b_[j] = true;
    match_repeated();
    match_alike();
    for (std::size_t i = 0; i < free_a_.size(); ++i)
      if (free_a_[i] || is_unreadable(a_, i)) result_.alone_a.push_back(i);
    for (std::size_t j = 0; j < free_b_.size(); ++j)
      if (free_b_[j] || is_unreadable(b_, j)) result_.alone_b.push_back(j);
    std::ranges::stable_sort(result_.pairs, {}, [](const WeightMatch& pair) { return std::pair(pair.a, pair.b); });
    return std::move(result_);
  }

 private:
  const StoredTensor& stored_a(std::size_t i) const { return a_.checkpoint.tensors()[i]; }
  const StoredTensor& stored_b(std::size_t j) const { return b_.checkpoint.tensors()[j]; }
  static std::string_view name(const Weights& side, std::size_t i) { return side.checkpoint.tensors()[i].name; }
  static bool is_unreadable(const Weights& side, std::size_t i) { return !side.checkpoint.tensors()[i].is_readable; }

  void set_unreadable_aside() {
    for (std::size_t i = 0; i < free_a_.size(); ++i) free_a_[i] = !is_unreadable(a_, i);
    for (std::size_t j = 0; j < free_b_.size(); ++j) free_b_[j] = !is_unreadable(b_, j);
  }

  double limit(std::size_t i, std::size_t j) const { return rounding_limit(stored_a(i), stored_b(j)); }
  bool agrees(const WeightMatch& pair) const {
    return pair.has_layout && !pair.distance.has_other_finite && pair.distance.error <= limit(pair.a, pair.b);
  }

  void take(WeightMatch pair) {
    free_a_[pair.a] = free_b_[pair.b] = false;
    if (agrees(pair)) {
      const NameTemplate of_a = numbered(name(a_, pair.a), 0), of_b = numbered(name(b_, pair.b), 0);
      rules_.learn(of_a, of_b);
      if (pair.how == WeightHow::Part) part_layouts_.try_emplace({of_a.text, of_b.text}, pair.layout);
    }
    result_.pairs.push_back(std::move(pair));
  }

  // The best layout of two tensors: the same order, one that was found for tensors of these shapes, or a new one.
  WeightMatch compare(std::size_t i, std::size_t j, WeightHow how) {
    WeightMatch best{.a = i, .b = j, .has_layout = false, .how = how};
    const TensorData x = a_.checkpoint.data(i), y = b_.checkpoint.data(j);
    const auto attempt = [&](const Layout& layout) {
      const auto distance = distance_in(x.view, y.view, layout);
      if (!distance || (best.has_layout && distance->error >= best.distance.error)) return;
      best.has_layout = true;
      best.layout = layout;
      best.distance = *distance;
    };
    const Shape &shape_a = a_.records[i].shape, &shape_b = b_.records[j].shape;
    if (without_ones(shape_a) == without_ones(shape_b)) attempt(same_order(without_ones(shape_a)));
    if (agrees(best)) return best;
    std::vector<Layout>& known = layouts_[{shape_a, shape_b}];
    for (const Layout& layout : known) {
      attempt(layout);
      if (agrees(best)) return best;
    }
    const double most = limit(i, j);
    if (const auto found = find_layout(x.view, y.view, sizes_, most); found && found->error <= most) {
      attempt(found->layout);
      known.push_back(found->layout);
    }
    return best;
  }

  // ---- by names

  void match_map(const std::string& text) {
    const PathRule rule(text);
    bool is_used = false;
    for (std::size_t i = 0; i < free_a_.size(); ++i) {
      const auto other = rule.apply(name(a_, i));
      if (!other || !free_a_[i]) continue;
      const auto found = names_b_.find(*other);
      if (found == names_b_.end() || !free_b_[found->second]) continue;
      take(compare(i, found->second, WeightHow::Map));
      is_used = true;
    }
    if (!is_used)
      throw Error(ErrorCode::NotFound,
                  "no tensor of the first checkpoint has a partner in the second by '" + text + "'");
  }

  // Where values disagree, equal names may be chance: what else fits goes first.
  void match_names(bool may_differ) {
    for (std::size_t i = 0; i < free_a_.size(); ++i) {
      const auto found = free_a_[i] ? names_b_.find(name(a_, i)) : names_b_.end();
      if (found == names_b_.end() || !free_b_[found->second]) continue;
      WeightMatch pair = compare(i, found->second, WeightHow::Name);
      if (may_differ || agrees(pair)) take(std::move(pair));
    }
  }

  // ---- what is stored twice

  // Also where there is no element at all.
  static bool is_one_number(const TensorRecord& record) {
    return record.stats.count == 0 || record.stats.min == record.stats.max;
  }

  // The second and later tensors of the same bytes; `first` tells of each which one it repeats.
  static std::vector<std::size_t> set_repeated_aside(const Weights& side, std::vector<bool>& is_free,
                                                     std::map<std::size_t, std::size_t>& first) {
    std::map<std::tuple<std::uint64_t, std::uint64_t, DType, Shape>, std::size_t> seen;
    std::vector<std::size_t> repeated;
    for (std::size_t i = 0; i < side.records.size(); ++i) {
      const TensorRecord& record = side.records[i];
      if (!is_free[i] || record.stats.count < 2 || is_one_number(record)) continue;
      const auto [place, is_new] =
          seen.try_emplace({record.fingerprint.low, record.fingerprint.high, record.dtype, record.shape}, i);
      if (is_new) continue;
      first[i] = place->second;
      is_free[i] = false;
      repeated.push_back(i);
    }
    return repeated;
  }

  static std::vector<std::size_t> all_of(std::size_t first, const std::map<std::size_t, std::size_t>& repeated) {
    std::vector<std::size_t> members = {first};
    for (const auto& [i, of] : repeated)
      if (of == first) members.push_back(i);
    return members;
  }

  // What is stored several times on one side goes with the one of the other side; where it is on both, nothing tells
  // which is which.
  void match_repeated() {
    std::vector<WeightMatch> pairs;
    for (WeightMatch& pair : result_.pairs) {
      AlikeWeights alike{all_of(pair.a, first_a_), all_of(pair.b, first_b_)};
      if (alike.a.size() * alike.b.size() == 1) {
        pairs.push_back(std::move(pair));
        continue;
      }
      for (const std::size_t i : alike.a) free_a_[i] = false;
      for (const std::size_t j : alike.b) free_b_[j] = false;
      if (std::min(alike.a.size(), alike.b.size()) == 1) {
        pair.how = WeightHow::Tied;
        for (const std::size_t i : alike.a)
          for (const std::size_t j : alike.b) {
            pair.a = i;
            pair.b = j;
            pairs.push_back(pair);
          }
      }
      result_.alike.push_back(std::move(alike));
    }
    result_.pairs = std::move(pairs);
  }

  // As many as there are on both sides; those beyond are alone.
  void match_alike() {
    std::map<std::pair<double, std::int64_t>, AlikeWeights> by_number;
    const auto key = [](const Stats& stats) { return std::pair(stats.count == 0 ? 0 : stats.min, stats.count); };
    for (std::size_t i = 0; i < free_a_.size(); ++i)
      if (free_a_[i] && is_one_number(a_.records[i])) by_number[key(a_.records[i].stats)].a.push_back(i);
    for (std::size_t j = 0; j < free_b_.size(); ++j)
      if (free_b_[j] && is_one_number(b_.records[j])) by_number[key(b_.records[j].stats)].b.push_back(j);
    for (auto& [number, alike] : by_number) {
      if (alike.a.size() != alike.b.size()) continue;
      for (const std::size_t i : alike.a) free_a_[i] = false;
      for (const std::size_t j : alike.b) free_b_[j] = false;
      result_.alike.push_back(std::move(alike));
    }
  }

  // ---- by content

  bool is_coarse(std::size_t i, std::size_t j) const { return rounding_of(stored_a(i), stored_b(j)) > kCoarse; }
  bool may_be_same(std::size_t i, std::size_t j) const {
    return free_a_[i] && free_b_[j] && a_.records[i].stats.count == b_.records[j].stats.count && is_coarse(i, j) &&
           !is_one_number(a_.records[i]) && !is_one_number(b_.records[j]);
  }

  // Free tensors by their names with numbers as unknowns.
  static std::map<std::string, std::vector<std::size_t>> by_template(const Weights& side,
                                                                     const std::vector<bool>& is_free) {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < is_free.size(); ++i)
      if (is_free[i]) groups[numbered(name(side, i), 0).text].push_back(i);
    return groups;
  }

  void match_coarse() {
    const auto groups_a = by_template(a_, free_a_), groups_b = by_template(b_, free_b_);
    for (const auto& [text_b, members_b] : groups_b) {
      const auto rule = best_template(groups_a, members_b);
      if (rule == groups_a.end()) continue;
      for (const auto& [i, j] : at_same_numbers(rule->second, members_b))
        if (WeightMatch pair = compare(i, j, WeightHow::Content); agrees(pair)) take(std::move(pair));
    }
    for (std::size_t j = 0; j < free_b_.size(); ++j) {
      std::vector<std::size_t> others;
      for (std::size_t i = 0; i < free_a_.size(); ++i)
        if (may_be_same(i, j)) others.push_back(i);
      if (others.size() <= kMostTried) match_best(others, j);
    }
  }

  using Groups = std::map<std::string, std::vector<std::size_t>>;

  std::vector<std::pair<std::size_t, std::size_t>> at_same_numbers(const std::vector<std::size_t>& members_a,
                                                                   const std::vector<std::size_t>& members_b) const {
    std::map<std::vector<std::int64_t>, std::size_t> numbers;
    for (const std::size_t i : members_a) numbers.emplace(numbered(name(a_, i), 0).numbers, i);
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (const std::size_t j : members_b)
      if (const auto found = numbers.find(numbered(name(b_, j), 0).numbers);
          found != numbers.end() && may_be_same(found->second, j))
        pairs.emplace_back(found->second, j);
    return pairs;
  }

  // The group of a of which a member agrees with the member of b at the same numbers, and no other group's does nearly
  // as well.
  Groups::const_iterator best_template(const Groups& groups_a, const std::vector<std::size_t>& members_b) {
    auto best = groups_a.end();
    double error = kNever, second = kNever;
    for (auto group = groups_a.begin(); group != groups_a.end(); ++group) {
      const auto pairs = at_same_numbers(group->second, members_b);
      double own = kNever;
      for (std::size_t k = 0; k < std::min(pairs.size(), kTrials) && own == kNever; ++k)
        if (const WeightMatch pair = compare(pairs[k].first, pairs[k].second, WeightHow::Content); agrees(pair))
          own = pair.distance.error;
      second = std::min(second, std::max(own, error));
      if (own < error) {
        error = own;
        best = group;
      }
    }
    return error < second * kClearlyBetter ? best : groups_a.end();
  }

  void match_best(const std::vector<std::size_t>& others, std::size_t j) {
    std::optional<WeightMatch> best;
    double second = kNever;
    for (const std::size_t i : others) {
      WeightMatch pair = compare(i, j, WeightHow::Content);
      if (!agrees(pair)) continue;
      second = std::min(second, std::max(pair.distance.error, best ? best->distance.error : kNever));
      if (!best || pair.distance.error < best->distance.error) best = std::move(pair);
    }
    if (best && best->distance.error < second * kClearlyBetter) take(std::move(*best));
  }

  void match_content() {
    std::vector<std::int64_t> partner_a(free_a_.size()), partner_b(free_b_.size());
    for (std::size_t i = 0; i < free_a_.size(); ++i) partner_a[i] = free_a_[i] ? -1 : 0;
    for (std::size_t j = 0; j < free_b_.size(); ++j) partner_b[j] = free_b_[j] ? -1 : 0;
    const auto side = [this](int number) -> const Weights& { return number == 0 ? a_ : b_; };
    const ContentSource source{
        .record = [&](int number, const Item& item) { return side(number).records[item.event]; },
        .data = [&](int number, const Item& item) { return side(number).checkpoint.data(item.event); },
        .meta = [](int, const Item&) { return std::string(); },
        .keep = [](const Item&, const Item&, const Layout&) {},
        .sizes = sizes_};
    std::set<std::size_t> wholes_a, wholes_b;  // of which parts were taken
    for (const ContentPair& one : match_by_content(a_.lane, b_.lane, partner_a, partner_b, interner_, source).pairs) {
      const bool is_part = one.how == ContentHow::Part;
      const bool is_left = (free_a_[one.a] || wholes_a.contains(one.a)) && (free_b_[one.b] || wholes_b.contains(one.b));
      if ((one.how != ContentHow::Content && !is_part) || !is_left) continue;
      WeightMatch pair{
          .a = one.a, .b = one.b, .layout = one.layout, .how = is_part ? WeightHow::Part : WeightHow::Content};
      const TensorData x = a_.checkpoint.data(one.a), y = b_.checkpoint.data(one.b);
      const auto distance = distance_in(x.view, y.view, one.layout);
      if (!distance) continue;
      pair.distance = *distance;
      if (!agrees(pair)) continue;
      if (!one.layout.of_a.empty()) wholes_a.insert(one.a);
      if (!one.layout.of_b.empty()) wholes_b.insert(one.b);
      if (!is_part) layouts_[{a_.records[one.a].shape, b_.records[one.b].shape}].push_back(one.layout);
      take(std::move(pair));
    }
  }

  // ---- by rules

  void match_rules() {
    std::map<NameTemplate, std::size_t> in_b;
    for (std::size_t j = 0; j < free_b_.size(); ++j)
      if (free_b_[j]) in_b.emplace(numbered(name(b_, j), 0), j);
    const std::vector<bool> left_a = free_a_, left_b = free_b_;  // a whole may be taken by several parts
    for (std::size_t i = 0; i < free_a_.size(); ++i) {
      if (!left_a[i]) continue;
      const NameTemplate own = numbered(name(a_, i), 0);
      std::vector<RuleAnswer> answers = rules_.ask(own);
      std::ranges::stable_sort(answers, std::greater<>(), &RuleAnswer::votes);
      for (const RuleAnswer& answer : answers) {
        const auto found = in_b.find(answer.name);
        if (!answer.is_exact || found == in_b.end()) continue;
        const std::size_t j = found->second;
        const auto part = part_layouts_.find({own.text, answer.name.text});
        if (part != part_layouts_.end()) {
          const Layout& layout = part->second;
          const bool is_left =
              (layout.of_a.empty() ? free_a_[i] : left_a[i]) && (layout.of_b.empty() ? free_b_[j] : left_b[j]);
          const TensorData x = a_.checkpoint.data(i), y = b_.checkpoint.data(j);
          const auto distance = is_left ? distance_in(x.view, y.view, layout) : std::nullopt;
          if (distance) take({.a = i, .b = j, .layout = layout, .distance = *distance, .how = WeightHow::Rule});
        } else if (free_a_[i] && free_b_[j]) {
          take(compare(i, j, WeightHow::Rule));
        }
      }
    }
  }

  static constexpr double kNever = 1e300;
  static constexpr double kClearlyBetter = 0.8;

  const Weights& a_;
  const Weights& b_;
  const Interner& interner_;
  std::vector<bool> free_a_, free_b_;
  std::map<std::string_view, std::size_t> names_a_, names_b_;
  std::map<std::size_t, std::size_t> first_a_, first_b_;  // of what is stored twice: the first
  AxisSizes sizes_;
  std::map<std::pair<Shape, Shape>, std::vector<Layout>> layouts_;  // that were found, by shapes
  NameRules rules_;
  std::map<std::pair<std::string, std::string>, Layout> part_layouts_;  // of parts, by names with numbers as unknowns
  CheckpointMatch result_;
};

}  // namespace

std::string_view to_string(WeightHow how) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {"name", "map", "content", "part", "rule", "tied"};
  return kNames[static_cast<std::size_t>(how)];
}

double rounding_of(const StoredTensor& tensor) noexcept {
  const auto found = std::ranges::find(kRounding, tensor.type, &TypeRounding::type);
  return found == kRounding.end() ? 0 : found->error;
}

double rounding_of(const StoredTensor& a, const StoredTensor& b) noexcept {
  return a.type == b.type ? 0 : std::max(rounding_of(a), rounding_of(b));
}

double rounding_limit(const StoredTensor& a, const StoredTensor& b) noexcept {
  constexpr double kFloat32 = 1e-6, kTimes = 3, kMost = 0.95;
  return std::min(std::max(kFloat32, kTimes * rounding_of(a, b)), kMost);
}

const AxisSizes& head_sizes() {
  static const AxisSizes sizes = {8, 16, 32, 64, 80, 96, 128, 256};
  return sizes;
}

CheckpointMatch match_checkpoints(const Weights& a, const Weights& b, const Interner& interner,
                                  const std::vector<std::string>& map) {
  return Pairing(a, b, interner).match(map);
}

}  // namespace tenscope::compare
