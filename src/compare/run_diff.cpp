#include "compare/run_diff.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/align.hpp"
#include "compare/budget.hpp"
#include "compare/causality.hpp"
#include "compare/pipeline_stage.hpp"
#include "compare/report_origin.hpp"
#include "compare/run_end.hpp"
#include "compare/settings.hpp"

namespace tenscope::compare {
namespace {

// The coarser of the two dtypes of floats where the differences begin with another one.
std::optional<DType> coarser_dtype(const Origin& first, const Findings& findings, const Alignment& alignment) {
  const auto coarser = [&](std::size_t lane, const Observation& o) -> std::optional<DType> {
    if (!o.is_on_both_sides()) return std::nullopt;
    const Item& a = alignment.lanes[lane].a->items[static_cast<std::size_t>(o.a)];
    const Item& b = alignment.lanes[lane].b->items[static_cast<std::size_t>(o.b)];
    const bool are_floats =
        a.is_tensor() && b.is_tensor() && kind_of(a.dtype) == DTypeKind::Float && kind_of(b.dtype) == DTypeKind::Float;
    if (!are_floats || a.dtype == b.dtype) return std::nullopt;
    return unit_roundoff(a.dtype) > unit_roundoff(b.dtype) ? a.dtype : b.dtype;
  };
  if (const auto dtype = coarser(first.lane, first.seen)) return dtype;
  if (!findings.dtype_change) return std::nullopt;
  return coarser(findings.dtype_change->lane, findings.dtype_change->observation);
}

std::vector<std::size_t> in_order_of_calls(const ModuleTree& tree) {
  std::vector<std::size_t> nodes(tree.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  std::ranges::stable_sort(nodes, {}, [&](std::size_t i) {
    return std::pair(tree.nodes[i].order, tree.nodes[i].path.size());  // a module before those in it
  });
  return nodes;
}

// Modules that are of another class in the second run: often the mistake itself.
void note_other_classes(const Alignment& alignment, const Interner& interner, std::vector<DiffNote>& notes) {
  for (std::size_t i = 0; i < alignment.tree_a.nodes.size(); ++i) {
    if (alignment.module_to_b[i] < 0) continue;
    const ModuleNode& a = alignment.tree_a.nodes[i];
    const ModuleNode& b = alignment.tree_b.nodes[static_cast<std::size_t>(alignment.module_to_b[i])];
    if (a.cls != b.cls && a.cls != 0 && b.cls != 0)
      notes.push_back({.kind = DiffNote::Kind::OtherClass,
                       .subject = a.path,
                       .a = std::string(interner.text(a.cls)),
                       .b = std::string(interner.text(b.cls))});
  }
}

void note_dtype_change(const DtypeChange& change, const Alignment& alignment, const Interner& interner,
                       std::vector<DiffNote>& notes) {
  const LanePair& lane = alignment.lanes[change.lane];
  const Item& a = lane.a->items[static_cast<std::size_t>(change.observation.a)];
  const Item& b = lane.b->items[static_cast<std::size_t>(change.observation.b)];
  notes.push_back({.kind = DiffNote::Kind::OtherDtype,
                   .subject = std::string(interner.text(a.name)),
                   .a = type_name(a),
                   .b = type_name(b),
                   .count = change.count});
}

// What a run says of itself: modules that were not seen, an exception.
void note_own_words(const Timeline& timeline, const Interner& interner, int side, std::vector<DiffNote>& notes) {
  std::set<std::pair<std::string, std::string>> not_seen;
  for (const Lane& lane : timeline.lanes) {
    for (const Item& item : lane.items) {
      if (item.kind == EventKind::Note && interner.text(item.name) == kNotSeenNote)
        not_seen.emplace(interner.text(item.scope), interner.text(item.text));
    }
    if (const TextId exception = exception_of(lane, interner); exception != 0)
      notes.push_back({.kind = DiffNote::Kind::Failed, .side = side, .a = std::string(interner.text(exception))});
  }
  for (const auto& [module, meta] : not_seen)
    notes.push_back({.kind = DiffNote::Kind::NotSeen, .side = side, .subject = module, .a = meta});
}

std::size_t count_values(const Timeline& timeline) {
  std::size_t count = 0;
  for (const Lane& lane : timeline.lanes)
    count += static_cast<std::size_t>(std::count_if(lane.items.begin(), lane.items.end(), [](const Item& item) {
      return is_value(item) && item.value != ValueKind::None;
    }));
  return count;
}

bool has_results(const Timeline& timeline) {
  return std::any_of(timeline.lanes.begin(), timeline.lanes.end(), [](const Lane& lane) {
    return std::any_of(lane.items.begin(), lane.items.end(), [](const Item& item) {
      return is_value(item) && item.is_tensor() && (item.io == Io::Output || item.io == Io::None);
    });
  });
}

Moment moment_of(const Origin& origin, const Alignment& alignment) {
  const Lane& lane = *alignment.lanes[origin.lane].a;
  return {.rank = lane.rank,
          .ordinal = lane.ordinal,
          .is_initial = origin.phase == Phase::Init && origin.step == 0,
          .step = origin.step,
          .phase = origin.phase,
          .position = origin.position};
}

// Of origins that are in their lanes' order, and stay so: initial values are in the order of their use, and none of the
// others has a step or phase before the one before it.
std::vector<Moment> moments_of(const std::vector<Origin>& origins, const Alignment& alignment) {
  struct Reached {
    std::size_t initial = 0;
    std::pair<std::int64_t, Phase> time{std::numeric_limits<std::int64_t>::min(), Phase::None};
  };
  std::map<std::size_t, Reached> reached;  // by lane
  std::vector<Moment> moments;
  for (const Origin& origin : origins) {
    Moment moment = moment_of(origin, alignment);
    auto& [initial, time] = reached[origin.lane];
    if (moment.is_initial) {
      moment.position = initial++;
    } else {
      time = std::max(time, {moment.step, moment.phase});
      std::tie(moment.step, moment.phase) = time;
    }
    moments.push_back(moment);
  }
  return moments;
}

std::size_t first_of(const std::vector<Moment>& moments) {
  return static_cast<std::size_t>(std::min_element(moments.begin(), moments.end()) - moments.begin());
}

using Stages = std::map<TextId, PipelineStage>;

// What a later stage of a pipeline is given was made by another rank.
bool is_received(const Origin& origin, const Alignment& alignment, const std::vector<Stages>& stages) {
  if (origin.reason.cause != DiffCause::ModelInput || origin.shown.a == kNothing) return false;
  const TextId root = alignment.lanes[origin.lane].a->items[static_cast<std::size_t>(origin.shown.a)].root;
  const auto stage = stages[origin.lane].find(root);
  return stage != stages[origin.lane].end() && stage->second.stage > 0;
}

// The places that start a difference; those that may be listed are described.
void add_starts(const Findings& findings, const Alignment& alignment, const Interner& interner,
                const std::vector<Moment>& moments, const ReportedRun& reported, Known& known, PartialDiff& part) {
  std::vector<std::size_t> order(moments.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) { return moments[i] < moments[j]; });
  std::vector<Stages> stages;
  for (const LanePair& lane : alignment.lanes) stages.push_back(stages_of(*lane.a, interner));
  for (const std::size_t i : order) {
    const Origin& origin = findings.origins[i];
    Start start{.moment = moments[i],
                .is_cause = origin.phase == Phase::Forward && origin.reason.cause != DiffCause::End,
                .is_exchanged = origin.phase == Phase::Backward || origin.phase == Phase::Optimizer ||
                                is_received(origin, alignment, stages),
                .is_another_draw = origin.distribution && origin.distribution->is_another_draw(),
                .tensors = origin.tensors,
                .origin = {}};
    if (known.may_list(start)) start.origin = std::make_shared<const DiffOrigin>(report_origin(reported, origin));
    known.add(start);
    part.starts.push_back(std::move(start));
  }
}

// A list of this rank's, for tables that may have the same of other ranks.
template <class T>
void add_all(std::vector<T> values, int rank, PartialDiff& part) {
  for (std::size_t i = 0; i < values.size(); ++i) part.add(OfRank<T>{rank, i, std::move(values[i])});
}

std::map<std::string, OfRank<std::string>> of_rank(int rank, const Settings& settings) {
  std::map<std::string, OfRank<std::string>> result;
  for (const auto& [name, value] : settings) result.emplace(name, OfRank<std::string>{rank, 0, value});
  return result;
}

std::vector<DiffModule> list_modules(const Findings& findings, const Alignment& alignment, const Interner& interner) {
  std::vector<DiffModule> modules;
  for (const std::size_t i : in_order_of_calls(alignment.tree_a)) {
    const ModuleVerdict& verdict = findings.modules[i];
    const ModuleNode& node = alignment.tree_a.nodes[i];
    if (verdict.is_compared)
      modules.push_back({.root = std::string(interner.text(node.root)),
                         .module = node.path,
                         .is_bit_equal = verdict.is_bit_equal,
                         .is_within_tolerance = verdict.is_within_tolerance,
                         .is_unknown = verdict.is_unknown,
                         .step = verdict.step,
                         .phase = std::string(to_string(verdict.phase))});
  }
  return modules;
}

void note_hidden_by_noise(const Findings& findings, const Alignment& alignment, const Interner& interner,
                          std::vector<DiffNote>& notes) {
  if (findings.hidden_by_noise == 0) return;
  const SeenValue& first = findings.first_hidden;
  const Item& item = alignment.lanes[first.lane].a->items[static_cast<std::size_t>(first.observation.a)];
  notes.push_back({.kind = DiffNote::Kind::HiddenByNoise,
                   .subject = std::string(interner.text(item.name)),
                   .count = findings.hidden_by_noise});
}

void add_notes(const Findings& findings, const Alignment& alignment, const Interner& interner,
               std::vector<DiffNote>& notes) {
  notes.insert(notes.end(), alignment.notes.begin(), alignment.notes.end());
  if (!alignment.content_pairs.empty())
    notes.push_back({.kind = DiffNote::Kind::ByContent, .count = alignment.content_pairs.size()});
  note_hidden_by_noise(findings, alignment, interner, notes);
  if (findings.descriptions > 0)
    notes.push_back(
        {.kind = DiffNote::Kind::OnlyDescribed, .subject = findings.first_description, .count = findings.descriptions});
  note_other_classes(alignment, interner, notes);
  if (findings.dtype_change) note_dtype_change(*findings.dtype_change, alignment, interner, notes);
  if (findings.other_draws > 0) notes.push_back({.kind = DiffNote::Kind::OtherDraws, .count = findings.other_draws});
  if (!findings.idle_inputs.empty()) {
    const SeenValue& input = findings.idle_inputs.front();
    const Item& item = alignment.lanes[input.lane].a->items[static_cast<std::size_t>(input.observation.a)];
    notes.push_back({.kind = DiffNote::Kind::IdleInput,
                     .subject = std::string(interner.text(item.name)),
                     .count = findings.idle_inputs.size() - 1});
  }
}

// Every value of both runs, with its partner.
void tell_pairs(const Findings& findings, const Alignment& alignment, const Measures& measures,
                const std::function<void(const DiffPair&)>& tell) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t lane = 0; lane < alignment.lanes.size(); ++lane) {
    const LanePair& pair = alignment.lanes[lane];
    for (std::size_t i = 0; i < pair.to_b.size(); ++i) {
      const Item& x = pair.a->items[i];
      if (!is_value(x)) continue;
      if (pair.to_b[i] == kAlone) {
        tell({.a = x.event, .b = {}, .verdict = PairVerdict::Alone, .error = kNan});
        continue;
      }
      const Item& y = pair.b->items[static_cast<std::size_t>(pair.to_b[i])];
      DiffPair told{.a = x.event, .b = y.event, .verdict = findings.pairs[lane][i], .error = kNan};
      if (is_same_value(x, y)) {
        told.verdict = x.is_description ? PairVerdict::Unknown : PairVerdict::Equal;
        told.error = x.is_description ? kNan : 0;
      } else if (measures.estimate) {
        const PairError error = measures.estimate(x, y);
        if (error.is_comparable && !error.is_lower_bound && !error.has_other_finite) told.error = error.rel_l2;
      }
      tell(told);
    }
    for (std::size_t j = 0; j < pair.to_a.size(); ++j)
      if (is_value(pair.b->items[j]) && pair.to_a[j] == kAlone)
        tell({.a = {}, .b = pair.b->items[j].event, .verdict = PairVerdict::Alone, .error = kNan});
  }
}

