#include "compare/run_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "compare/align.hpp"
#include "compare/causality.hpp"
#include "compare/settings.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

// An io as a report has it: gradients inside the network are gradients, what has no role is a value.
std::string_view said_io(Io io) {
  switch (io) {
    case Io::None:
    case Io::Local:
      return "value";
    case Io::GradOutput:
    case Io::GradInput:
      return "grad";
    default:
      return to_string(io);
  }
}

class ResultMaker {
 public:
  ResultMaker(const Alignment& alignment, const Interner& interner, const Describe& describe)
      : alignment_(alignment), interner_(interner), describe_(describe) {}

  DiffOrigin make(const Origin& origin) const {
    const LanePair& lane = alignment_.lanes[origin.lane];
    const Item& seen = item(lane, origin.a, origin.b);
    const Item& shown = item(lane, origin.is_change_in_b ? kNothing : origin.shown_a, origin.shown_b);
    DiffOrigin result;
    result.place = place(lane, shown);
    result.place.module = origin.blamed;
    result.place.phase = to_string(origin.phase);
    result.place.cls = class_of(seen.root, origin.blamed);
    result.seen_in = interner_.text(seen.scope);
    result.seen_as = interner_.text(seen.name);
    result.reason = origin.reason;
    result.tensors = origin.tensors;
    if (origin.last_agreeing != kNothing)
      result.last_agreeing = place(lane, lane.a->items[static_cast<std::size_t>(origin.last_agreeing)]);
    result.metrics = metrics(lane, origin);
    return result;
  }

 private:
  static const Item& item(const LanePair& lane, std::int64_t a, std::int64_t b) {
    return a != kNothing ? lane.a->items[static_cast<std::size_t>(a)] : lane.b->items[static_cast<std::size_t>(b)];
  }

  DiffMetrics metrics(const LanePair& lane, const Origin& origin) const {
    if (origin.shown_a != kNothing && origin.shown_b != kNothing)
      return describe_(lane.a->items[static_cast<std::size_t>(origin.shown_a)],
                       lane.b->items[static_cast<std::size_t>(origin.shown_b)]);
    DiffMetrics metrics;
    metrics.remark = origin.shown_a == kNothing ? "missing in the first run" : "missing in the second run";
    metrics.max_abs = metrics.rel_max = metrics.rel_l2 = metrics.correlation = std::numeric_limits<double>::quiet_NaN();
    return metrics;
  }

  DiffPlace place(const LanePair& lane, const Item& at) const {
    DiffPlace place;
    place.root = interner_.text(at.root);
    place.module = interner_.text(at.scope);
    place.name = interner_.text(at.name);
    if (at.io == Io::Grad && place.name.ends_with(".grad")) place.name.resize(place.name.size() - 5);
    place.io = said_io(at.io);
    place.phase = to_string(at.phase);
    place.cls = interner_.text(at.cls);
    place.site = interner_.text(at.site);
    place.step = at.step;
    place.call = at.call;
    place.rank = lane.a->rank;
    return place;
  }

  std::string class_of(TextId root, const std::string& path) const {
    for (const ModuleNode& node : alignment_.tree_a.nodes)
      if (node.root == root && node.path == path) return std::string(interner_.text(node.cls));
    return {};
  }

  const Alignment& alignment_;
  const Interner& interner_;
  const Describe& describe_;
};

void note_missing_lanes(const Timeline& a, const Timeline& b, RunDiff& diff) {
  std::set<int> ranks_a, ranks_b;
  for (const Lane& lane : a.lanes) ranks_a.insert(lane.rank);
  for (const Lane& lane : b.lanes) ranks_b.insert(lane.rank);
  for (const int rank : ranks_a)
    if (!ranks_b.contains(rank)) diff.notes.push_back(fmt::format("rank {} is only in the first run", rank));
  for (const int rank : ranks_b)
    if (!ranks_a.contains(rank)) diff.notes.push_back(fmt::format("rank {} is only in the second run", rank));
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
  constexpr std::size_t kMost = 10;
  std::vector<std::string> said;
  for (std::size_t i = 0; i < alignment.tree_a.nodes.size(); ++i) {
    if (alignment.module_to_b[i] < 0) continue;
    const ModuleNode& a = alignment.tree_a.nodes[i];
    const ModuleNode& b = alignment.tree_b.nodes[static_cast<std::size_t>(alignment.module_to_b[i])];
    if (a.cls == b.cls || a.cls == 0 || b.cls == 0) continue;
    said.push_back(fmt::format("{} is a {} in the first run and a {} in the second",
                               a.path.empty() ? "the model" : a.path, interner.text(a.cls), interner.text(b.cls)));
  }
  const std::size_t more = said.size() - std::min(said.size(), kMost);
  said.resize(said.size() - more);
  if (more > 0) said.push_back(fmt::format("{} more modules are of another class in the second run", more));
  diff.notes.insert(diff.notes.end(), said.begin(), said.end());
}

