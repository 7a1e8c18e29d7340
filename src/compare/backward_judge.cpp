#include "compare/backward_judge.hpp"

#include <algorithm>

#include "compare/backward_order.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {

BackwardJudge::BackwardJudge(LaneState& state)
    : state_(state),
      arriving_(state.alignment.tree_a.nodes.size()),
      has_gradient_flow_(
          std::any_of(state.a.begin(), state.a.end(), [](const Item& item) { return item.io == Io::GradOutput; })) {}

void BackwardJudge::visit_loss(const Observation& o) {
  Trust inputs = state_.at_hand(kProgram);
  if (const int node = state_.node_of(o); node >= 0) inputs.add(state_.modules.of(node));
  const Judged judged = state_.judge(o, inputs, Stage::Forward);
  if (judged.is_origin()) state_.blame(o, "", {.cause = DiffCause::Loss}, inputs);
  state_.frames[kProgram].backward = judged.trust;
  state_.frames[kProgram].has_backward = true;
  std::fill(arriving_.begin(), arriving_.end(), Arriving{});
  missing_.clear();
}

// What the gradients that reach the inside of a frame are computed from.
Trust BackwardJudge::flowing_into(int id) const {
  Trust trust;
  for (;; id = state_.frames[id].parent) {
    trust.add(state_.frames[id].forward);
    trust.add(state_.frames[id].backward);
    if (state_.frames[id].has_backward || id == kProgram) return trust;
  }
}

// The size that a gradient in a frame counts as at least.
double BackwardJudge::floor_inside(int id, const Observation& o, const Trust& inputs) const {
  while (id != kProgram && !state_.frames[id].has_backward) id = state_.frames[id].parent;
  const DType dtype = state_.item_of(o).dtype;
  if (inputs.noise == 0 || unit_roundoff(dtype) == 0) return 0;
  return state_.frames[id].arriving * thresholds::kArrivingUnits * unit_roundoff(dtype) / default_tolerance(dtype);
}

void BackwardJudge::spread(int id, const Trust& trust) {
  for (;; id = state_.frames[id].parent) {
    state_.frames[id].backward.add(trust);
    if (id == kProgram) return;
  }
}

// The innermost frame whose code used the outputs of a frame, and did not only return them: a module that ends with a
// normalisation has the same gradient as this, and it is seen there first.
int BackwardJudge::user_of_outputs(int id) const {
  const Frames& frames = state_.frames;
  const std::vector<Fingerprint>& outputs = frames[id].outputs;
  int user = frames[id].parent;
  const auto is_returned = [&](const Fingerprint& output) {
    const std::vector<Fingerprint>& own = frames[user].outputs;
    return std::find(own.begin(), own.end(), output) != own.end();
  };
  while (user != kProgram && std::any_of(outputs.begin(), outputs.end(), is_returned)) user = frames[user].parent;
  return user;
}

void BackwardJudge::visit_grad_output(const Observation& o) {
  Frames& frames = state_.frames;
  const int id = frames.of(state_.call_of(o));
  if (frames[id].is_idle) return;
  const int around = user_of_outputs(id);
  const Trust inputs = flowing_into(around);
  if (!o.is_on_both_sides()) {  // of an output that one run alone uses, say
    if (!inputs.is_tainted) missing_.push_back({o, state_.position, id, true, inputs});
    return;
  }
  const Judged judged = state_.judge(o, inputs, Stage::Backward, floor_inside(around, o, inputs));
  if (judged.is_origin()) {
    if (!blame_missing_in(around))
      state_.blame(o, frames.path(around), {.cause = DiffCause::GradientReaching, .module = frames.path(id)}, inputs);
    frames[around].backward.is_tainted = true;
  }
  frames[id].backward.add(judged.trust);
  frames[id].has_backward = true;
  frames[id].arriving = std::max(frames[id].arriving, state_.item_of(o).abs_max);
  spread(around, judged.trust);
  arrive(frames[id].node, judged.trust, state_.item_of(o).abs_max);
}

