// The walk itself, how one observation is judged, and the forward. lane_walker_backward.cpp has the rest.
#include "compare/lane_walker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tenscope::compare {

LaneWalker::LaneWalker(const Alignment& alignment, std::size_t lane, const Interner& interner, const Measures& measures,
                       const NoiseJudge& judge, Findings& findings)
    : alignment_(alignment),
      lane_(lane),
      pair_(alignment.lanes[lane]),
      interner_(interner),
      measures_(measures),
      judge_(judge),
      findings_(findings),
      a_(pair_.a->items),
      b_(pair_.b->items),
      frames_(alignment.tree_a),
      state_(alignment.tree_a),
      arriving_(alignment.tree_a.nodes.size()) {}

std::vector<Origin> LaneWalker::walk(const std::function<void(double)>& on_progress) {
  scan();
  observations_ = list_observations(alignment_, pair_, interner_);
  for (std::size_t i = 0; i < observations_.size(); ++i) {
    position_ = i;
    visit(observations_[i]);
    if (on_progress && i % 4096 == 0) on_progress(static_cast<double>(i) / static_cast<double>(observations_.size()));
  }
  finish_gradients();
  return std::move(origins_);
}

// What has to be known before the walk: how large a module's gradients are, which way gradients were recorded, the
// order of the parameters.
void LaneWalker::scan() {
  for (const Item& item : a_) {
    if (item.io == Io::GradOutput) has_gradient_flow_ = true;
    if (item.io == Io::Grad) {
      double& largest = largest_gradient_[{item.scope, item.step, item.call}];
      largest = std::max(largest, item.abs_max);
    }
    if (item.io == Io::Param && item.phase == Phase::Init)
      parameter_order_.try_emplace(parameter_key(item), parameter_order_.size());
  }
}

std::uint64_t LaneWalker::parameter_key(const Item& item) const {
  std::string_view tail = interner_.text(item.tail);
  if (item.io == Io::Grad && tail.ends_with(".grad")) tail.remove_suffix(5);
  return ModuleTree::key(item.root, item.scope) * 0x9E3779B97F4A7C15ULL ^ std::hash<std::string_view>{}(tail);
}

std::string LaneWalker::parameter_name(const Item& item) const {
  std::string name(interner_.text(item.name));
  if (name.ends_with(".grad")) name.resize(name.size() - 5);
  return name;
}

std::size_t LaneWalker::parameter_order(const Item& item) const {
  const auto found = parameter_order_.find(parameter_key(item));
  return found == parameter_order_.end() ? std::numeric_limits<std::size_t>::max() : found->second;
}

Trust LaneWalker::at_hand(int frame) const {
  Trust trust = frames_[frame].forward;
  trust.add(state_.of(frames_[frame].node));
  return trust;
}

// ---- judging one observation

namespace {

bool is_equal_in_bits(const Item& x, const Item& y) {
  if (x.is_tensor != y.is_tensor) return false;
  if (x.is_tensor) return x.fingerprint == y.fingerprint && x.dtype == y.dtype && x.shape == y.shape;
  return x.has_number == y.has_number && (x.number == y.number || (x.number != x.number && y.number != y.number)) &&
         x.text == y.text;
}

// A tensor that is computed from equal ones in another dtype is measured by the finer of the two: the change of dtype
// is part of the difference. Where dtypes differed before, the coarser one says what can be expected.
DType judged_dtype(const Item& x, const Item& y, bool are_dtypes_inherited) {
  if (!x.is_tensor || !y.is_tensor) return DType::F32;
  const bool is_x_coarser = unit_roundoff(x.dtype) > unit_roundoff(y.dtype);
  return is_x_coarser == are_dtypes_inherited ? x.dtype : y.dtype;
}

}  // namespace

LaneWalker::Judged LaneWalker::judge(const Observation& o, const Trust& inputs, Stage stage, double floor) {
  const Judged judged = judge_pair(o, inputs, stage, floor);
  const Item& item = item_of(o);
  const int node = frames_.node_of(item);
  if (node < 0) return judged;
  ModuleVerdict& module = findings_.modules[static_cast<std::size_t>(node)];
  module.is_compared = true;
  if (judged.verdict != Verdict::Equal) module.is_bit_equal = false;
  if (judged.trust.is_tainted && module.is_within_tolerance) {
    module.is_within_tolerance = false;
    module.step = item.step;
    module.phase = item.phase;
  }
  return judged;
}

