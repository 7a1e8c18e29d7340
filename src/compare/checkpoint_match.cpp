// Overview. A checkpoint is a run of parameters only, and its tensors are paired as those of runs are
// (content_match.cpp), with what weights need besides:
//
//   - Types of four bits and fewer change the statistics too much to find candidates by them. Here names help: a tensor
//     of each name with its numbers as unknowns (blk.{}.attn_q.weight) is tried with those of each such name on the
//     other side, at the same numbers. What agrees beyond doubt is the rule for the others.
//   - One tensor may be stored several times (an output that is the embedding): all of them follow the first.
//   - What values do not tell goes by the names around it (checkpoint_left.cpp): a bias goes with its weight.
//   - A pair counts as found by content only where rounding explains the difference; what is left then goes by rules,
//     and is a finding if it differs.
//   - Tensors of one number are told apart by rules, or not at all: then they are counted.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compare/checkpoint_pairing.hpp"
#include "compare/content_match.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/path_rule.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kTrials = 3;  // numbers at which two names are tried

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

constexpr double kNever = 1e300;

}  // namespace

Pairing::Pairing(const Weights& a, const Weights& b, const Interner& interner)
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

CheckpointMatch Pairing::match(const std::vector<std::string>& map) {
  for (const std::string& rule : map) match_map(rule);
  match_names(false);
  const std::vector<std::size_t> repeated_a = set_repeated_aside(a_, free_a_, first_a_),
                                 repeated_b = set_repeated_aside(b_, free_b_, first_b_);
  match_coarse();
  match_content();
  for (WeightMatch& part : match_parts(a_, b_, sizes_, free_a_, free_b_, false)) take(std::move(part));
  match_rules();
  match_names(true);
  for (const std::size_t i : repeated_a) free_a_[i] = true;
  for (const std::size_t j : repeated_b) free_b_[j] = true;
  match_repeated();
  match_rules();
  match_siblings();
  for (WeightMatch& part : match_parts(a_, b_, sizes_, free_a_, free_b_, true)) take(std::move(part));
  match_part_siblings();
  match_copies();
  match_numbers();
  match_alike();
  match_left();
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i] || is_unreadable(a_, i)) result_.alone_a.push_back(i);
  for (std::size_t j = 0; j < free_b_.size(); ++j)
    if (free_b_[j] || is_unreadable(b_, j)) result_.alone_b.push_back(j);
  std::ranges::stable_sort(result_.pairs, {}, [](const WeightMatch& pair) { return std::pair(pair.a, pair.b); });
  return std::move(result_);
}

void Pairing::set_unreadable_aside() {
  for (std::size_t i = 0; i < free_a_.size(); ++i) free_a_[i] = !is_unreadable(a_, i);
  for (std::size_t j = 0; j < free_b_.size(); ++j) free_b_[j] = !is_unreadable(b_, j);
}

bool Pairing::agrees(const WeightMatch& pair) const {
  return pair.has_layout && !pair.distance.has_other_finite && pair.distance.error <= limit(pair.a, pair.b);
}

void Pairing::take(WeightMatch pair) {
  free_a_[pair.a] = free_b_[pair.b] = false;
  if (agrees(pair)) {
    const NameTemplate of_a = numbered(name(a_, pair.a), 0), of_b = numbered(name(b_, pair.b), 0);
    rules_.learn(of_a, of_b);
    rules_back_.learn(of_b, of_a);
    if (pair.how == WeightHow::Part) {
      part_layouts_.try_emplace(part_key(of_a, of_b), pair.layout);
      part_names_.emplace(of_a.text, of_b.text);
    }
  }
  if (!pair.layout.of_a.empty() || !pair.layout.of_b.empty())
    part_places_.insert(place_of(pair.a, pair.b, pair.layout));
  result_.pairs.push_back(std::move(pair));
}

