#include "compare/row_match.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/path_rule.hpp"

namespace tenscope::compare {
namespace {

std::vector<std::size_t> batches_of(const RowAxes& way) {
  std::vector<std::size_t> batches;
  for (const auto& [batch, axes] : way.axes) batches.push_back(batch);
  return batches;
}

std::vector<std::size_t> all_batches(const RowTable& table) {
  std::vector<std::size_t> batches(table.batch_count());
  std::iota(batches.begin(), batches.end(), 0);
  return batches;
}

// The axes of the first batch with more than one row.
std::vector<std::size_t> axes_of(const RowAxes& way) {
  for (const auto& [batch, axes] : way.axes)
    if (!axes.empty()) return axes;
  return {};
}

Shape shape_of(const RowTensor& tensor) {
  for (const auto& [batch, axes] : tensor.ways.front().axes)
    if (!axes.empty()) return tensor.pieces.at(batch).shape;
  return {};
}

}  // namespace

RowMatch::RowMatch(const RowTable& a, const RowTable& b, const std::vector<std::string>& map) : tables_{&a, &b} {
  for (const std::size_t side : {0, 1}) {
    tensors_[side] = read_row_tensors(*tables_[side]);
    plans_[side].resize(tensors_[side].size());
  }
  find_partners(map);
  choose_all_ways();
  choose_repeats();
  find_equal_tensors();
  find_plain_values();
  find_rows();
  count_rows();
}

void RowMatch::find_partners(const std::vector<std::string>& map) {
  std::map<std::pair<std::string, std::int64_t>, std::size_t> in_b;
  partners_[0].assign(tensors_[0].size(), -1);
  partners_[1].assign(tensors_[1].size(), -1);
  for (std::size_t i = 0; i < tensors_[1].size(); ++i)
    if (tensors_[1][i].event.kind == EventKind::Value)
      in_b.emplace(std::pair{tensors_[1][i].event.name, tensors_[1][i].call}, i);
  const std::vector<PathRule> rules(map.begin(), map.end());
  for (std::size_t i = 0; i < tensors_[0].size(); ++i) {
    const RowTensor& tensor = tensors_[0][i];
    if (tensor.event.kind != EventKind::Value) continue;
    std::string name = tensor.event.name;
    for (const PathRule& rule : rules)
      if (const auto other = rule.apply(name)) {
        name = *other;
        break;
      }
    const auto found = in_b.find({name, tensor.call});
    if (found == in_b.end() || partners_[1][found->second] >= 0) continue;
    partners_[0][i] = static_cast<std::ptrdiff_t>(found->second);
    partners_[1][found->second] = static_cast<std::ptrdiff_t>(i);
  }
}

std::shared_ptr<const RowPairs> RowMatch::pairs(const Batches& a, const Batches& b) const {
  const auto [known, is_new] = known_pairs_.try_emplace({a, b});
  if (!is_new) return known->second;
  auto result = std::make_shared<RowPairs>();
  const std::set<std::size_t> used[2] = {{a.begin(), a.end()}, {b.begin(), b.end()}};
  for (const auto& [key, places_a] : tables_[0]->places()) {
    const auto found = tables_[1]->places().find(key);
    if (found == tables_[1]->places().end()) continue;
    const std::vector<RowPlace>* all[2] = {&places_a, &found->second};
    std::vector<RowPlace> here[2];
    for (const std::size_t side : {0, 1})
      std::ranges::copy_if(*all[side], std::back_inserter(here[side]),
                           [&](const RowPlace& place) { return used[side].contains(place.batch); });
    const std::size_t count = std::min(here[0].size(), here[1].size());
    result->keys.insert(result->keys.end(), count, &key);
    for (const std::size_t side : {0, 1}) {
      const auto begin = takes_first_ ? here[side].begin() : here[side].end() - static_cast<std::ptrdiff_t>(count);
      result->places[side].insert(result->places[side].end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
  }
  return known->second = std::move(result);
}

std::shared_ptr<const RowPairs> RowMatch::pairs_of(std::size_t a, std::size_t way_a, std::size_t b,
                                                   std::size_t way_b) const {
  return pairs(batches_of(tensors_[0][a].ways[way_a]), batches_of(tensors_[1][b].ways[way_b]));
}

// The part of the rows that are alike, of a sample of them; -1 where rows of one cannot be those of the other.
double RowMatch::agreement(std::size_t a, std::size_t way_a, std::size_t b, std::size_t way_b) const {
  constexpr std::int64_t kMostElements = 1 << 22;
  const RowAxes &axes_a = tensors_[0][a].ways[way_a], &axes_b = tensors_[1][b].ways[way_b];
  const std::int64_t elements = element_count(axes_a.rest);
  if (elements != element_count(axes_b.rest)) return -1;
  const auto both = pairs_of(a, way_a, b, way_b);
  const std::size_t every =
      1 + both->keys.size() * static_cast<std::size_t>(elements) / static_cast<std::size_t>(kMostElements);
  std::vector<RowPlace> sample[2];
  for (std::size_t i = 0; i < both->keys.size(); i += every)
    for (const std::size_t side : {0, 1}) sample[side].push_back(both->places[side][i]);
  if (sample[0].empty()) return -1;
  const std::vector<RowSum> sums_a = row_sums(*tables_[0], tensors_[0][a], axes_a, sample[0]);
  const std::vector<RowSum> sums_b = row_sums(*tables_[1], tensors_[1][b], axes_b, sample[1]);
  std::size_t alike = 0;
  for (std::size_t i = 0; i < sums_a.size(); ++i) alike += are_alike(sums_a[i], sums_b[i], elements) ? 1 : 0;
  return static_cast<double>(alike) / static_cast<double>(sums_a.size());
}

// By the values: the axes along which the rows agree. By the shapes, where only one pair of them leaves equal rows.
bool RowMatch::choose_ways(std::size_t a, std::size_t b, double least) {
  RowPlan &plan_a = plan({0, a}), &plan_b = plan({1, b});
  double best = 0;
  std::size_t fitting = 0, equally_good = 0;
  std::pair<std::size_t, std::size_t> best_ways, fitting_ways;
  for (std::size_t i = 0; i < tensors_[0][a].ways.size(); ++i) {
    if (plan_a.use == RowPlan::Use::Rows && plan_a.way != i) continue;
    for (std::size_t j = 0; j < tensors_[1][b].ways.size(); ++j) {
      if (plan_b.use == RowPlan::Use::Rows && plan_b.way != j) continue;
      if (tensors_[0][a].ways[i].rest == tensors_[1][b].ways[j].rest) ++fitting, fitting_ways = {i, j};
      const double part = agreement(a, i, b, j);
      equally_good = part > best ? 1 : equally_good + (part == best ? 1 : 0);
      if (part > best) best = part, best_ways = {i, j};
    }
  }
  if (best < least) {
    if (fitting != 1 || least > pairing::kRowsAgree) return false;
    best_ways = fitting_ways;
    equally_good = 1;
  }
  // Of a tensor with one axis more than the keys, that is the last one, as everywhere; the first way has it so.
  const bool is_tied = equally_good > 1 && tensors_[0][a].ways[best_ways.first].rest.size() > 1;
  plan_a = {.use = RowPlan::Use::Rows, .way = best_ways.first, .pairs = {}, .is_tied = is_tied};
  plan_b = {.use = RowPlan::Use::Rows, .way = best_ways.second, .pairs = {}, .is_tied = is_tied};
  return true;
}

void RowMatch::choose_all_ways() {
  for (const std::size_t side : {0, 1})
    for (std::size_t i = 0; i < tensors_[side].size(); ++i) {
      const std::size_t ways = tensors_[side][i].ways.size();
      if (ways > 0) plans_[side][i].use = ways == 1 ? RowPlan::Use::Rows : RowPlan::Use::Ambiguous;
    }
  const auto is_ambiguous = [&](std::size_t side, std::size_t i) {
    return plans_[side][i].use == RowPlan::Use::Ambiguous;
  };
  for (std::size_t a = 0; a < tensors_[0].size(); ++a) {
    if (partners_[0][a] < 0) continue;
    const auto b = static_cast<std::size_t>(partners_[0][a]);
    if (tensors_[0][a].ways.empty() || tensors_[1][b].ways.empty()) continue;
    if (is_ambiguous(0, a) || is_ambiguous(1, b)) choose_ways(a, b, pairing::kRowsAgree);
  }
  for (std::size_t a = 0; a < tensors_[0].size(); ++a) {  // names do not help: whatever agrees
    if (partners_[0][a] >= 0 || tensors_[0][a].ways.empty()) continue;
    for (std::size_t b = 0; b < tensors_[1].size(); ++b) {
      if (partners_[1][b] >= 0 || tensors_[1][b].ways.empty() || !(is_ambiguous(0, a) || is_ambiguous(1, b))) continue;
      if (choose_ways(a, b, pairing::kRowsSurelyAgree)) break;
    }
  }
  for (const int side : {0, 1}) choose_like_others(side);
}

// What did not agree has its rows where tensors of the same name but for numbers have them, or else of the same shape;
// a tensor of two axes where all others of two axes have them. Others must not contradict each other.
void RowMatch::choose_like_others(int side) {
  using Known = std::map<std::string, std::set<std::vector<std::size_t>>>;
  const std::vector<RowTensor>& tensors = tensors_[static_cast<std::size_t>(side)];
  Known by_name, by_shape, by_rank;
  const auto name_of = [](const RowTensor& tensor) { return numbered(tensor.event.name, 0).text; };
  const auto text_of = [](const Shape& shape) {
    std::string text;
    for (const std::int64_t size : shape) text += std::to_string(size) + ",";
    return text;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan({side, i}).use != RowPlan::Use::Rows) continue;
    const std::vector<std::size_t> axes = axes_of(tensors[i].ways[plan({side, i}).way]);
    const Shape shape = shape_of(tensors[i]);
    by_name[name_of(tensors[i])].insert(axes);
    by_shape[text_of(shape)].insert(axes);
    by_rank[std::to_string(shape.size())].insert(axes);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan({side, i}).use != RowPlan::Use::Ambiguous) continue;
    const Shape shape = shape_of(tensors[i]);
    const auto look_up = [&](const Known& known, const std::string& text) {
      const auto found = known.find(text);
      return found != known.end() && found->second.size() == 1 ? std::optional(*found->second.begin()) : std::nullopt;
    };
    auto axes = look_up(by_name, name_of(tensors[i]));
    if (!axes) axes = look_up(by_shape, text_of(shape));
    if (!axes && shape.size() == 2) axes = look_up(by_rank, "2");
    if (!axes) continue;
    const auto& ways = tensors[i].ways;
    const auto way = std::ranges::find(ways, *axes, axes_of);
    if (way != ways.end())
      plan({side, i}) = {.use = RowPlan::Use::Rows, .way = static_cast<std::size_t>(way - ways.begin()), .pairs = {}};
  }
}

// A token that was computed again (a request that was preempted) has the same numbers; a speculated token that was
// rejected has not, and its last row counts; in a second epoch the first does. The values say which.
void RowMatch::choose_repeats() {
  constexpr std::size_t kMostTensors = 16;
  const bool is_uneven = std::ranges::any_of(tables_[0]->places(), [&](const auto& entry) {
    const auto found = tables_[1]->places().find(entry.first);
    return found != tables_[1]->places().end() && found->second.size() != entry.second.size();
  });
  if (!is_uneven) return;
  double agreeing[2] = {0, 0};
  for (const bool is_first : {false, true}) {
    takes_first_ = is_first;
    known_pairs_.clear();
    std::size_t used = 0;
    for (std::size_t a = 0; a < tensors_[0].size() && used < kMostTensors; ++a) {
      if (partners_[0][a] < 0 || plans_[0][a].use != RowPlan::Use::Rows) continue;
      const auto b = static_cast<std::size_t>(partners_[0][a]);
      if (plans_[1][b].use != RowPlan::Use::Rows) continue;
      agreeing[is_first ? 1 : 0] += agreement(a, plans_[0][a].way, b, plans_[1][b].way);
      ++used;
    }
  }
  takes_first_ = agreeing[1] > agreeing[0];
  known_pairs_.clear();
}

// Equal bytes are equal: a tensor whose length merely happens to be that of the rows (a bias), or that has none. But
// where no tensor at all agrees by rows, it is rather the keys that are wrong.
void RowMatch::find_equal_tensors() {
  using Bytes = std::pair<std::uint64_t, std::uint64_t>;
  std::map<Bytes, std::size_t> in_b;
  const auto bytes_of = [](const RowTensor& tensor) -> std::optional<Bytes> {
    if (!tensor.is_constant() || !tensor.pieces.begin()->second.has_bytes) return std::nullopt;
    const Fingerprint& fingerprint = tensor.pieces.begin()->second.fingerprint;
    return Bytes{fingerprint.low, fingerprint.high};
  };
  for (std::size_t b = 0; b < tensors_[1].size(); ++b)
    if (const auto bytes = bytes_of(tensors_[1][b])) in_b.try_emplace(*bytes, b);
  std::vector<std::pair<std::size_t, std::size_t>> whole;
  std::set<std::size_t> of_rows;  // of a: whole, though they might be rows
  for (std::size_t a = 0; a < tensors_[0].size(); ++a) {
    const auto bytes = bytes_of(tensors_[0][a]);
    if (!bytes) continue;
    const auto found = in_b.find(*bytes);
    if (found == in_b.end()) continue;
    const bool has_equal_partner =
        partners_[0][a] >= 0 && bytes_of(tensors_[1][static_cast<std::size_t>(partners_[0][a])]) == bytes;
    const std::size_t b = has_equal_partner ? static_cast<std::size_t>(partners_[0][a]) : found->second;
    const RowPlan &plan_a = plans_[0][a], &plan_b = plans_[1][b];
    if (plan_a.use == RowPlan::Use::Rows && plan_b.use == RowPlan::Use::Rows) {
      const auto both = pairs_of(a, plan_a.way, b, plan_b.way);
      if (gather_rows(*tables_[0], tensors_[0][a], tensors_[0][a].ways[plan_a.way], both->places[0]) ==
          gather_rows(*tables_[1], tensors_[1][b], tensors_[1][b].ways[plan_b.way], both->places[1]))
        continue;
      of_rows.insert(a);
    }
    whole.emplace_back(a, b);
  }
  bool has_others = false, has_agreeing = false;
  for (std::size_t a = 0; a < tensors_[0].size() && !of_rows.empty() && !has_agreeing; ++a) {
    if (partners_[0][a] < 0 || of_rows.contains(a) || plans_[0][a].use != RowPlan::Use::Rows) continue;
    const auto b = static_cast<std::size_t>(partners_[0][a]);
    if (plans_[1][b].use != RowPlan::Use::Rows) continue;
    has_others = true;
    has_agreeing = agreement(a, plans_[0][a].way, b, plans_[1][b].way) >= pairing::kRowsAgree;
  }
  are_keys_doubtful_ = !of_rows.empty() && !has_agreeing;
  for (const auto& [a, b] : whole) {
    if (of_rows.contains(a)) equal_as_they_are_.push_back(tensors_[0][a].event.name);
    if (of_rows.contains(a) && !has_others) continue;
    plans_[0][a] = plans_[1][b] = {.use = RowPlan::Use::Whole, .way = 0, .pairs = {}};
  }
}

// What has no rows by its nature: parameters and their gradients, and a number that a run has once, such as a loss.
void RowMatch::find_plain_values() {
  const auto is_single = [](const RowTensor& tensor) {
    const auto* record = std::get_if<TensorRecord>(&tensor.event.value);
    return tensor.events == 1 && (record == nullptr || record->stats.count == 1);
  };
  for (const std::size_t side : {0, 1}) {
    for (std::size_t i = 0; i < tensors_[side].size(); ++i) {
      const RowTensor& tensor = tensors_[side][i];
      if (tensor.event.kind != EventKind::Value) continue;
      const Io io = tensor.event.io;
      const std::ptrdiff_t partner = partners_[side][i];
      const bool has_single_partner = partner >= 0 && is_single(tensors_[1 - side][static_cast<std::size_t>(partner)]);
      if (io == Io::Param || io == Io::Buffer || (io == Io::Grad && tensor.events == 1) ||
          (is_single(tensor) && (tensor.ways.empty() || has_single_partner)))
        plans_[side][i] = {.use = RowPlan::Use::Whole, .way = 0, .pairs = {}};
    }
  }
  for (const int side : {0, 1})
    for (std::size_t i = 0; i < tensors(side).size(); ++i)
      if (plan({side, i}).use == RowPlan::Use::Whole && is_without_bytes({side, i})) plan({side, i}) = {};
}

// Only statistics were kept, and its fingerprint does not say either that it is equal.
bool RowMatch::is_without_bytes(Tensor t) const {
  const auto* record = std::get_if<TensorRecord>(&tensor(t).event.value);
  if (record == nullptr || table(t.side).reader().has_bytes(tensor(t).first, *record)) return false;
  const std::ptrdiff_t partner = partners_[static_cast<std::size_t>(t.side)][t.index];
  if (partner < 0) return true;
  const auto* other = std::get_if<TensorRecord>(&tensor({1 - t.side, static_cast<std::size_t>(partner)}).event.value);
  return other == nullptr || other->fingerprint != record->fingerprint || other->dtype != record->dtype;
}

void RowMatch::find_rows() {
  const auto is_compared = [](const RowPlan& of) {
    return of.use == RowPlan::Use::Rows || of.use == RowPlan::Use::Whole;
  };
  for (std::size_t a = 0; a < tensors_[0].size(); ++a) {  // what one run alone has as rows cannot be compared
    if (partners_[0][a] < 0) continue;
    RowPlan &plan_a = plans_[0][a], &plan_b = plans_[1][static_cast<std::size_t>(partners_[0][a])];
    if (!is_compared(plan_a) && is_compared(plan_b)) plan_b = {.use = plan_a.use, .way = 0, .pairs = {}};
    if (!is_compared(plan_b) && is_compared(plan_a)) plan_a = {.use = plan_b.use, .way = 0, .pairs = {}};
  }
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < tensors(side).size(); ++i) {
      RowPlan& own = plan({side, i});
      if (own.use != RowPlan::Use::Rows) continue;
      const std::ptrdiff_t partner = partners_[static_cast<std::size_t>(side)][i];
      Batches batches[2];
      for (const int other : {0, 1}) {
        const auto index = other == side ? i : static_cast<std::size_t>(partner);
        if ((other == side || partner >= 0) && plan({other, index}).use == RowPlan::Use::Rows)
          batches[other] = batches_of(tensors(other)[index].ways[plan({other, index}).way]);
        else
          batches[other] = all_batches(table(other));
      }
      own.pairs = pairs(batches[0], batches[1]);
    }
  }
  for (const std::size_t side : {0, 1})
    for (RowPlan& one : plans_[side])
      if (one.use == RowPlan::Use::Rows && one.pairs->keys.empty()) one = {};
}