LaneWalker::Judged LaneWalker::judge_pair(const Observation& o, const Trust& inputs, Stage stage, double floor) {
  ++findings_.compared;
  if (o.is_on_both_sides()) {
    const Item &x = a_[static_cast<std::size_t>(o.a)], &y = b_[static_cast<std::size_t>(o.b)];
    if (is_equal_in_bits(x, y)) {
      ++findings_.bit_equal;
      if (x.is_tensor) last_agreeing_ = o.a;
      return {};
    }
    note_bit_difference(o);
    if (inputs.is_tainted) return consequence();
    const PairError error = measures_.pair(x, y);
    const DType dtype = judged_dtype(x, y, inputs.noise > 0);
    const bool is_update = stage == Stage::Optimizer && item_of(o).phase == Phase::Optimizer && x.io == Io::Param;
    if (judge_.is_noise(error, dtype, inputs, stage, floor) &&
        !(is_update && !judge_.has_own_tolerance() && is_wrong_update(o, parameter_key(x)))) {
      ++findings_.noise;
      last_agreeing_ = o.a;
      const bool is_decision = kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex;
      return {Verdict::Noise, {is_decision ? 1.0 : error.relative(), false}};
    }
  } else {
    note_bit_difference(o);
    if (inputs.is_tainted) return consequence();
  }
  return {Verdict::Origin, {0, true}};
}

LaneWalker::Judged LaneWalker::consequence() {
  ++findings_.consequences;
  return {Verdict::Consequence, {0, true}};
}

void LaneWalker::note_bit_difference(const Observation& o) {
  std::optional<Origin>& first = findings_.first_bit_difference;
  if (first && (first->lane == lane_ || first->position <= position_)) return;
  first = make_origin(o, "");
  first->blamed = std::string(interner_.text(item_of(o).scope));
}

Origin LaneWalker::make_origin(const Observation& o, std::string reason) const {
  const Item& item = item_of(o);
  return {.lane = lane_,
          .position = position_,
          .a = o.a,
          .b = o.b,
          .shown_a = o.a,
          .shown_b = o.b,
          .blamed = "",
          .last_agreeing = last_agreeing_,
          .reason = std::move(reason),
          .tensors = 1,
          .step = item.step,
          .phase = item.phase};
}

void LaneWalker::blame(const Observation& o, std::string path, std::string reason) {
  Origin origin = make_origin(o, std::move(reason));
  origin.blamed = std::move(path);
  origins_.push_back(std::move(origin));
}

// The code of a module call made a difference out of what agreed: unless it was given an input in one run only, which
// is its caller's doing, or a module in it changed a tensor in place in one run only.
void LaneWalker::blame_code_of(int frame, const Observation& o, std::string reason) {
  if (const std::int64_t given = frames_[frame].input_on_one_side; given != kNothing) {
    const Observation& input = observations_[static_cast<std::size_t>(given)];
    const int around = frames_[frame].parent;
    blame(input, frames_.path(around),
          fmt::format("{} is given {} in one of the runs only, and what it makes of its inputs differs",
                      said(frames_.path(frame)), interner_.text(item_of(input).tail)));
    return;
  }
  for (const ChangedInput& changed : changed_inputs_) {
    if (changed.frame == frame || !frames_.is_within(changed.frame, frame)) continue;
    std::string_view input = interner_.text(item_of(changed.observation).tail);
    input.remove_suffix(std::string_view(".after").size());
    blame(o, frames_.path(changed.frame),
          fmt::format("{}, but for {}, which {} changes in place in one of the runs only", reason, input,
                      frames_.path(changed.frame)));
    return;
  }
  blame(o, frames_.path(frame), std::move(reason));
}

// ---- the walk

void LaneWalker::visit(const Observation& o) {
  const Item& item = item_of(o);
  if (item.io != Io::Grad && !pending_gradients_.empty()) finish_gradients();
  if (item.kind == EventKind::Enter) return frames_.enter(item);
  if (item.kind == EventKind::Exit) return frames_.exit(item);
  switch (item.io) {
    case Io::Input:
      return visit_input(o, item);
    case Io::Output:
    case Io::None:
    case Io::Local:
      return visit_output(o, item);
    case Io::Buffer:
      return item.phase == Phase::Init ? visit_initial(o, item) : visit_buffer(o, item);
    case Io::Param:
      return item.phase == Phase::Optimizer ? visit_updated(o, item) : visit_initial(o, item);
    case Io::Loss:
      return visit_loss(o, item);
    case Io::GradOutput:
      return visit_grad_output(o, item);
    case Io::GradInput:
      return visit_grad_input(o, item);
    case Io::Grad:
      return item.phase == Phase::Optimizer ? visit_clipped(o, item) : visit_grad(o, item);
  }
}

