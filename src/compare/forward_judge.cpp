#include "compare/forward_judge.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compare/thresholds.hpp"

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
  if (!judged.is_origin())
    frame.forward.add(judged.trust);
  else if (!is_known_idle(o))
    blame_input(o, id, inputs, judged.relative);
  if (const Item& item = state_.item_of(o); item.is_tensor()) frame.inputs.push_back(item.fingerprint);
}

ForwardJudge::Contents ForwardJudge::contents_of(const Observation& o) const {
  return {state_.a[static_cast<std::size_t>(o.a)].fingerprint, state_.b[static_cast<std::size_t>(o.b)].fingerprint};
}

ForwardJudge::Flags ForwardJudge::flags_of(const Observation& o) const {
  const Item &x = state_.a[static_cast<std::size_t>(o.a)], &y = state_.b[static_cast<std::size_t>(o.b)];
  return {x.tail, x.value, y.value, x.integer, y.integer, x.number, y.number, x.text, y.text};
}

// A mask that says the same in another form; a flag with the values of which nothing came in an earlier call.
bool ForwardJudge::is_known_idle(const Observation& o) {
  const bool are_tensors =
      state_.a[static_cast<std::size_t>(o.a)].is_tensor() && state_.b[static_cast<std::size_t>(o.b)].is_tensor();
  if (!are_tensors) {
    if (!idle_flags_.contains(flags_of(o))) return false;
    state_.note_idle(o, true);
    return true;
  }
  const bool is_known = same_masks_.contains(contents_of(o));
  if (!is_known && !state_.is_same_mask(o)) return false;
  same_masks_.insert(contents_of(o));
  state_.note_idle(o, !is_known);
  return true;
}

// Whether anything comes of a difference is known when the call around it has ended: a mask may have another form, a
// flag another value, an output may be used by nobody.
void ForwardJudge::wait_for_result(std::size_t origin, int id, double relative) {
  Frame& frame = state_.frames[id];
  state_.origins[origin].is_pending = true;
  state_.origins[origin].relative = relative;
  if (frame.pending.empty()) frame.consequences_before = state_.consequences();
  frame.smallest_pending = frame.pending.empty() ? relative : std::min(frame.smallest_pending, relative);
  frame.pending.push_back(origin);
  frame.forward.is_suspect = true;
}

// The input of a call differs, and that is nobody's doing but its caller's.
void ForwardJudge::blame_input(const Observation& o, int id, const Trust& inputs, double relative) {
  Frame& frame = state_.frames[id];
  const int around = frame.parent;
  const Item& item = state_.item_of(o);
  const std::size_t index = frame.pending.empty() ? state_.origins.size() : frame.pending.front();
  bool is_new = frame.pending.empty();
  std::size_t origin = index;
  if (item.is_tensor()) {
    const auto [known, is_first] = known_inputs_.try_emplace(contents_of(o), index);
    origin = known->second;
    is_new = is_new && is_first;
  }
  if (!is_new) {  // the same difference again, or one more that comes with another
    wait_for_result(origin, id, relative);
    state_.count_repeated();
    return;
  }
  if (around == kProgram)
    state_.blame(o, "", {.cause = DiffCause::ModelInput, .module = state_.text(item.scope)}, inputs);
  else
    blame_code_of(around, o, {.cause = DiffCause::SubmoduleInput, .module = state_.text(item.scope)}, inputs);
  if (frame.is_entered)
    wait_for_result(index, id, relative);
  else
    frame.forward.is_tainted = state_.frames[around].forward.is_tainted = true;
}

void ForwardJudge::note_result(int id, const Judged& judged) {
  ++state_.frames[id].results;
  state_.frames[state_.frames[id].parent].has_results_inside = true;
  if (judged.is_beyond_noise() || judged.verdict == Verdict::Unknown)
    ++state_.frames[id].affected;
  else
    state_.frames[id].noise_of_results = std::max(state_.frames[id].noise_of_results, judged.relative);
}

// What a call leaves behind in a buffer is a result of all calls around it.
void ForwardJudge::note_affected(int id) {
  for (id = state_.frames[id].parent; id != kProgram; id = state_.frames[id].parent) ++state_.frames[id].affected;
}

void ForwardJudge::leave(int id) {
  Frame& frame = state_.frames[id];
  if (frame.pending.empty()) return;
  const bool is_without_effect = frame.results > 0 && frame.affected == 0 &&
                                 frame.noise_of_results * thresholds::kWithoutEffect <= frame.smallest_pending;
  if (is_without_effect) {
    for (const std::size_t origin : frame.pending) {
      const Observation& seen = state_.origins[origin].seen;
      if (seen.is_on_both_sides() && !state_.item_of(seen).is_tensor()) idle_flags_.insert(flags_of(seen));
      if (const auto made = made_by_.find(origin); made != made_by_.end()) state_.frames[made->second].is_idle = true;
    }
    frame.forward.is_tainted = frame.forward.is_suspect = false;
    frame.pending.clear();
    state_.set_idle(state_.consequences() - frame.consequences_before);
    return;
  }
  Frame& around = state_.frames[frame.parent];
  if (frame.parent == kProgram || !around.is_entered) {
    confirm(frame);
    around.forward.is_tainted = true;
    return;
  }
  if (around.pending.empty()) around.consequences_before = frame.consequences_before;
  around.smallest_pending =
      around.pending.empty() ? frame.smallest_pending : std::min(around.smallest_pending, frame.smallest_pending);
  around.pending.insert(around.pending.end(), frame.pending.begin(), frame.pending.end());
  around.forward.is_suspect = true;
  frame.pending.clear();
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

// An output of which nothing comes in its call may be kept on the side, for the loss or for a later call. So it is
// where the difference begins, if something outside of the modules begins to differ later, unless it has another form.
void ForwardJudge::revive_outputs() {
  const auto is_outside = [](const Origin& origin) {
    return !origin.is_pending && (origin.reason.cause == DiffCause::Loss || origin.phase == Phase::Backward);
  };
  std::size_t last = 0;
  for (const Origin& origin : state_.origins)
    if (is_outside(origin)) last = std::max(last, origin.position);
  for (Origin& origin : state_.origins)
    if (origin.is_pending && origin.position < last && std::isfinite(origin.relative) &&
        state_.item_of(origin.seen).io == Io::Output)
      origin.is_pending = false;
}

void ForwardJudge::finish() {
  revive_outputs();
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
  if (is_output && item.is_tensor()) state_.frames[id].outputs.push_back(item.fingerprint);
  if (judged.is_origin()) {
    const std::string path = item.root == 0 ? state_.text(item.scope) : state_.frames.path(id);
    if (is_output && item.root != 0)
      blame_code_of(id, o,
                    {.cause = is_changed_input(item, state_.interner) ? DiffCause::ChangedInput : DiffCause::Output,
                     .module = path},
                    inputs);
    else
      state_.blame(o, path, {.cause = DiffCause::Value, .module = path, .tensor = state_.text(item.name)}, inputs);
    const int around = state_.frames[id].parent;
    if (is_output && around != kProgram && state_.frames[around].is_entered) {
      wait_for_result(state_.origins.size() - 1, around, judged.relative);
      made_by_[state_.origins.size() - 1] = id;
      state_.frames[id].forward.is_suspect = true;
      return;
    }
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
  if (judged.is_beyond_noise()) note_affected(id);
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
  // Of two engines the smallest module whose inputs both recorded.
  if (state_.pair.is_by_content)
    while (frames[frame].inputs.empty() && frames[frame].parent != kProgram) frame = frames[frame].parent;
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
