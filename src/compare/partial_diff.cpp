#include "compare/partial_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "compare/missing_parts.hpp"
#include "compare/thresholds.hpp"
#include "store/writer_groups.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

template <class T>
bool is_before(const OfRank<T>& x, const OfRank<T>& y) {
  return std::pair(x.rank, x.index) < std::pair(y.rank, y.index);
}

// Puts something into a table; what is there already is joined with it, at the place of the lower rank.
template <class Table, class T, class Join>
void put(Table& table, const typename Table::key_type& key, OfRank<T>& one, Join join) {
  const auto place = table.find(key);
  if (place == table.end()) {
    table.emplace(key, std::move(one));
    return;
  }
  OfRank<T>& known = place->second;
  if (is_before(one, known)) std::swap(one, known);
  join(known.value, one.value);
}

constexpr auto kKeepFirst = [](auto&, const auto&) {};

template <class T>
void take_earlier(std::optional<AtMoment<T>>& into, std::optional<AtMoment<T>> other) {
  if (other && (!into || other->moment < into->moment)) into = std::move(other);
}

template <class T>
void append(std::vector<T>& into, std::vector<T> more) {
  std::move(more.begin(), more.end(), std::back_inserter(into));
}

template <class Table>
auto values_in_order(const Table& table) {
  std::vector<const typename Table::mapped_type*> order;
  for (const auto& [key, one] : table) order.push_back(&one);
  std::ranges::sort(order, [](const auto* x, const auto* y) { return is_before(*x, *y); });
  std::vector<decltype(Table::mapped_type::value)> values;
  for (const auto* one : order) values.push_back(one->value);
  return values;
}

Settings settings_in(const std::map<std::string, OfRank<std::string>>& of_ranks) {
  Settings settings;
  for (const auto& [name, one] : of_ranks) settings.emplace(name, one.value);
  return settings;
}

// Notes that there is one of at most: its count is that of all ranks.
bool is_counted(DiffNote::Kind kind) {
  using Kind = DiffNote::Kind;
  return kind == Kind::ByContent || kind == Kind::OtherDtype || kind == Kind::OtherDraws || kind == Kind::IdleInput ||
         kind == Kind::HiddenByNoise || kind == Kind::OnlyDescribed;
}

// What a reader should know first comes first.
std::pair<int, int> order_of(const DiffNote& note) {
  switch (note.kind) {
    case DiffNote::Kind::RoughAlignment:
    case DiffNote::Kind::ExtraCalls:
    case DiffNote::Kind::Exchanged:
    case DiffNote::Kind::OddLayout:
    case DiffNote::Kind::OtherForm:
    case DiffNote::Kind::OtherLayout:
    case DiffNote::Kind::NotAssembled:
    case DiffNote::Kind::OnlyByRanks:
    case DiffNote::Kind::InPart:
    case DiffNote::Kind::EndsUnpaired:
      return {0, 0};
    case DiffNote::Kind::ByContent:
      return {1, 0};
    case DiffNote::Kind::OtherClass:
      return {2, 0};
    case DiffNote::Kind::OtherClasses:
      return {3, 0};
    case DiffNote::Kind::OtherDtype:
      return {4, 0};
    case DiffNote::Kind::OtherDraws:
      return {5, 0};
    case DiffNote::Kind::IdleInput:
    case DiffNote::Kind::HiddenByNoise:
    case DiffNote::Kind::OnlyDescribed:
      return {6, 0};
    case DiffNote::Kind::OtherRanks:
      return {7, 0};
    case DiffNote::Kind::MissingRank:
      return {8, note.side};
    case DiffNote::Kind::Failed:
      return {9 + note.side, 0};
    case DiffNote::Kind::NotSeen:
      return {9 + note.side, 1};
    case DiffNote::Kind::NothingInCommon:
    case DiffNote::Kind::NoOutputs:
      return {11, 0};
    case DiffNote::Kind::Damage:
      return {12 + note.side, 0};
    case DiffNote::Kind::Lost:
      return {12 + note.side, 1};
    case DiffNote::Kind::NotClosed:
      return {12 + note.side, 2};
  }
  return {};
}

// The modules of another class that are too many to be listed are counted.
void cut_other_classes(std::vector<DiffNote>& notes) {
  std::size_t count = 0;
  std::erase_if(notes, [&](const DiffNote& note) {
    return note.kind == DiffNote::Kind::OtherClass && ++count > thresholds::kListedClasses;
  });
  if (count > thresholds::kListedClasses)
    notes.push_back({.kind = DiffNote::Kind::OtherClasses, .count = count - thresholds::kListedClasses});
}

