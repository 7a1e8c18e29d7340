#include "compare/run_diff.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "compare/align.hpp"
#include "compare/causality.hpp"
#include "compare/run_end.hpp"
#include "compare/settings.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

// The role of a tensor as a report has it: gradients inside the network are gradients, what has no role is a value.
std::string_view reported_io(Io io) {
  switch (io) {
    case Io::None:
    case Io::Local:
    case Io::Other:
      return "value";
    case Io::GradOutput:
    case Io::GradInput:
      return "grad";
    default:
      return to_string(io);
  }
}

// Causes of which the inputs of the blamed module are part of the argument.
bool is_by_inputs(DiffCause cause) {
  return cause == DiffCause::Output || cause == DiffCause::ChangedInput || cause == DiffCause::SubmoduleInput;
}

class ResultMaker {
 public:
  ResultMaker(const Alignment& alignment, const Interner& interner, const Describe& describe, const Findings& findings)
      : alignment_(alignment), interner_(interner), describe_(describe), findings_(findings) {}

  DiffOrigin make(const Origin& origin) const {
    const LanePair& lane = alignment_.lanes[origin.lane];
    DiffOrigin result;
    result.place = place(lane, {origin.is_change_in_b ? kNothing : origin.shown.a, origin.shown.b});
    result.place.module = origin.blamed;
    result.place.phase = to_string(origin.phase);
    const Item& seen = item(lane, origin.seen);
    const int node = node_of(seen.root, origin.blamed);
    if (node >= 0) {
      const ModuleNode& module = alignment_.tree_a.nodes[static_cast<std::size_t>(node)];
      result.place.cls = interner_.text(module.cls);
      if (result.place.site.empty()) result.place.site = interner_.text(module.site);
    }
    if (origin.shown.a != kNothing) result.event_a = event(lane.a->items[static_cast<std::size_t>(origin.shown.a)]);
    if (origin.shown.b != kNothing) result.event_b = event(lane.b->items[static_cast<std::size_t>(origin.shown.b)]);
    result.seen_in = interner_.text(seen.scope);
    result.seen_as = interner_.text(seen.name);
    result.reason = origin.reason;
    result.tensors = origin.tensors;
    result.distribution = origin.distribution;
    if (origin.last_agreeing != kNothing) {
      result.last_agreeing = place(lane, {origin.last_agreeing, kNothing});
      const bool is_itself =
          result.last_agreeing->name == result.place.name && result.last_agreeing->step == result.place.step;
      if (is_itself) result.last_agreeing.reset();
    }
    if (origin.reason.cause == DiffCause::End) {
      const LastValues last = last_values(lane);
      result.reason.module = result.place.module;
      result.reason.tensor = last.name;
      result.metrics = last.metrics;
    } else {
      result.metrics = metrics(lane, origin.shown);
      result.update = update(lane, origin);
    }
    if (result.reason.doubt == DiffDoubt::None) result.reason.doubt = doubt(origin, node, result.metrics);
    return result;
  }

  DiffPlace place(const LanePair& lane, const Observation& o) const {
    const Item& at = item(lane, o);
    DiffPlace place;
    place.root = interner_.text(at.root);
    place.module = interner_.text(at.scope);
    place.name = at.io == Io::Grad ? join_path(place.module, interner_.text(at.parameter)) : interner_.text(at.name);
    place.io = reported_io(at.io);
    place.phase = to_string(at.phase);
    place.cls = interner_.text(at.cls);
    place.site = interner_.text(at.site);
    place.step = at.step;
    place.call = at.call;
    place.rank = lane.a->rank;
    place.is_function = is_function(at.root);
    return place;
  }

 private:
  struct LastValues {
    std::string name;
    DiffMetrics metrics;
  };

  static const Item& item(const LanePair& lane, const Observation& o) {
    return o.a != kNothing ? lane.a->items[static_cast<std::size_t>(o.a)]
                           : lane.b->items[static_cast<std::size_t>(o.b)];
  }

  DiffEvent event(const Item& item) const {
    return {.name = std::string(interner_.text(item.name)), .step = item.step, .call = item.call};
  }

  bool is_function(TextId root) const {
    const int node = alignment_.tree_a.find(root, 0);
    if (node < 0) return false;
    const ModuleNode& module = alignment_.tree_a.nodes[static_cast<std::size_t>(node)];
    return module.is_called && module.children.empty() && module.own == 0;
  }

