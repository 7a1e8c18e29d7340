// Gradients and optimizers.
#include <fmt/format.h>

#include <algorithm>

#include "compare/backward_order.hpp"
#include "compare/lane_walker.hpp"

namespace tenscope::compare {

// What the gradients that reach the inside of a frame are computed from.
Trust LaneWalker::flowing_into(int id) {
  Trust trust;
  for (;; id = frames_[id].parent) {
    trust.add(frames_[id].forward);
    trust.add(frames_[id].backward);
    if (frames_[id].has_backward || id == kProgram) return trust;
  }
}

void LaneWalker::spread_backward(int id, const Trust& trust) {
  for (;; id = frames_[id].parent) {
    frames_[id].backward.add(trust);
    if (id == kProgram) return;
  }
}

void LaneWalker::visit_grad_output(const Observation& o, const Item& item) {
  const int id = frames_.of(item);
  const int around = frames_[id].parent;
  const Judged judged = judge(o, flowing_into(around), Stage::Backward);
  if (judged.verdict == Verdict::Origin) {
    blame(o, frames_.path(around),
          fmt::format("the gradient of {}'s output differs, while the gradients that reach {} and those that its "
                      "later submodules passed on agree",
                      said(frames_.path(id)), said(frames_.path(around))));
    frames_[around].backward.is_tainted = true;
  }
  frames_[id].backward.add(judged.trust);
  frames_[id].has_backward = true;
  spread_backward(around, judged.trust);
  arrive(frames_[id].node, judged.trust);
}

void LaneWalker::visit_grad_input(const Observation& o, const Item& item) {
  const int id = frames_.of(item);
  Trust inputs = frames_[id].has_backward ? frames_[id].backward : flowing_into(id);
  inputs.add(frames_[id].forward);
  inputs.add(state_.of(frames_[id].node));
  const Judged judged = judge(o, inputs, Stage::Backward);
  if (judged.verdict == Verdict::Origin && !o.is_on_both_sides()) {
    const std::string around = frames_.path(giver_of_inputs(id));
    blame(o, around,
          fmt::format("no gradient goes from the input of {} back into {} in one of the runs: it was cut off there",
                      said(frames_.path(id)), said(around)));
  } else if (judged.verdict == Verdict::Origin) {
    blame(o, frames_.path(id),
          fmt::format("the gradient that {} passes on differs, while the one that reaches it agrees",
                      said(frames_.path(id))));
  }
  spread_backward(frames_[id].parent, judged.trust);
}

// The innermost frame whose code made the inputs of a frame, and did not only pass its own inputs on.
int LaneWalker::giver_of_inputs(int id) const {
  const std::vector<Fingerprint> inputs = frames_[id].inputs;
  int giver = frames_[id].parent;
  const auto is_passed_on = [&](const Fingerprint& input) {
    const std::vector<Fingerprint>& own = frames_[giver].inputs;
    return std::find(own.begin(), own.end(), input) != own.end();
  };
  while (giver != kProgram && !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), is_passed_on))
    giver = frames_[giver].parent;
  return giver;
}

void LaneWalker::arrive(int node, const Trust& trust) {
  for (int at = node; at >= 0; at = alignment_.tree_a.nodes[static_cast<std::size_t>(at)].parent)
    arriving_[static_cast<std::size_t>(at)].trust.add(trust);
  if (node >= 0) arriving_[static_cast<std::size_t>(node)].is_known = true;
}

double LaneWalker::gradient_floor(const Item& item) const {
  const auto found = largest_gradient_.find({item.scope, item.step, item.call});
  return found == largest_gradient_.end() ? 0 : 0.1 * found->second;
}

void LaneWalker::visit_grad(const Observation& o, const Item& item) {
  const int node = frames_.node_of(item);
  Trust inputs = gradient_of_[parameter_key(item)];
  inputs.add(state_.of(node));
  if (node >= 0) inputs.add(arriving_[static_cast<std::size_t>(node)].trust);
  if (frames_.was_called(node)) inputs.add(frames_[frames_.latest(node)].forward);
  const bool is_flow_known = node >= 0 && arriving_[static_cast<std::size_t>(node)].is_known;
  if (!is_flow_known) {
    inputs.add(frames_[kProgram].forward);
    inputs.add(frames_[kProgram].backward);
  }
  const Judged judged = judge(o, inputs, Stage::Backward, gradient_floor(item));
  pending_gradients_.push_back({o, position_, judged.verdict, is_flow_known, last_agreeing_});
  gradient_of_[parameter_key(item)] = judged.trust;
  latest_gradient_[parameter_key(item)] = o;
  gradients_now_.add(judged.trust);
}