// Ranks exchange gradients: a difference that starts there on one rank, at or after the step of one in the forward of
// another rank, follows from it. Returns those that are left, by moment, and counts the tensors of the others.
std::vector<const Start*> without_what_other_ranks_caused(const std::vector<Start>& starts, std::size_t& dropped) {
  std::vector<const Start*> order;
  for (const Start& start : starts) order.push_back(&start);
  std::ranges::stable_sort(order, [](const Start* x, const Start* y) { return x->moment < y->moment; });
  const Moment *earliest = nullptr, *of_another = nullptr;  // process
  for (const Start* start : order) {
    if (!start->is_cause) continue;
    const Moment& moment = start->moment;
    if (earliest == nullptr)
      earliest = &moment;
    else if (of_another == nullptr && !moment.is_same_process(*earliest))
      of_another = &moment;
  }
  std::erase_if(order, [&](const Start* start) {
    const bool is_own = earliest != nullptr && earliest->is_same_process(start->moment);
    const Moment* cause = is_own ? of_another : earliest;
    const bool is_caused = start->is_exchanged && cause != nullptr && cause->step <= start->moment.step;
    if (is_caused) dropped += start->tensors;
    return is_caused;
  });
  return order;
}

// Other ranks in which a difference starts in the same step and phase.
std::optional<DiffNote> note_other_ranks(const std::vector<const Start*>& starts) {
  if (starts.empty()) return std::nullopt;
  const Moment& first = starts.front()->moment;
  std::set<int> others;
  for (const Start* start : starts)
    if (start->moment.time() == first.time() && start->moment.rank != first.rank) others.insert(start->moment.rank);
  if (others.empty()) return std::nullopt;
  return DiffNote{.kind = DiffNote::Kind::OtherRanks,
                  .a = store::ranks_text({others.begin(), others.end()}),
                  .count = others.size()};
}

void note_missing_ranks(const PartialDiff& partial, std::vector<DiffNote>& notes) {
  const auto note = [&](const std::set<int>& ranks, const std::set<int>& others, int side) {
    for (const int rank : ranks)
      if (!others.contains(rank))
        notes.push_back({.kind = DiffNote::Kind::MissingRank, .side = side, .count = static_cast<std::size_t>(rank)});
  };
  note(partial.in_a, partial.in_b, 0);
  note(partial.in_b, partial.in_a, 1);
}

void name_optimizers(const Settings& a, const Settings& b, RunDiff& diff) {
  const auto optimizer_of = [](const Settings& settings) {
    const auto found = settings.find("optimizer.class");
    if (found == settings.end() || found->second.size() < 2) return std::string();
    return found->second.substr(1, found->second.size() - 2);  // without JSON's quotes
  };
  const auto name = [&](DiffOrigin& origin) {
    if (!origin.update) return;
    origin.update->optimizer_a = optimizer_of(a);
    origin.update->optimizer_b = optimizer_of(b);
  };
  for (DiffOrigin& origin : diff.origins) name(origin);
  if (diff.first_divergence) name(*diff.first_divergence);
}

DiffVerdict verdict_of(const RunDiff& diff, bool are_weights_in_doubt) {
  if (diff.compared == 0) return DiffVerdict::Nothing;
  if (!diff.origins.empty() || diff.origin_count > 0) return DiffVerdict::Differs;
  const bool is_incomplete = std::any_of(diff.notes.begin(), diff.notes.end(), [](const DiffNote& note) {
    return note.kind == DiffNote::Kind::MissingRank || note.kind == DiffNote::Kind::NoOutputs ||
           note.kind == DiffNote::Kind::EndsUnpaired || tells_of_missing_parts(note);
  });
  if (diff.unknown > 0 || is_incomplete || are_weights_in_doubt) return DiffVerdict::Unknown;
  const bool has_missing_tensors =
      std::any_of(diff.unmatched.begin(), diff.unmatched.end(), [](const DiffUnmatched& u) { return !u.name.empty(); });
  const bool has_descriptions =
      std::ranges::any_of(diff.notes, [](const DiffNote& note) { return note.kind == DiffNote::Kind::OnlyDescribed; });
  const bool is_all_equal = diff.compared == diff.bit_equal && !has_missing_tensors && !has_descriptions;
  return is_all_equal ? DiffVerdict::Equal : DiffVerdict::Noise;
}

}  // namespace

void PartialDiff::add(OfRank<DiffModule> one) {
  put(modules, {one.value.root, one.value.module}, one, [](DiffModule& into, const DiffModule& other) {
    const auto time = [](const DiffModule& m) {
      return std::tuple(m.is_within_tolerance, m.step, parse_phase(m.phase));
    };
    if (time(other) < time(into)) {
      into.step = other.step;
      into.phase = other.phase;
    }
    into.is_bit_equal &= other.is_bit_equal;
    into.is_within_tolerance &= other.is_within_tolerance;
    into.is_unknown |= other.is_unknown;
  });
}

