#include "compare/forward_judge.hpp"

namespace tenscope::compare {

void date(Origin& origin, const Observation& change, const LaneState& state) {
  origin.step = state.item_of(change).step;
  origin.phase = state.item_of(change).phase;
  origin.is_change_in_b = change.a == kNothing;
}

void ForwardJudge::visit_initial(const Observation& o) {
  const Item& item = state_.item_of(o);
  const int node = state_.node_of(o);
  Trust before = state_.frames[kProgram].forward;
  before.add(state_.gradients);
  before.add(state_.modules.of(node, item.tail));
  const Judged judged = state_.judge(o, before, Stage::Optimizer);
  if (judged.is_origin())
    state_.blame(o, state_.text(item.scope),
                 {.cause = state_.frames.was_called(node) ? DiffCause::ChangedBetweenCalls : DiffCause::Initial,
                  .module = state_.text(item.scope),
                  .tensor = state_.text(item.name)},
                 before);
  state_.modules.set(node, item.tail, judged.trust);
  state_.latest_value[state_.parameter_of(o)] = o;
}

void ForwardJudge::visit_input(const Observation& o) {
  const int id = state_.frames.of(state_.call_of(o));
  Frame& frame = state_.frames[id];
  if (!o.is_on_both_sides()) {
    if (frame.input_on_one_side == kNothing) frame.input_on_one_side = static_cast<std::int64_t>(state_.position);
    return;
  }
  const int around = frame.parent;
  const Trust inputs = state_.at_hand(around);
  const Judged judged = state_.judge(o, inputs, Stage::Forward);
  const Item& item = state_.item_of(o);
  if (judged.is_origin()) {
    if (around == kProgram)
      state_.blame(o, "", {.cause = DiffCause::ModelInput, .module = state_.text(item.scope)}, inputs);
    else
      blame_code_of(around, o, {.cause = DiffCause::SubmoduleInput, .module = state_.text(item.scope)}, inputs);
    state_.frames[around].forward.is_tainted = true;
  }
  frame.forward.add(judged.trust);
  if (item.is_tensor()) frame.inputs.push_back(item.fingerprint);
}

void ForwardJudge::visit_output(const Observation& o) {
  const int id = state_.frames.of(state_.call_of(o));
  if (!o.is_on_both_sides()) {
    changed_inputs_.push_back({id, o});
    return;
  }
  const Item& item = state_.item_of(o);
  const Trust inputs = state_.at_hand(id);
  const Judged judged = state_.judge(o, inputs, Stage::Forward);
  const bool is_output = item.io == Io::Output;
  if (judged.is_origin()) {
    const std::string path = item.root == 0 ? state_.text(item.scope) : state_.frames.path(id);
    if (is_output && item.root != 0)
      blame_code_of(id, o,
                    {.cause = is_changed_input(item, state_.interner) ? DiffCause::ChangedInput : DiffCause::Output,
                     .module = path},
                    inputs);
    else
      state_.blame(o, path, {.cause = DiffCause::Value, .module = path, .tensor = state_.text(item.name)}, inputs);
    state_.frames[id].forward.is_tainted = true;
  }
  state_.frames[is_output ? state_.frames[id].parent : id].forward.add(judged.trust);
}

void ForwardJudge::visit_buffer(const Observation& seen) {
  const Observation o = state_.with_last_value(seen);
  if (!o.is_on_both_sides()) return;
  const Item& item = state_.item_of(seen);
  const int id = state_.frames.of(state_.call_of(seen));
  const Trust inputs = state_.at_hand(id);
  const Judged judged = state_.judge(o, inputs, Stage::Forward);
  if (judged.is_origin()) {
    Origin& origin = state_.blame(
        o, state_.frames.path(id),
        {.cause = DiffCause::Buffer, .module = state_.frames.path(id), .tensor = state_.text(item.tail)}, inputs);
    date(origin, seen, state_);
    state_.frames[id].forward.is_tainted = true;
  }
  state_.modules.set(state_.frames[id].node, item.tail, judged.trust);
  state_.latest_value[state_.parameter_of(seen)] = o;
}

// The code of a module call made a difference out of what agreed: unless it was given an input in one run only, which
// is its caller's doing, or a module in it changed a tensor in place in one run only.
void ForwardJudge::blame_code_of(int frame, const Observation& o, DiffReason reason, const Trust& inputs) {
  Frames& frames = state_.frames;
  if (const std::int64_t given = frames[frame].input_on_one_side; given != kNothing) {
    const Observation& input = state_.observations[static_cast<std::size_t>(given)];
    state_.blame(input, frames.path(frames[frame].parent),
                 {.cause = DiffCause::ExtraInput,
                  .module = frames.path(frame),
                  .tensor = state_.text(state_.item_of(input).tail)},
                 inputs);
    return;
  }
  for (const ChangedInput& changed : changed_inputs_) {
    if (changed.frame == frame || !frames.is_within(changed.frame, frame)) continue;
    const std::string_view tail = state_.interner.text(state_.item_of(changed.observation).tail);
    reason.changed_input = input_of_changed_input(tail);
    state_.blame(o, frames.path(changed.frame), std::move(reason), inputs);
    return;
  }
  state_.blame(o, frames.path(frame), std::move(reason), inputs);
}

}  // namespace tenscope::compare