// Modules that were not seen, and the like.
void note_unseen(const Timeline& timeline, const Interner& interner, std::string_view which, RunDiff& diff) {
  std::set<std::string> said;
  for (const Lane& lane : timeline.lanes)
    for (const Item& item : lane.items) {
      if (item.kind == EventKind::Dropped)
        said.insert(
            fmt::format("{} run: {:.0f} events were not recorded ({})", which, item.number, interner.text(item.name)));
      if (item.kind == EventKind::Note && interner.text(item.name) == "not_seen")
        said.insert(fmt::format("{} run: not seen: {} {}", which, interner.text(item.scope), interner.text(item.text)));
    }
  diff.notes.insert(diff.notes.end(), said.begin(), said.end());
}

}  // namespace

RunDiff diff_timelines(const Timeline& a, const Timeline& b, Interner& interner, const Measures& measures,
                       const Describe& describe, const RunDiffOptions& options) {
  Alignment alignment = align_timelines(a, b, interner, options.map);
  const Findings findings =
      find_origins(alignment, interner, measures, NoiseJudge(options.tolerance), options.on_progress);

  RunDiff diff;
  diff.compared = findings.compared;
  diff.bit_equal = findings.bit_equal;
  diff.noise = findings.noise;
  diff.consequences = findings.consequences;
  diff.origin_count = findings.origins.size();
  diff.within_tolerance = findings.origins.empty();
  const ResultMaker maker(alignment, interner, describe);
  for (const Origin& origin : findings.origins) {
    if (diff.origins.size() == options.max_origins) break;
    diff.origins.push_back(maker.make(origin));
  }
  if (!diff.origins.empty()) diff.first_divergence = diff.origins.front();
  if (findings.first_bit_difference) diff.first_bit_difference = maker.make(*findings.first_bit_difference);
  for (const std::size_t i : in_order_of_calls(alignment.tree_a)) {
    const ModuleVerdict& verdict = findings.modules[i];
    const ModuleNode& node = alignment.tree_a.nodes[i];
    if (verdict.is_compared)
      diff.modules.push_back({.root = std::string(interner.text(node.root)),
                              .module = node.path,
                              .is_bit_equal = verdict.is_bit_equal,
                              .is_within_tolerance = verdict.is_within_tolerance,
                              .step = verdict.step,
                              .phase = std::string(to_string(verdict.phase))});
  }
  diff.renamed = std::move(alignment.renamed);
  diff.unmatched = std::move(alignment.unmatched);
  diff.settings = compare_settings(a, b, interner);
  diff.notes = std::move(alignment.notes);
  note_other_classes(alignment, interner, diff);
  note_missing_lanes(a, b, diff);
  note_unseen(a, interner, "first", diff);
  note_unseen(b, interner, "second", diff);
  const bool has_missing_tensors =
      std::any_of(diff.unmatched.begin(), diff.unmatched.end(), [](const DiffUnmatched& u) { return !u.name.empty(); });
  diff.equal = diff.compared == diff.bit_equal && !has_missing_tensors;
  const bool has_values =
      std::any_of(diff.unmatched.begin(), diff.unmatched.end(), [](const DiffUnmatched& u) { return u.events > 0; });
  if (diff.compared == 0 && has_values) {
    diff.equal = diff.within_tolerance = false;
    diff.notes.emplace_back("the runs have nothing in common: no tensor of one could be paired with one of the other");
  }
  return diff;
}

}  // namespace tenscope::compare