void PartialDiff::add(OfRank<DiffRenamed> one) {
  put(renamed, {one.value.root, one.value.a, one.value.b}, one, kKeepFirst);
}

void PartialDiff::add(OfRank<DiffAttribute> one) {
  put(attributes, {one.value.root, one.value.module, one.value.name}, one, kKeepFirst);
}

void PartialDiff::add(OfRank<DiffUnmatched> one) {
  put(unmatched, {one.value.side, one.value.root, one.value.module, one.value.name}, one,
      [](DiffUnmatched& into, const DiffUnmatched& other) { into.events += other.events; });
}

void PartialDiff::add(OfRank<DiffNote> one) {
  const auto& [kind, side, subject, a, b, count] = one.value;
  if (!is_counted(kind)) return put(notes, {kind, side, subject, a, b, count}, one, kKeepFirst);
  put(notes, {kind, 0, "", "", "", 0}, one, [](DiffNote& into, const DiffNote& other) {
    into.count += other.count + (into.kind == DiffNote::Kind::IdleInput ? 1 : 0);  // it counts those beside itself
  });
}

bool Known::may_list(const Start& start) const {
  const Moment& moment = start.moment;
  if (max_origins_ == 0) return false;
  if (certain_.size() == max_origins_ && !(moment < certain_.back())) return false;
  if (!start.is_exchanged) return true;
  // Where it is not another rank's doing, those before it in its process are not, either.
  const auto before = of_process_.find({moment.rank, moment.ordinal});
  return before == of_process_.end() || before->second < max_origins_;
}

bool Known::may_be_first_bit_difference(const Moment& moment) const {
  return !first_bit_difference_ || moment < *first_bit_difference_;
}

void Known::add(const Start& start) {
  const Moment& moment = start.moment;
  ++of_process_[{moment.rank, moment.ordinal}];
  if (start.is_exchanged) return;
  certain_.insert(std::upper_bound(certain_.begin(), certain_.end(), moment), moment);
  if (certain_.size() > max_origins_) certain_.pop_back();
}

void PartialDiff::merge(PartialDiff other) {
  if (std::tie(a, b, max_origins) != std::tie(other.a, other.b, other.max_origins))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot merge partial diffs of different runs: {} with {}, and {} with {}", a, b, other.a,
                            other.b));
  for (const int rank : other.ranks)
    if (!ranks.insert(rank).second)
      throw Error(ErrorCode::InvalidArgument, fmt::format("cannot merge partial diffs: both have rank {}", rank));
  in_a.merge(other.in_a);
  in_b.merge(other.in_b);
  append(starts, std::move(other.starts));
  take_earlier(first_bit_difference, std::move(other.first_bit_difference));
  take_earlier(first_unknown, std::move(other.first_unknown));
  take_earlier(first_beyond_rounding, std::move(other.first_beyond_rounding));
  coarser_dtypes.merge(other.coarser_dtypes);
  if (other.engine_noise) {
    const auto key = [](const OfRank<DiffEngineNoise>& one) { return std::pair(-one.value.largest, one.rank); };
    if (!engine_noise || key(*other.engine_noise) < key(*engine_noise)) engine_noise = std::move(other.engine_noise);
  }
  for (auto& [name, one] : other.settings_a) put(settings_a, name, one, kKeepFirst);
  for (auto& [name, one] : other.settings_b) put(settings_b, name, one, kKeepFirst);
  for (auto& [key, one] : other.modules) add(std::move(one));
  for (auto& [key, one] : other.renamed) add(std::move(one));
  for (auto& [key, one] : other.attributes) add(std::move(one));
  for (auto& [key, one] : other.unmatched) add(std::move(one));
  for (auto& [key, one] : other.notes) add(std::move(one));
  append(content_pairs, std::move(other.content_pairs));
  if (other.budget) budget ? budget->add(*other.budget) : void(budget = std::move(other.budget));
  if (!unused_rules) {
    unused_rules = std::move(other.unused_rules);
  } else if (other.unused_rules) {
    std::erase_if(*unused_rules, [&](const auto& rule) { return !other.unused_rules->contains(rule.first); });
    for (auto& [rule, reason] : *other.unused_rules)
      if (unused_rules->contains(rule)) put(*unused_rules, rule, reason, kKeepFirst);
  }
  for (std::size_t PartialDiff::* count :
       {&PartialDiff::total_a, &PartialDiff::total_b, &PartialDiff::compared, &PartialDiff::bit_equal,
        &PartialDiff::same_values, &PartialDiff::noise, &PartialDiff::unknown, &PartialDiff::consequences,
        &PartialDiff::idle, &PartialDiff::compared_results, &PartialDiff::judged_by_profile})
    this->*count += other.*count;
  if (noise_profiles.empty()) noise_profiles = std::move(other.noise_profiles);
  has_results |= other.has_results;
  are_weights_in_doubt |= other.are_weights_in_doubt;
}