WeightMatch Pairing::compare(std::size_t i, std::size_t j, WeightHow how) {
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

void Pairing::match_map(const std::string& text) {
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
    throw Error(ErrorCode::NotFound, "no tensor of the first checkpoint has a partner in the second by '" + text + "'");
}

void Pairing::match_names(bool may_differ) {
  for (std::size_t i = 0; i < free_a_.size(); ++i) {
    const auto found = free_a_[i] ? names_b_.find(name(a_, i)) : names_b_.end();
    if (found == names_b_.end() || !free_b_[found->second]) continue;
    WeightMatch pair = compare(i, found->second, WeightHow::Name);
    if (may_differ || agrees(pair)) take(std::move(pair));
  }
}

bool Pairing::is_coarse(std::size_t i, std::size_t j) const {
  return rounding_of(stored_a(i), stored_b(j)) > pairing::kCoarseRounding;
}

bool Pairing::may_be_same(std::size_t i, std::size_t j) const {
  return free_a_[i] && free_b_[j] && a_.records[i].stats.count == b_.records[j].stats.count && is_coarse(i, j) &&
         !is_one_number(a_.records[i]) && !is_one_number(b_.records[j]);
}

Pairing::Groups Pairing::by_template(const Weights& side, const std::vector<bool>& is_free) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < is_free.size(); ++i)
    if (is_free[i]) groups[numbered(name(side, i), 0).text].push_back(i);
  return groups;
}

void Pairing::match_coarse() {
  const auto groups_a = by_template(a_, free_a_), groups_b = by_template(b_, free_b_);
  for (const auto& [text_b, members_b] : groups_b) {
    const auto rule = best_template(groups_a, members_b);
    if (rule == groups_a.end()) continue;
    for (const auto& [i, j] : at_same_numbers(rule->second, members_b))
      if (free_a_[i] && free_b_[j])
        if (WeightMatch pair = compare(i, j, WeightHow::Content); agrees(pair)) take(std::move(pair));
  }
  for (std::size_t j = 0; j < free_b_.size(); ++j) {
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < free_a_.size(); ++i)
      if (may_be_same(i, j)) others.push_back(i);
    if (others.size() <= kMostTried) match_best(others, j);
  }
}

// Where one name has more numbers than the other (encoder.block.3.layer.0), the first ones count.
std::vector<std::pair<std::size_t, std::size_t>> Pairing::at_same_numbers(
    const std::vector<std::size_t>& members_a, const std::vector<std::size_t>& members_b) const {
  const std::size_t count = std::min(numbered(name(a_, members_a.front()), 0).numbers.size(),
                                     numbered(name(b_, members_b.front()), 0).numbers.size()) -
                            1;
  const auto first_numbers = [&](const Weights& side, std::size_t i) {
    std::vector<std::int64_t> numbers = numbered(name(side, i), 0).numbers;
    numbers.resize(count);
    return numbers;
  };
  std::multimap<std::vector<std::int64_t>, std::size_t> by_numbers;
  for (const std::size_t i : members_a) by_numbers.emplace(first_numbers(a_, i), i);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const std::size_t j : members_b) {
    const auto [begin, end] = by_numbers.equal_range(first_numbers(b_, j));
    for (auto one = begin; one != end; ++one)
      if (may_be_same(one->second, j)) pairs.emplace_back(one->second, j);
  }
  return pairs;
}

Pairing::Groups::const_iterator Pairing::best_template(const Groups& groups_a,
                                                       const std::vector<std::size_t>& members_b) {
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
  return error < second * pairing::kClearlyBetter ? best : groups_a.end();
}

void Pairing::match_best(const std::vector<std::size_t>& others, std::size_t j) {
  std::optional<WeightMatch> best;
  double second = kNever;
  for (const std::size_t i : others) {
    WeightMatch pair = compare(i, j, WeightHow::Content);
    if (!agrees(pair)) continue;
    second = std::min(second, std::max(pair.distance.error, best ? best->distance.error : kNever));
    if (!best || pair.distance.error < best->distance.error) best = std::move(pair);
  }
  if (best && best->distance.error < second * pairing::kClearlyBetter) take(std::move(*best));
}