void BackwardJudge::visit_grad_input(const Observation& o) {
  Frames& frames = state_.frames;
  const int id = frames.of(state_.call_of(o));
  if (frames[id].is_idle) return;
  Trust inputs = frames[id].has_backward ? frames[id].backward : flowing_into(id);
  inputs.add(frames[id].forward);
  inputs.add(state_.modules.of(frames[id].node));
  if (!o.is_on_both_sides()) {
    if (!inputs.is_tainted) missing_.push_back({o, state_.position, id, false, inputs});
    return;
  }
  const Judged judged = state_.judge(o, inputs, Stage::Backward, floor_inside(id, o, inputs));
  if (judged.is_origin() && !blame_missing_in(id))
    state_.blame(o, frames.path(id), {.cause = DiffCause::GradientLeaving, .module = frames.path(id)}, inputs);
  spread(frames[id].parent, judged.trust);
}

// A gradient that goes on in one run only says nothing by itself: an implementation may have inputs that need none.
// Where a difference comes out of the frame around it, or where parameters have no gradient, it is where that was cut
// off: a module that a gradient reaches and leaves in one run only is the first before the cut; else the code around
// the first module that none reaches.
bool BackwardJudge::blame_missing_in(int around) {
  const auto is_inside = [&](const Missing& one) { return state_.frames.is_within(one.frame, around); };
  const auto is_within_cut = [&](const Missing& one) {
    return std::any_of(missing_.begin(), missing_.end(), [&](const Missing& other) {
      return is_unreached(other) && state_.frames.is_within(one.frame, other.frame);
    });
  };
  auto found = std::find_if(missing_.begin(), missing_.end(), [&](const Missing& one) {
    return !one.is_reaching && is_inside(one) && !is_within_cut(one);
  });
  if (found == missing_.end())
    found = std::find_if(missing_.begin(), missing_.end(),
                         [&](const Missing& one) { return is_unreached(one) && is_inside(one); });
  if (found == missing_.end()) return false;
  const int giver = found->is_reaching ? state_.frames[found->frame].parent : giver_of_inputs(found->frame, around);
  Origin& origin =
      state_.blame(found->observation, state_.frames.path(giver),
                   {.cause = DiffCause::GradientCutOff, .module = state_.frames.path(found->frame)}, found->inputs);
  origin.position = found->position;
  missing_.clear();
  return true;
}

// The innermost frame, in `around`, whose code made the inputs of a frame, and did not only pass its own inputs on.
int BackwardJudge::giver_of_inputs(int id, int around) const {
  const Frames& frames = state_.frames;
  const std::vector<Fingerprint>& inputs = frames[id].inputs;
  int giver = frames[id].parent;
  const auto is_passed_on = [&](const Fingerprint& input) {
    const std::vector<Fingerprint>& own = frames[giver].inputs;
    return std::find(own.begin(), own.end(), input) != own.end();
  };
  while (giver != around && giver != kProgram && !inputs.empty() &&
         std::all_of(inputs.begin(), inputs.end(), is_passed_on))
    giver = frames[giver].parent;
  return giver;
}

void BackwardJudge::arrive(int node, const Trust& trust, double size) {
  for (int at = node; at >= 0; at = state_.alignment.tree_a.nodes[static_cast<std::size_t>(at)].parent)
    arriving_[static_cast<std::size_t>(at)].trust.add(trust);
  if (node < 0) return;
  Arriving& arriving = arriving_[static_cast<std::size_t>(node)];
  arriving.is_known = true;
  arriving.size = std::max(arriving.size, size);
}