// All gradients of one backward have been seen.
void LaneWalker::finish_gradients() {
  gradients_.add(gradients_now_);
  gradients_now_ = {};
  if (pending_gradients_.empty()) return;
  show_gradient_for_inner_origins();
  const bool is_any_unexplained =
      std::any_of(pending_gradients_.begin(), pending_gradients_.end(),
                  [](const PendingGradient& g) { return g.verdict == Verdict::Origin && !g.is_flow_known; });
  std::string blamed_without_flow;
  bool is_between = false;
  if (is_any_unexplained && !has_gradient_flow_) {
    std::vector<GradientSeen> seen;
    for (const PendingGradient& g : pending_gradients_)
      seen.push_back({frames_.node_of(item_of(g.observation)), g.verdict == Verdict::Origin});
    if (const auto found = blame_by_order(alignment_.tree_a, frames_.call_order(), seen)) {
      blamed_without_flow = *found;
      is_between = true;
    }
  }
  for (const PendingGradient& g : pending_gradients_) {
    if (g.verdict != Verdict::Origin) continue;
    const Item& item = item_of(g.observation);
    position_ = g.position;
    last_agreeing_ = g.last_agreeing;
    const std::string path(interner_.text(item.scope));
    if (is_between)
      blame(g.observation, blamed_without_flow,
            fmt::format("the gradients of the modules before {} differ, those of the modules after it agree",
                        said(blamed_without_flow)));
    else
      blame(g.observation, path,
            g.is_flow_known
                ? fmt::format("the gradient of {} differs, while the gradients that reach {} agree",
                              parameter_name(item), said(path))
                : fmt::format("the gradient of {} differs, while outputs and loss agree", parameter_name(item)));
  }
  pending_gradients_.clear();
}

// A gradient inside the network is told by the first parameter's gradient that differs with it.
void LaneWalker::show_gradient_for_inner_origins() {
  const PendingGradient* first = nullptr;
  for (const PendingGradient& g : pending_gradients_)
    if (g.verdict != Verdict::Equal && g.verdict != Verdict::Noise &&
        (first == nullptr || parameter_order(item_of(g.observation)) < parameter_order(item_of(first->observation))))
      first = &g;
  if (first == nullptr) return;
  for (Origin& origin : origins_) {
    const Item& item = item_of({origin.a, origin.b});
    const bool is_inner = item.io == Io::GradOutput || item.io == Io::GradInput;
    if (!is_inner || item_of({origin.shown_a, origin.shown_b}).io == Io::Grad) continue;
    origin.shown_a = first->observation.a;
    origin.shown_b = first->observation.b;
  }
}

// A gradient at the beginning of a step that is another one than after backward; where only one run changed it, the
// other one's is that after backward.
void LaneWalker::visit_clipped(const Observation& o, const Item& item) {
  const std::uint64_t key = parameter_key(item);
  Observation both = o;
  if (const auto latest = latest_gradient_.find(key); latest != latest_gradient_.end()) {
    if (both.a == kNothing) both.a = latest->second.a;
    if (both.b == kNothing) both.b = latest->second.b;
  }
  Trust inputs = gradients_;
  inputs.add(gradient_of_[key]);
  const Judged judged = judge(both, inputs, Stage::Backward, gradient_floor(item));
  if (judged.verdict == Verdict::Origin) {
    blame(o, std::string(interner_.text(item.scope)),
          fmt::format("the gradient of {} differs when the optimizer begins, while it agreed after backward",
                      parameter_name(item)));
    origins_.back().shown_a = both.a;
    origins_.back().shown_b = both.b;
  }
  clipped_.add(judged.trust);
  gradient_of_[key] = judged.trust;
  latest_gradient_[key] = both;
}

void LaneWalker::visit_updated(const Observation& seen, const Item& item) {
  const Observation o = with_last_value(seen, item);
  if (!o.is_on_both_sides()) return;
  const int node = frames_.node_of(item);
  Trust inputs = gradients_;
  inputs.add(clipped_);
  inputs.add(state_.of(node, item.tail));
  const Judged judged = judge(o, inputs, Stage::Optimizer);
  const std::string reason =
      fmt::format("{} differs after the optimizer's step, while the gradients agree", interner_.text(item.name));
  const std::string path(interner_.text(item.scope));
  if (judged.verdict == Verdict::Noise && inputs.noise == 0 && !rounded_update_) {
    rounded_update_ = make_origin(o, reason);
    rounded_update_->blamed = path;
    date(*rounded_update_, seen);
  }
  if (judged.verdict == Verdict::Origin && rounded_update_ && rounded_update_->step < item.step) {
    Origin origin = *rounded_update_;
    origin.reason += fmt::format("; by no more than rounding at first, but beyond that in step {}", item.step);
    origins_.push_back(std::move(origin));
    rounded_update_.reset();
  } else if (judged.verdict == Verdict::Origin) {
    blame(o, path, reason);
    date(origins_.back(), seen);
  }
  state_.set(node, item.tail, judged.trust);
  latest_value_[parameter_key(item)] = o;
}

bool LaneWalker::is_wrong_update(const Observation& after, std::uint64_t key) const {
  const auto before = latest_value_.find(key), gradient = latest_gradient_.find(key);
  if (!measures_.update || before == latest_value_.end() || gradient == latest_gradient_.end()) return false;
  if (!before->second.is_on_both_sides() || !gradient->second.is_on_both_sides()) return false;
  const auto items = [&](const std::vector<Item>& run, std::int64_t Observation::* side) {
    const auto at = [&](const Observation& o) { return &run[static_cast<std::size_t>(o.*side)]; };
    return UpdateItems{at(before->second), at(after), at(gradient->second)};
  };
  const std::optional<UpdateError> error = measures_.update(items(a_, &Observation::a), items(b_, &Observation::b));
  return error && error->is_mistake();
}

}  // namespace tenscope::compare