void Pairing::match_content() {
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
  std::vector<WeightMatch> changed;          // parts with other values
  for (const ContentPair& one : match_by_content(a_.lane, b_.lane, partner_a, partner_b, interner_, source).pairs) {
    const bool is_part = one.how == ContentHow::Part;
    const bool is_left = (free_a_[one.a] || wholes_a.contains(one.a)) && (free_b_[one.b] || wholes_b.contains(one.b));
    if ((one.how != ContentHow::Content && !is_part) || !is_left || is_one_number(a_.records[one.a])) continue;
    WeightMatch pair{
        .a = one.a, .b = one.b, .layout = one.layout, .how = is_part ? WeightHow::Part : WeightHow::Content};
    const TensorData x = a_.checkpoint.data(one.a), y = b_.checkpoint.data(one.b);
    const auto distance = distance_in(x.view, y.view, one.layout);
    if (!distance) continue;
    pair.distance = *distance;
    if (!agrees(pair)) {
      if (is_part) changed.push_back(std::move(pair));
      continue;
    }
    if (!one.layout.of_a.empty()) wholes_a.insert(one.a);
    if (!one.layout.of_b.empty()) wholes_b.insert(one.b);
    if (!is_part) layouts_[{a_.records[one.a].shape, b_.records[one.b].shape}].push_back(one.layout);
    take(std::move(pair));
  }
  for (WeightMatch& pair : changed) {
    const bool is_in_a = !pair.layout.of_a.empty();
    if (is_in_a ? wholes_a.contains(pair.a) && free_b_[pair.b] : wholes_b.contains(pair.b) && free_a_[pair.a])
      take(std::move(pair));
  }
}

void Pairing::match_rules() {
  // What is left, and wholes, of which several parts may be taken.
  std::map<NameTemplate, std::size_t> in_a, in_b;
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i] || is_whole(true, i)) in_a.emplace(numbered(name(a_, i), 0), i);
  for (std::size_t j = 0; j < free_b_.size(); ++j)
    if (free_b_[j] || is_whole(false, j)) in_b.emplace(numbered(name(b_, j), 0), j);
  for (std::size_t i = 0; i < free_a_.size(); ++i) {
    if (!free_a_[i]) continue;
    const NameTemplate own = numbered(name(a_, i), 0);
    for (const NameTemplate& other : exact_answers(rules_, own)) {
      const auto found = in_b.find(other);
      if (found == in_b.end()) continue;
      if (part_names_.contains({own.text, other.text}))
        take_part(i, found->second);
      else if (free_a_[i] && free_b_[found->second])
        take(compare(i, found->second, WeightHow::Rule));
    }
  }
  for (std::size_t j = 0; j < free_b_.size(); ++j) {  // parts of a, of which one name stands for several
    if (!free_b_[j]) continue;
    const NameTemplate own = numbered(name(b_, j), 0);
    for (const NameTemplate& other : exact_answers(rules_back_, own))
      if (const auto found = in_a.find(other); found != in_a.end() && part_names_.contains({other.text, own.text}))
        take_part(found->second, j);
  }
}

std::vector<NameTemplate> Pairing::exact_answers(const NameRules& rules, const NameTemplate& name) {
  std::vector<RuleAnswer> answers = rules.ask(name);
  std::ranges::stable_sort(answers, std::greater<>(), &RuleAnswer::votes);
  std::vector<NameTemplate> names;
  for (RuleAnswer& answer : answers)
    if (answer.is_exact) names.push_back(std::move(answer.name));
  return names;
}

// Where others of these names have it.
void Pairing::take_part(std::size_t i, std::size_t j) {
  const auto known = part_layouts_.find(part_key(numbered(name(a_, i), 0), numbered(name(b_, j), 0)));
  if (known == part_layouts_.end()) return;
  const Layout& layout = known->second;
  const bool is_in_a = !layout.of_a.empty();
  const bool is_left =
      is_in_a ? free_b_[j] && (free_a_[i] || is_whole(true, i)) : free_a_[i] && (free_b_[j] || is_whole(false, j));
  if (!is_left || part_places_.contains(place_of(i, j, layout))) return;
  const TensorData x = a_.checkpoint.data(i), y = b_.checkpoint.data(j);
  if (const auto distance = distance_in(x.view, y.view, layout))
    take({.a = i, .b = j, .layout = layout, .distance = *distance, .how = WeightHow::Rule});
}

std::string_view to_string(WeightHow how) noexcept {
  constexpr std::array<std::string_view, 7> kNames = {"name", "map", "content", "part", "rule", "tied", "left"};
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
  return std::min(std::max(pairing::kFloat32Rounding, pairing::kTimesRounding * rounding_of(a, b)),
                  pairing::kMostRounding);
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
