#include "compare/report_origin.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

// The role of a tensor as a report has it: gradients inside the network are gradients, what has no role is a value.
std::string_view reported_io(Io io) {
  switch (io) {
    case Io::None:
    case Io::Local:
    case Io::Op:
    case Io::Oracle:
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

// Causes that are not in the code of the blamed module: the data, the loss, the optimizer, the program around it.
bool is_of_module_code(DiffCause cause) {
  switch (cause) {
    case DiffCause::ModelInput:
    case DiffCause::Value:
    case DiffCause::ChangedBetweenCalls:
    case DiffCause::Loss:
    case DiffCause::GradientBeforeUpdate:
    case DiffCause::Update:
    case DiffCause::UpdateFromRounding:
    case DiffCause::End:
      return false;
    default:
      return true;
  }
}

class ResultMaker {
 public:
  explicit ResultMaker(const ReportedRun& run)
      : alignment_(run.alignment), interner_(run.interner), describe_(run.describe), findings_(run.findings) {}

  DiffOrigin make(const Origin& origin) const {
    const LanePair& lane = alignment_.lanes[origin.lane];
    DiffOrigin result;
    result.place = place(lane, {origin.is_change_in_b ? kNothing : origin.shown.a, origin.shown.b});
    // Gradients that all begin to differ together are no single module's doing.
    const bool is_of_program = origin.reason.is_of_all && item(lane, origin.seen).io == Io::Grad;
    result.place.module = is_of_program ? "" : origin.blamed;
    result.place.phase = to_string(origin.phase);
    const Item& seen = item(lane, origin.seen);
    const int node = node_of(seen.root, result.place.module);
    if (node >= 0) {
      const ModuleNode& module = alignment_.tree_a.nodes[static_cast<std::size_t>(node)];
      result.place.cls = interner_.text(module.cls);
      if (result.place.site.empty()) result.place.site = interner_.text(module.site);
    }
    if (origin.shown.a != kNothing) result.event_a = event(0, lane.a->items[static_cast<std::size_t>(origin.shown.a)]);
    if (origin.shown.b != kNothing) result.event_b = event(1, lane.b->items[static_cast<std::size_t>(origin.shown.b)]);
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
    if (node >= 0 && !is_of_program && is_of_module_code(origin.reason.cause)) result.code = code(origin, node);
    if (result.code && result.place.site.empty()) result.place.site = result.code->site_a;
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

  DiffEvent event(int run, const Item& item) const {
    if (describe_.event) return describe_.event(run, item);
    return {.name = std::string(interner_.text(item.name)), .step = item.step, .call = item.call};
  }

  bool is_function(TextId root) const {
    const int node = alignment_.tree_a.find(root, 0);
    if (node < 0) return false;
    const ModuleNode& module = alignment_.tree_a.nodes[static_cast<std::size_t>(node)];
    return module.is_called && module.children.empty() && module.own == 0;
  }

  // The code of the blamed module, and what else of it differs.
  std::optional<DiffCode> code(const Origin& origin, int node) const {
    const int partner = alignment_.module_to_b[static_cast<std::size_t>(node)];
    if (!describe_.code || partner < 0) return std::nullopt;
    const ModuleNode &a = alignment_.tree_a.nodes[static_cast<std::size_t>(node)],
                     &b = alignment_.tree_b.nodes[static_cast<std::size_t>(partner)];
    if (a.cls == 0 || b.cls == 0) return std::nullopt;
    const auto in_a = describe_.module ? describe_.module(0, a) : ModuleOfRun{&alignment_.tree_a, &a},
               in_b = describe_.module ? describe_.module(1, b) : ModuleOfRun{&alignment_.tree_b, &b};
    if (!in_a || !in_b) return std::nullopt;
    const LanePair& lane = alignment_.lanes[origin.lane];
    const Item *call_a = last_call(*lane.a, origin.seen.a, a), *call_b = last_call(*lane.b, origin.seen.b, b);
    const auto number = [](const Item* call) { return call != nullptr ? call->call : 0; };
    DiffCode code = describe_.code(code_of(*in_a->tree, *in_a->node, number(call_a), interner_),
                                   code_of(*in_b->tree, *in_b->node, number(call_b), interner_));
    code.attributes = compare_attributes(*in_a->node, *in_b->node, interner_);
    for (DiffAttribute& one : code.attributes) one.root = interner_.text(a.root), one.module = a.path;
    std::erase_if(code.attributes, [&](const DiffAttribute& one) { return begins_behind(one, call_a); });
    const auto mode = [](const Item* call) { return call != nullptr ? static_cast<int>(call->integer) : -1; };
    const int mode_a = mode(call_a), mode_b = mode(call_b);
    if (mode_a >= 0 && mode_b >= 0 && mode_a != mode_b) {
      const auto word = [](int mode) { return std::string(mode == 1 ? "true" : "false"); };
      code.attributes.push_back({std::string(interner_.text(a.root)), a.path, "training", word(mode_a), word(mode_b)});
    }
    for (DiffAttribute& dtype : compare_dtypes(a, b, lane, interner_)) code.attributes.push_back(std::move(dtype));
    return code;
  }

  // Whether an attribute begins to differ too late to be the reason.
  bool begins_behind(const DiffAttribute& one, const Item* call) const {
    if (one.step < 0 || call == nullptr) return false;
    if (one.step != call->step) return one.step > call->step;
    return !describe_.module && one.call > call->call;  // other layouts count calls in another way
  }

  // The last call of a module up to an item, which knows whether it is in training; null: there is none.
  const Item* last_call(const Lane& lane, std::int64_t until, const ModuleNode& node) const {
    for (auto i = until; i >= 0; --i) {
      const Item& item = lane.items[static_cast<std::size_t>(i)];
      if (item.kind == EventKind::Enter && item.root == node.root && interner_.text(item.scope) == node.path)
        return &item;
    }
    return nullptr;
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

}  // namespace

DiffOrigin report_origin(const ReportedRun& run, const Origin& origin) { return ResultMaker(run).make(origin); }

DiffPlace report_place(const ReportedRun& run, const LanePair& lane, const Observation& o) {
  return ResultMaker(run).place(lane, o);
}

}  // namespace tenscope::compare