void LaneWalker::visit_input(const Observation& o, const Item& item) {
  const int id = frames_.of(item);
  if (!o.is_on_both_sides()) {
    if (frames_[id].input_on_one_side == kNothing) frames_[id].input_on_one_side = static_cast<std::int64_t>(position_);
    return;
  }
  const int around = frames_[id].parent;
  const Judged judged = judge(o, at_hand(around), Stage::Forward);
  if (judged.verdict == Verdict::Origin) {
    if (around == kProgram)
      blame(o, "", "the input of the model differs; what was recorded before it agrees");
    else
      blame_code_of(around, o,
                    fmt::format("the input of {} differs, while the inputs of {} and all that its submodules returned "
                                "before agree",
                                interner_.text(item.scope), said(frames_.path(around))));
    frames_[around].forward.is_tainted = true;
  }
  frames_[id].forward.add(judged.trust);
  if (item.is_tensor) frames_[id].inputs.push_back(item.fingerprint);
}

// An output, a value recorded by hand inside a module, or an input after the module changed it in place.
void LaneWalker::visit_output(const Observation& o, const Item& item) {
  const int id = frames_.of(item);
  if (!o.is_on_both_sides()) {
    changed_inputs_.push_back({id, o});
    return;
  }
  const Judged judged = judge(o, at_hand(id), Stage::Forward);
  const bool is_output = item.io == Io::Output;
  if (judged.verdict == Verdict::Origin) {
    if (is_output && item.root != 0)
      blame_code_of(id, o,
                    fmt::format("{} of {} differs, while its inputs, its parameters and all that its submodules "
                                "returned agree",
                                is_changed_input(item, interner_) ? "what becomes of an input" : "the output",
                                said(frames_.path(id))));
    else
      blame(o, item.root == 0 ? std::string(interner_.text(item.scope)) : frames_.path(id),
            fmt::format("{} differs; what was recorded before it agrees", interner_.text(item.name)));
    frames_[id].forward.is_tainted = true;
  }
  frames_[is_output ? frames_[id].parent : id].forward.add(judged.trust);
}

// Buffers and parameters are recorded where they have changed: on a side that has no event, the last value still holds.
Observation LaneWalker::with_last_value(Observation o, const Item& item) const {
  const auto last = latest_value_.find(parameter_key(item));
  if (last == latest_value_.end()) return o;
  if (o.a == kNothing) o.a = last->second.a;
  if (o.b == kNothing) o.b = last->second.b;
  return o;
}

// An origin that is a change of one run alone is where that run made it.
void LaneWalker::date(Origin& origin, const Observation& change) const {
  origin.step = item_of(change).step;
  origin.phase = item_of(change).phase;
  origin.is_change_in_b = change.a == kNothing;
}

void LaneWalker::visit_buffer(const Observation& seen, const Item& item) {
  const Observation o = with_last_value(seen, item);
  if (!o.is_on_both_sides()) return;
  const int id = frames_.of(item);
  const Judged judged = judge(o, at_hand(id), Stage::Forward);
  if (judged.verdict == Verdict::Origin) {
    blame(o, frames_.path(id),
          fmt::format("the buffer {} differs after the call, while the inputs of {} agree", interner_.text(item.tail),
                      said(frames_.path(id))));
    date(origins_.back(), seen);
    frames_[id].forward.is_tainted = true;
  }
  state_.set(frames_[id].node, item.tail, judged.trust);
  latest_value_[parameter_key(item)] = o;
}

void LaneWalker::visit_initial(const Observation& o, const Item& item) {
  const int node = frames_.node_of(item);
  Trust before = frames_[kProgram].forward;
  before.add(gradients_);
  before.add(state_.of(node, item.tail));
  const Judged judged = judge(o, before, Stage::Optimizer);
  if (judged.verdict == Verdict::Origin)
    blame(o, std::string(interner_.text(item.scope)),
          fmt::format("the {} {} differs {}", item.io == Io::Param ? "parameter" : "buffer", interner_.text(item.name),
                      frames_.was_called(node) ? "before the call, changed by something else than the optimizer"
                                               : "before the first forward"));
  state_.set(node, item.tail, judged.trust);
  latest_value_[parameter_key(item)] = o;
}

void LaneWalker::visit_loss(const Observation& o, const Item& item) {
  Trust inputs = at_hand(kProgram);
  if (const int node = frames_.node_of(item); node >= 0) inputs.add(state_.of(node));
  const Judged judged = judge(o, inputs, Stage::Forward);
  if (judged.verdict == Verdict::Origin) blame(o, "", "the loss differs, while the outputs of the model agree");
  frames_[kProgram].backward = judged.trust;
  frames_[kProgram].has_backward = true;
  std::fill(arriving_.begin(), arriving_.end(), Arriving{});
}

}  // namespace tenscope::compare