void add_counts(const Findings& findings, PartialDiff& part) {
  part.compared = findings.compared;
  part.bit_equal = findings.bit_equal;
  part.same_values = findings.same_values;
  part.noise = findings.noise;
  part.unknown = findings.unknown;
  part.consequences = findings.consequences;
  part.idle = findings.idle;
  part.compared_results = findings.compared_results;
  part.judged_by_profile = findings.judged_by_profile;
}

}  // namespace

PartialDiff diff_rank(const RankTimelines& rank, Interner& interner, const Measures& measures, const Describe& describe,
                      const RunDiffOptions& options, Known& known, const ContentSource* content) {
  const int number = rank.rank;
  PartialDiff part{.max_origins = options.max_origins, .ranks = {number}};
  part.total_a = count_values(rank.a);
  part.total_b = count_values(rank.b);
  part.has_results = has_results(rank.a) || has_results(rank.b);
  part.settings_a = of_rank(number, settings_of(rank.a, interner));
  part.settings_b = of_rank(number, settings_of(rank.b, interner));
  std::vector<DiffNote> notes;
  note_own_words(rank.a, interner, 0, notes);
  note_own_words(rank.b, interner, 1, notes);
  if (!rank.a.lanes.empty()) part.in_a = {number};
  if (!rank.b.lanes.empty()) part.in_b = {number};
  if (part.in_a.empty() || part.in_b.empty()) {
    add_all(std::move(notes), number, part);
    return part;
  }
  Alignment alignment = align_timelines(rank.a, rank.b, interner, options.map, content);
  part.are_weights_in_doubt = alignment.are_weights_in_doubt;
  CausalityOptions judging{.noise = NoiseJudge(options.tolerance, rank.assumed_noise),
                           .allow_prefix = options.allow_prefix,
                           .on_progress = options.on_progress};
  const Findings findings = find_origins(alignment, interner, measures, judging);
  if (options.on_pair) tell_pairs(findings, alignment, measures, options.on_pair);
  if (options.with_budget) part.budget = make_budget(alignment, interner, measures);
  const ReportedRun reported{alignment, interner, describe, findings};
  const std::vector<Moment> moments = moments_of(findings.origins, alignment);
  add_counts(findings, part);
  add_starts(findings, alignment, interner, moments, reported, known, part);
  if (const auto& first = findings.first_bit_difference) {
    const Moment moment = moment_of(*first, alignment);
    if (known.may_be_first_bit_difference(moment)) {
      part.first_bit_difference = {moment, report_origin(reported, *first)};
      known.add_bit_difference(moment);
    }
  }
  if (const auto& first = findings.first_unknown)
    part.first_unknown = {moment_of(*first, alignment),
                          report_place(reported, alignment.lanes[first->lane], first->seen)};
  const auto dtype =
      moments.empty() ? std::nullopt : coarser_dtype(findings.origins[first_of(moments)], findings, alignment);
  if (dtype) {  // once more, with the rounding of that dtype taken for granted
    judging.noise = NoiseJudge(options.tolerance, unit_roundoff(*dtype));
    judging.on_progress = {};
    const Findings beyond = find_origins(alignment, interner, measures, judging);
    const std::vector<Moment> further = moments_of(beyond.origins, alignment);
    part.coarser_dtypes.emplace(number, to_string(*dtype));
    if (const std::size_t i = first_of(further); i < further.size())
      part.first_beyond_rounding = {further[i],
                                    report_origin({alignment, interner, describe, beyond}, beyond.origins[i])};
  }
  if (findings.engine_noise) part.engine_noise = {number, 0, *findings.engine_noise};
  add_notes(findings, alignment, interner, notes);
  add_all(std::move(notes), number, part);
  add_all(list_modules(findings, alignment, interner), number, part);
  add_all(compare_attributes(alignment, interner, describe.module), number, part);
  add_all(std::move(alignment.renamed), number, part);
  add_all(std::move(alignment.unmatched), number, part);
  for (std::size_t i = 0; i < alignment.content_pairs.size(); ++i)
    part.content_pairs.push_back({number, i, std::move(alignment.content_pairs[i])});
  part.unused_rules.emplace();
  for (std::size_t i = 0; i < alignment.unused.size(); ++i)
    part.unused_rules->emplace(alignment.unused[i].text, OfRank<std::string>{number, i, alignment.unused[i].reason});
  return part;
}

}  // namespace tenscope::compare