  // What the optimizer made of a parameter in each run.
  std::optional<DiffUpdate> update(const LanePair& lane, const Origin& origin) const {
    const DiffCause cause = origin.reason.cause;
    if (cause != DiffCause::Update && cause != DiffCause::UpdateFromRounding) return std::nullopt;
    if (!describe_.update || !origin.before.is_on_both_sides() || !origin.shown.is_on_both_sides()) return std::nullopt;
    const auto items = [&](const Lane& of, std::int64_t Observation::* side) {
      const auto at = [&](const Observation& o) { return &of.items[static_cast<std::size_t>(o.*side)]; };
      return UpdateItems{at(origin.before), at(origin.shown), nullptr};
    };
    return describe_.update(items(*lane.a, &Observation::a), items(*lane.b, &Observation::b));
  }

  DiffDoubt doubt(const Origin& origin, int node, const DiffMetrics& metrics) const {
    const DiffReason& reason = origin.reason;
    if (reason.cause == DiffCause::End) return DiffDoubt::None;
    if (!origin.shown.is_on_both_sides()) return DiffDoubt::OneSideOnly;
    if (reason.cause == DiffCause::GradientUnexplained || reason.cause == DiffCause::GradientBetween)
      return DiffDoubt::WayNotSeen;
    const LanePair& lane = alignment_.lanes[origin.lane];
    if (lane.is_by_content && lane.how_b[static_cast<std::size_t>(origin.shown.b)] == ContentHow::Order)
      return DiffDoubt::ByOrder;
    if (is_by_inputs(reason.cause) && !reason.has_inputs) return DiffDoubt::InputsNotSeen;
    if (reason.noise_before > 0 && metrics.rel_max < thresholds::kFarFromNoise * reason.noise_before)
      return DiffDoubt::NearNoise;
    return is_known_by_structure(node) ? DiffDoubt::OtherName : DiffDoubt::None;
  }

  // A module that has another name in the second run, and of which no tensor agrees.
  bool is_known_by_structure(int node) const {
    if (node < 0) return false;
    const auto index = static_cast<std::size_t>(node);
    const int partner = alignment_.module_to_b[index];
    if (partner < 0 || findings_.modules[index].agreeing > 0) return false;
    const ModuleNode &a = alignment_.tree_a.nodes[index],
                     &b = alignment_.tree_b.nodes[static_cast<std::size_t>(partner)];
    return last_part(a.path) != last_part(b.path);
  }

  DiffMetrics metrics(const LanePair& lane, const Observation& o) const {
    if (o.is_on_both_sides())
      return describe_.pair(lane.a->items[static_cast<std::size_t>(o.a)], lane.b->items[static_cast<std::size_t>(o.b)]);
    DiffMetrics metrics;
    metrics.obstacle = o.a == kNothing ? DiffObstacle::MissingInFirst : DiffObstacle::MissingInSecond;
    metrics.max_abs = metrics.rel_max = metrics.rel_l2 = metrics.correlation = std::numeric_limits<double>::quiet_NaN();
    return metrics;
  }

  // The last pair of values before the end, and how they differ: a token that stops one of two runs, say.
  LastValues last_values(const LanePair& lane) const {
    for (std::size_t i = lane.to_b.size(); i-- > 0;) {
      if (lane.to_b[i] == kAlone || !is_value(lane.a->items[i])) continue;
      const Observation last{static_cast<std::int64_t>(i), lane.to_b[i]};
      return {std::string(interner_.text(lane.a->items[i].name)), metrics(lane, last)};
    }
    return {};
  }

  int node_of(TextId root, const std::string& path) const {
    const auto& nodes = alignment_.tree_a.nodes;
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const ModuleNode& node) { return node.root == root && node.path == path; });
    return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
  }

  const Alignment& alignment_;
  const Interner& interner_;
  const Describe& describe_;
  const Findings& findings_;
};

// The coarser of the two dtypes of floats where the differences begin with another one.
std::optional<DType> coarser_dtype(const Findings& findings, const Alignment& alignment) {
  if (findings.origins.empty()) return std::nullopt;
  const auto coarser = [&](std::size_t lane, const Observation& o) -> std::optional<DType> {
    if (!o.is_on_both_sides()) return std::nullopt;
    const Item& a = alignment.lanes[lane].a->items[static_cast<std::size_t>(o.a)];
    const Item& b = alignment.lanes[lane].b->items[static_cast<std::size_t>(o.b)];
    const bool are_floats =
        a.is_tensor() && b.is_tensor() && kind_of(a.dtype) == DTypeKind::Float && kind_of(b.dtype) == DTypeKind::Float;
    if (!are_floats || a.dtype == b.dtype) return std::nullopt;
    return unit_roundoff(a.dtype) > unit_roundoff(b.dtype) ? a.dtype : b.dtype;
  };
  const Origin& first = findings.origins.front();
  if (const auto dtype = coarser(first.lane, first.seen)) return dtype;
  if (!findings.dtype_change) return std::nullopt;
  return coarser(findings.dtype_change->lane, findings.dtype_change->observation);
}