// Does anything differ by more than the rounding of the coarser dtype with which the difference begins?
std::optional<DiffRounding> PartialDiff::rounding(const std::vector<const Start*>& left) const {
  const auto dtype = left.empty() ? coarser_dtypes.end() : coarser_dtypes.find(left.front()->moment.rank);
  if (dtype == coarser_dtypes.end()) return std::nullopt;
  std::optional<AtMoment<DiffOrigin>> beyond = first_beyond_rounding;
  const std::size_t listed = std::min(left.size(), max_origins);
  for (std::size_t i = 0; i < listed; ++i)
    if (!coarser_dtypes.contains(left[i]->moment.rank)) {  // nothing of it is rounding
      take_earlier(beyond, std::optional(AtMoment<DiffOrigin>{left[i]->moment, *left[i]->origin}));
      break;
    }
  return DiffRounding{.dtype = dtype->second, .beyond = beyond ? std::optional(beyond->value) : std::nullopt};
}

RunDiff PartialDiff::result() const {
  if (unused_rules && !unused_rules->empty()) throw Error(ErrorCode::NotFound, values_in_order(*unused_rules).front());
  RunDiff diff{.a = a,
               .b = b,
               .noise_profiles = noise_profiles,
               .judged_by_profile = judged_by_profile,
               .total_a = total_a,
               .total_b = total_b,
               .compared = compared,
               .bit_equal = bit_equal,
               .same_values = same_values,
               .noise = noise,
               .unknown = unknown,
               .consequences = consequences,
               .idle = idle};
  const std::vector<const Start*> left = without_what_other_ranks_caused(starts, diff.consequences);
  diff.origin_count = left.size();
  for (const Start* start : left) {
    diff.other_draws += start->is_another_draw ? 1 : 0;
    if (diff.origins.size() < max_origins) diff.origins.push_back(*start->origin);
  }
  if (!diff.origins.empty()) diff.first_divergence = diff.origins.front();
  diff.rounding = rounding(left);
  if (first_bit_difference) diff.first_bit_difference = first_bit_difference->value;
  if (first_unknown) diff.first_unknown = first_unknown->value;
  if (engine_noise) diff.engine_noise = engine_noise->value;
  if (budget) diff.budget = budget->result();
  diff.modules = values_in_order(modules);
  diff.renamed = values_in_order(renamed);
  diff.unmatched = values_in_order(unmatched);
  diff.attributes = values_in_order(attributes);
  diff.attribute_count = diff.attributes.size();
  if (diff.attributes.size() > thresholds::kListedAttributes) diff.attributes.resize(thresholds::kListedAttributes);
  std::vector<const OfRank<DiffContentPair>*> pairs;
  for (const auto& pair : content_pairs) pairs.push_back(&pair);
  std::ranges::sort(pairs, [](const auto* x, const auto* y) { return is_before(*x, *y); });
  for (const auto* pair : pairs) diff.content_pairs.push_back(pair->value);
  const Settings settings_of_a = settings_in(settings_a), settings_of_b = settings_in(settings_b);
  diff.settings = compare_settings(settings_of_a, settings_of_b);
  name_optimizers(settings_of_a, settings_of_b, diff);
  diff.notes = values_in_order(notes);
  cut_other_classes(diff.notes);
  if (const auto others = note_other_ranks(left)) diff.notes.push_back(*others);
  note_missing_ranks(*this, diff.notes);
  if (compared == 0 && total_a > 0 && total_b > 0) diff.notes.push_back({.kind = DiffNote::Kind::NothingInCommon});
  if (compared > 0 && compared_results == 0 && has_results) diff.notes.push_back({.kind = DiffNote::Kind::NoOutputs});
  std::ranges::stable_sort(diff.notes, {}, order_of);
  diff.verdict = verdict_of(diff, are_weights_in_doubt);
  if (diff.verdict == DiffVerdict::Equal || diff.verdict == DiffVerdict::Noise)  // the engine keeps them so
    std::erase_if(diff.notes, [](const DiffNote& note) { return note.kind == DiffNote::Kind::OddLayout; });
  return diff;
}

}  // namespace tenscope::compare
