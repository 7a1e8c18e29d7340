#include "compare/forward_judge.hpp"

#include <utility>

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
  if (judged.is_origin()) {
    Origin& origin =
        state_.blame(o, state_.text(item.scope),
                     {.cause = state_.frames.was_called(node) ? DiffCause::ChangedBetweenCalls : DiffCause::Initial,
                      .module = state_.text(item.scope),
                      .tensor = state_.text(item.name)},
                     before);
    if (origin.reason.cause == DiffCause::Initial) origin.distribution = state_.distribution_of(o);
    if (origin.distribution && origin.distribution->is_another_draw()) state_.count_other_draw();
  }
  state_.modules.set(node, item.tail, judged.trust);
  state_.latest_value[state_.parameter_of(o)] = o;
}

void ForwardJudge::visit_input(const Observation& o) {
  const int id = state_.frames.of(state_.call_of(o));
  Frame& frame = state_.frames[id];
  if (!o.is_on_both_sides()) {
    if (frame.input_on_one_side == kNothing && !state_.item_of(o).is_neutral)
      frame.input_on_one_side = static_cast<std::int64_t>(state_.position);
    return;
  }
  const Trust inputs = state_.at_hand(frame.parent);
  const Judged judged = state_.judge(o, inputs, Stage::Forward);
  if (judged.is_origin())
    blame_input(o, id, inputs);
  else
    frame.forward.add(judged.trust);
  if (const Item& item = state_.item_of(o); item.is_tensor()) frame.inputs.push_back(item.fingerprint);
}

// The input of a call differs, and that is nobody's doing but its caller's. Whether anything comes of it is known when
// the call has ended: a mask may have another form, a flag another value.
void ForwardJudge::blame_input(const Observation& o, int id, const Trust& inputs) {
  Frame& frame = state_.frames[id];
  const int around = frame.parent;
  const Item& item = state_.item_of(o);
  if (frame.pending.empty()) frame.consequences_before = state_.consequences();
  const std::size_t index = frame.pending.empty() ? state_.origins.size() : frame.pending.front();
  bool is_new = frame.pending.empty();
  std::size_t origin = index;
  if (item.is_tensor()) {
    const Contents contents{item.fingerprint, state_.b[static_cast<std::size_t>(o.b)].fingerprint};
    const auto [known, is_first] = known_inputs_.try_emplace(contents, index);
    origin = known->second;
    is_new = is_new && is_first;
  }
  if (!is_new) {  // the same difference again, or one more that comes with another
    state_.count_repeated();
    frame.pending.push_back(origin);
    frame.forward.is_suspect = true;
    return;
  }
  if (around == kProgram)
    state_.blame(o, "", {.cause = DiffCause::ModelInput, .module = state_.text(item.scope)}, inputs);
  else
    blame_code_of(around, o, {.cause = DiffCause::SubmoduleInput, .module = state_.text(item.scope)}, inputs);
  if (frame.is_entered) {
    state_.origins[index].is_pending = true;
    frame.pending.push_back(index);
    frame.forward.is_suspect = true;
  } else {
    frame.forward.is_tainted = state_.frames[around].forward.is_tainted = true;
  }
}

void ForwardJudge::note_result(int id, const Judged& judged) {
  ++state_.frames[id].results;
  state_.frames[state_.frames[id].parent].has_results_inside = true;
  if (judged.is_beyond_noise() || judged.verdict == Verdict::Unknown) ++state_.frames[id].affected;
}

void ForwardJudge::leave(int id) {
  Frame& frame = state_.frames[id];
  if (frame.pending.empty()) return;
  if (frame.results > 0 && frame.affected == 0) {
    frame.forward.is_tainted = frame.forward.is_suspect = false;
    frame.pending.clear();
    state_.set_idle(state_.consequences() - frame.consequences_before);
    return;
  }
  confirm(frame);
  state_.frames[frame.parent].forward.is_tainted = true;
}

void ForwardJudge::confirm(Frame& frame) {
  for (const std::size_t index : frame.pending) state_.origins[index].is_pending = false;
  frame.pending.clear();
}

// One parameter more in one run, and all that are drawn after it get other random numbers.
void ForwardJudge::blame_extra_draw() {
  const Origin* first = nullptr;
  for (const Origin& origin : state_.origins) {
    if (origin.reason.cause == DiffCause::ParameterOfItsOwn) return;  // that says it already
    if (!origin.distribution) continue;
    if (!origin.distribution->is_another_draw()) return;
    if (first == nullptr) first = &origin;
  }
  if (first == nullptr) return;
  const auto place = [](const Observation& o) { return o.a != kNothing ? o.a : o.b; };
  const std::pair<const int, Observation>* earliest = nullptr;
  for (const auto& lone : state_.lone_parameters) {
    const std::int64_t drawn = lone.second.a != kNothing ? first->seen.a : first->seen.b;
    if (place(lone.second) < drawn && (earliest == nullptr || place(lone.second) < place(earliest->second)))
      earliest = &lone;
  }
  if (earliest == nullptr) return;
  const std::string module = state_.module_path(earliest->first);
  Origin origin = state_.make_origin(
      earliest->second, module,
      {.cause = DiffCause::ExtraDraw, .module = module, .tensor = state_.text(state_.item_of(earliest->second).name)},
      {});
  origin.position = first->position;
  state_.origins.push_back(std::move(origin));
}

void ForwardJudge::finish() {
  blame_extra_draw();
  for (int id = 0; id < state_.frames.size(); ++id) confirm(state_.frames[id]);
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
  if (is_output) note_result(id, judged);
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
  note_result(id, judged);
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
  reason.has_inputs = !frames[frame].inputs.empty();
  reason.has_parameters = state_.has_parameters(frames[frame].node);
  reason.has_submodules = frames[frame].has_results_inside;
  if (const auto lone = state_.lone_parameters.find(frames[frame].node); lone != state_.lone_parameters.end()) {
    state_.blame(lone->second, frames.path(frame),
                 {.cause = DiffCause::ParameterOfItsOwn,
                  .module = frames.path(frame),
                  .tensor = state_.text(state_.item_of(lone->second).name)},
                 inputs);
    return;
  }
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