std::set<int> ranks_of(const Timeline& timeline) {
  std::set<int> ranks;
  for (const Lane& lane : timeline.lanes) ranks.insert(lane.rank);
  return ranks;
}

void note_missing_ranks(const Timeline& a, const Timeline& b, RunDiff& diff) {
  const std::set<int> ranks_a = ranks_of(a), ranks_b = ranks_of(b);
  const auto note = [&](const std::set<int>& ranks, const std::set<int>& others, int side) {
    for (const int rank : ranks)
      if (!others.contains(rank))
        diff.notes.push_back(
            {.kind = DiffNote::Kind::MissingRank, .side = side, .count = static_cast<std::size_t>(rank)});
  };
  note(ranks_a, ranks_b, 0);
  note(ranks_b, ranks_a, 1);
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
void note_other_classes(const Alignment& alignment, const Interner& interner, RunDiff& diff) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < alignment.tree_a.nodes.size(); ++i) {
    if (alignment.module_to_b[i] < 0) continue;
    const ModuleNode& a = alignment.tree_a.nodes[i];
    const ModuleNode& b = alignment.tree_b.nodes[static_cast<std::size_t>(alignment.module_to_b[i])];
    if (a.cls == b.cls || a.cls == 0 || b.cls == 0) continue;
    if (count++ < thresholds::kListedClasses)
      diff.notes.push_back({.kind = DiffNote::Kind::OtherClass,
                            .subject = a.path,
                            .a = std::string(interner.text(a.cls)),
                            .b = std::string(interner.text(b.cls))});
  }
  if (count > thresholds::kListedClasses)
    diff.notes.push_back({.kind = DiffNote::Kind::OtherClasses, .count = count - thresholds::kListedClasses});
}

void note_dtype_change(const DtypeChange& change, const Alignment& alignment, const Interner& interner, RunDiff& diff) {
  const LanePair& lane = alignment.lanes[change.lane];
  const Item& a = lane.a->items[static_cast<std::size_t>(change.observation.a)];
  const Item& b = lane.b->items[static_cast<std::size_t>(change.observation.b)];
  diff.notes.push_back({.kind = DiffNote::Kind::OtherDtype,
                        .subject = std::string(interner.text(a.name)),
                        .a = type_name(a),
                        .b = type_name(b),
                        .count = change.count});
}