void RowMatch::count_rows() {
  std::array<std::set<Batches>, 2> used;
  for (const int side : {0, 1}) {
    auto& sets = used[static_cast<std::size_t>(side)];
    for (std::size_t i = 0; i < tensors(side).size(); ++i)
      if (plan({side, i}).use == RowPlan::Use::Rows)
        sets.insert(batches_of(tensors(side)[i].ways[plan({side, i}).way]));
    if (sets.empty()) sets.insert(all_batches(table(side)));
  }
  const auto count = [&](int side, const std::vector<RowPlace>& places) {
    std::ptrdiff_t most = 0;
    for (const Batches& batches : used[static_cast<std::size_t>(side)])
      most = std::max(most, std::ranges::count_if(places, [&](const RowPlace& place) {
                        return std::ranges::binary_search(batches, place.batch);
                      }));
    return static_cast<std::size_t>(most);
  };
  for (const int side : {0, 1}) {
    row_counts_[static_cast<std::size_t>(side)] = table(side).unplaced();
    for (const auto& [key, places] : table(side).places())
      row_counts_[static_cast<std::size_t>(side)] += count(side, places);
  }
  for (const auto& [key, places] : table(0).places()) {
    const auto found = table(1).places().find(key);
    if (found == table(1).places().end()) continue;
    const auto [few, many] = std::minmax({count(0, places), count(1, found->second)});
    common_rows_ += few;
    if (few > 0) uneven_rows_ += many - few;
  }
  const auto rows_in = [&](int side, std::size_t tensor) {
    const Batches batches = batches_of(tensors(side)[tensor].ways[plan({side, tensor}).way]);
    std::size_t rows = 0;
    for (const auto& [key, places] : table(side).places())
      rows += static_cast<std::size_t>(std::ranges::count_if(
          places, [&](const RowPlace& place) { return std::ranges::binary_search(batches, place.batch); }));
    return rows;
  };
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < tensors(side).size(); ++i) {
      const auto* first = std::get_if<TensorRecord>(&tensors(side)[i].event.value);
      if (first == nullptr || plan({side, i}).use != RowPlan::Use::Whole) continue;
      const bool changes = std::ranges::any_of(tensors(side)[i].pieces, [&](const auto& entry) {
        return !entry.second.is_number && entry.second.fingerprint != first->fingerprint;
      });
      const std::string& name = tensors(side)[i].event.name;
      if (changes && std::ranges::find(partial_, name) == partial_.end()) partial_.push_back(name);
    }
  }
  for (std::size_t a = 0; a < tensors_[0].size(); ++a) {
    if (plans_[0][a].use != RowPlan::Use::Rows || plans_[0][a].pairs->keys.size() >= common_rows_) continue;
    std::size_t own = rows_in(0, a);
    if (partners_[0][a] >= 0) own = std::max(own, rows_in(1, static_cast<std::size_t>(partners_[0][a])));
    if (plans_[0][a].pairs->keys.size() < own) partial_.push_back(tensors_[0][a].event.name);
  }
}

}  // namespace tenscope::compare