void BackwardJudge::visit_grad(const Observation& o) {
  if (!o.is_on_both_sides() && state_.item_of(o).abs_max == 0) return;  // none, or all zero: the same to an optimizer
  const int node = state_.node_of(o);
  const ParameterKey key = state_.parameter_of(o);
  Trust inputs = state_.gradient_trust[key];
  inputs.add(state_.modules.of(node));
  if (node >= 0) inputs.add(arriving_[static_cast<std::size_t>(node)].trust);
  if (state_.frames.was_called(node)) inputs.add(state_.frames[state_.frames.latest(node)].forward);
  const bool is_flow_known = node >= 0 && arriving_[static_cast<std::size_t>(node)].is_known;
  if (!is_flow_known) {
    inputs.add(state_.frames[kProgram].forward);
    inputs.add(state_.frames[kProgram].backward);
  }
  double floor = state_.gradient_floor(o);
  if (is_flow_known && inputs.noise > 0)
    floor = std::max(floor, thresholds::kGradientFloor * arriving_[static_cast<std::size_t>(node)].size);
  const Judged judged = state_.judge(o, inputs, Stage::Backward, floor);
  pending_.push_back({o, state_.position, judged, inputs, is_flow_known, state_.last_agreeing});
  state_.gradient_trust[key] = judged.trust;
  state_.latest_gradient[key] = o;
  gradients_now_.add(judged.trust);
}

void BackwardJudge::finish() {
  state_.gradients.add(gradients_now_);
  gradients_now_ = {};
  if (pending_.empty()) return;
  const auto is_cut_off = [&](int node) {
    return std::any_of(missing_.begin(), missing_.end(),
                       [&](const Missing& one) { return is_unreached(one) && state_.frames[one.frame].node == node; });
  };
  const bool is_any_cut_off = std::any_of(pending_.begin(), pending_.end(), [&](const PendingGradient& g) {
    if (!g.judged.is_origin()) return false;
    return !g.observation.is_on_both_sides() || (!g.is_flow_known && is_cut_off(state_.node_of(g.observation)));
  });
  if (is_any_cut_off && blame_missing_in(kProgram))
    for (PendingGradient& g : pending_)
      if (g.judged.is_origin()) {
        g.judged.verdict = Verdict::Consequence;
        if (g.observation.is_on_both_sides()) state_.count_repeated();
      }
  show_gradient_for_inner_origins();
  const bool is_any_unexplained = std::any_of(pending_.begin(), pending_.end(), [](const PendingGradient& g) {
    return g.judged.is_origin() && !g.is_flow_known;
  });
  std::optional<std::string> between;
  if (is_any_unexplained && !has_gradient_flow_) {
    std::vector<GradientSeen> seen;
    for (const PendingGradient& g : pending_) seen.push_back({state_.node_of(g.observation), g.judged.is_origin()});
    between = blame_by_order(state_.alignment.tree_a, state_.frames.call_order(), seen);
  }
  for (const PendingGradient& g : pending_) {
    if (!g.judged.is_origin()) continue;
    const Item& item = state_.item_of(g.observation);
    const std::string module = state_.module_of(g.observation);
    const DiffCause cause = between           ? DiffCause::GradientBetween
                            : g.is_flow_known ? DiffCause::GradientOfParameter
                                              : DiffCause::GradientUnexplained;
    Origin& origin = state_.blame(
        g.observation, between.value_or(module),
        {.cause = cause, .module = module, .tensor = join_path(module, state_.interner.text(item.parameter))},
        g.inputs);
    origin.position = g.position;
    origin.last_agreeing = g.last_agreeing;
  }
  pending_.clear();
}

// A gradient inside the network is told by the first parameter's gradient that differs with it.
void BackwardJudge::show_gradient_for_inner_origins() {
  const PendingGradient* first = nullptr;
  for (const PendingGradient& g : pending_)
    if (g.judged.is_beyond_noise() &&
        (first == nullptr || state_.parameter_order(g.observation) < state_.parameter_order(first->observation)))
      first = &g;
  if (first == nullptr) return;
  for (Origin& origin : state_.origins) {
    const Io seen = state_.item_of(origin.seen).io;
    const bool is_inner = seen == Io::GradOutput || seen == Io::GradInput;
    if (is_inner && state_.item_of(origin.shown).io != Io::Grad) origin.shown = first->observation;
  }
}

}  // namespace tenscope::compare