// What a run says of itself: modules that were not seen, an exception.
void note_own_words(const Timeline& timeline, const Interner& interner, int side, RunDiff& diff) {
  std::set<std::pair<std::string, std::string>> not_seen;
  for (const Lane& lane : timeline.lanes) {
    for (const Item& item : lane.items) {
      if (item.kind == EventKind::Note && interner.text(item.name) == kNotSeenNote)
        not_seen.emplace(interner.text(item.scope), interner.text(item.text));
    }
    if (const TextId exception = exception_of(lane, interner); exception != 0)
      diff.notes.push_back({.kind = DiffNote::Kind::Failed, .side = side, .a = std::string(interner.text(exception))});
  }
  for (const auto& [module, meta] : not_seen)
    diff.notes.push_back({.kind = DiffNote::Kind::NotSeen, .side = side, .subject = module, .a = meta});
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

// Goes through the runs once more, with the rounding of that dtype taken for granted.
DiffRounding judge_beyond_rounding(DType dtype, const Alignment& alignment, const Interner& interner,
                                   const Measures& measures, const Describe& describe, const RunDiffOptions& options) {
  const Findings findings = find_origins(alignment, interner, measures,
                                         {.noise = NoiseJudge(options.tolerance, unit_roundoff(dtype)),
                                          .allow_prefix = options.allow_prefix,
                                          .on_progress = {}});
  DiffRounding rounding{.dtype = std::string(to_string(dtype)), .beyond = {}};
  if (!findings.origins.empty())
    rounding.beyond = ResultMaker(alignment, interner, describe, findings).make(findings.origins.front());
  return rounding;
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

DiffVerdict verdict_of(const RunDiff& diff) {
  if (diff.compared == 0) return DiffVerdict::Nothing;
  if (!diff.origins.empty() || diff.origin_count > 0) return DiffVerdict::Differs;
  const bool is_incomplete = std::any_of(diff.notes.begin(), diff.notes.end(), [](const DiffNote& note) {
    return note.kind == DiffNote::Kind::MissingRank || note.kind == DiffNote::Kind::NoOutputs ||
           note.kind == DiffNote::Kind::EndsUnpaired;
  });
  if (diff.unknown > 0 || is_incomplete) return DiffVerdict::Unknown;
  const bool has_missing_tensors =
      std::any_of(diff.unmatched.begin(), diff.unmatched.end(), [](const DiffUnmatched& u) { return !u.name.empty(); });
  return diff.compared == diff.bit_equal && !has_missing_tensors ? DiffVerdict::Equal : DiffVerdict::Noise;
}

}  // namespace

RunDiff diff_timelines(const Timeline& a, const Timeline& b, Interner& interner, const Measures& measures,
                       const Describe& describe, const RunDiffOptions& options, const ContentSource* content) {
  Alignment alignment = align_timelines(a, b, interner, options.map, content);
  const Findings findings = find_origins(alignment, interner, measures,
                                         {.noise = NoiseJudge(options.tolerance),
                                          .allow_prefix = options.allow_prefix,
                                          .on_progress = options.on_progress});
  RunDiff diff;
  diff.total_a = count_values(a);
  diff.total_b = count_values(b);
  diff.compared = findings.compared;
  diff.bit_equal = findings.bit_equal;
  diff.same_values = findings.same_values;
  diff.noise = findings.noise;
  diff.unknown = findings.unknown;
  diff.consequences = findings.consequences;
  diff.idle = findings.idle;
  diff.engine_noise = findings.engine_noise;
  diff.origin_count = findings.origins.size();
  diff.other_draws = static_cast<std::size_t>(std::ranges::count_if(findings.origins, [](const Origin& origin) {
    return origin.distribution && origin.distribution->is_another_draw();
  }));
  if (const auto dtype = coarser_dtype(findings, alignment))
    diff.rounding = judge_beyond_rounding(*dtype, alignment, interner, measures, describe, options);
  const ResultMaker maker(alignment, interner, describe, findings);
  for (const Origin& origin : findings.origins) {
    if (diff.origins.size() == options.max_origins) break;
    diff.origins.push_back(maker.make(origin));
  }
  if (!diff.origins.empty()) diff.first_divergence = diff.origins.front();
  if (findings.first_bit_difference) diff.first_bit_difference = maker.make(*findings.first_bit_difference);
  if (findings.first_unknown)
    diff.first_unknown = maker.place(alignment.lanes[findings.first_unknown->lane], findings.first_unknown->seen);
  for (const std::size_t i : in_order_of_calls(alignment.tree_a)) {
    const ModuleVerdict& verdict = findings.modules[i];
    const ModuleNode& node = alignment.tree_a.nodes[i];
    if (verdict.is_compared)
      diff.modules.push_back({.root = std::string(interner.text(node.root)),
                              .module = node.path,
                              .is_bit_equal = verdict.is_bit_equal,
                              .is_within_tolerance = verdict.is_within_tolerance,
                              .is_unknown = verdict.is_unknown,
                              .step = verdict.step,
                              .phase = std::string(to_string(verdict.phase))});
  }
  diff.renamed = std::move(alignment.renamed);
  diff.content_pairs = std::move(alignment.content_pairs);
  if (!diff.content_pairs.empty())
    alignment.notes.push_back({.kind = DiffNote::Kind::ByContent, .count = diff.content_pairs.size()});
  diff.unmatched = std::move(alignment.unmatched);
  const Settings settings_a = settings_of(a, interner), settings_b = settings_of(b, interner);
  diff.settings = compare_settings(settings_a, settings_b);
  name_optimizers(settings_a, settings_b, diff);
  diff.notes = std::move(alignment.notes);
  note_other_classes(alignment, interner, diff);
  if (findings.dtype_change) note_dtype_change(*findings.dtype_change, alignment, interner, diff);
  if (findings.other_draws > 0)
    diff.notes.push_back({.kind = DiffNote::Kind::OtherDraws, .count = findings.other_draws});
  for (const IdleInput& input : findings.idle_inputs) {
    const LanePair& lane = alignment.lanes[input.lane];
    const Item& item = lane.a->items[static_cast<std::size_t>(input.observation.a)];
    diff.notes.push_back({.kind = DiffNote::Kind::IdleInput,
                          .subject = std::string(interner.text(item.name)),
                          .count = findings.idle_inputs.size() - 1});
    break;
  }
  note_missing_ranks(a, b, diff);
  note_own_words(a, interner, 0, diff);
  note_own_words(b, interner, 1, diff);
  if (diff.compared == 0 && diff.total_a > 0 && diff.total_b > 0)
    diff.notes.push_back({.kind = DiffNote::Kind::NothingInCommon});
  if (diff.compared > 0 && findings.compared_results == 0 && (has_results(a) || has_results(b)))
    diff.notes.push_back({.kind = DiffNote::Kind::NoOutputs});
  diff.verdict = verdict_of(diff);
  return diff;
}

}  // namespace tenscope::compare
