#include "compare/optimizer_judge.hpp"

#include "compare/forward_judge.hpp"

namespace tenscope::compare {

// Where only one run changed a gradient after backward, the other one's is that after backward.
void OptimizerJudge::visit_gradient(const Observation& o) {
  const ParameterKey key = state_.parameter_of(o);
  Observation both = o;
  if (const auto latest = state_.latest_gradient.find(key); latest != state_.latest_gradient.end()) {
    if (both.a == kNothing) both.a = latest->second.a;
    if (both.b == kNothing) both.b = latest->second.b;
  }
  const Item& item = state_.item_of(o);
  Trust inputs = state_.gradients;
  inputs.add(state_.gradient_trust[key]);
  const Judged judged = state_.judge(both, inputs, Stage::Backward, state_.gradient_floor(o));
  if (judged.is_origin()) {
    const std::string module = state_.module_of(o);
    Origin& origin = state_.blame(o, module,
                                  {.cause = DiffCause::GradientBeforeUpdate,
                                   .module = module,
                                   .tensor = join_path(module, state_.interner.text(item.parameter))},
                                  inputs);
    origin.shown = both;
  }
  gradients_.add(judged.trust);
  state_.gradient_trust[key] = judged.trust;
  state_.latest_gradient[key] = both;
}

void OptimizerJudge::visit_updated(const Observation& seen) {
  const Observation o = state_.with_last_value(seen);
  if (!o.is_on_both_sides()) return;
  const Item& item = state_.item_of(seen);
  const int node = state_.node_of(seen);
  Trust inputs = state_.gradients;
  inputs.add(gradients_);
  inputs.add(state_.modules.of(node, item.tail));
  const auto latest = state_.latest_value.find(state_.parameter_of(seen));
  const Observation before = latest == state_.latest_value.end() ? Observation{} : latest->second;
  const Judged judged = state_.judge(o, inputs, Stage::Optimizer);
  const std::string module = state_.module_of(seen);
  const DiffReason reason{.cause = DiffCause::Update, .module = module, .tensor = state_.text(item.name)};
  if (judged.verdict == Verdict::Noise && inputs.noise == 0 && !rounded_update_) {
    rounded_update_ = state_.make_origin(o, module, reason, inputs);
    rounded_update_->before = before;
    date(*rounded_update_, seen, state_);
  }
  if (judged.is_origin() && rounded_update_ && rounded_update_->step < item.step) {
    Origin origin = *rounded_update_;
    origin.reason.cause = DiffCause::UpdateFromRounding;
    origin.reason.step = item.step;
    state_.origins.push_back(std::move(origin));
    rounded_update_.reset();
  } else if (judged.is_origin()) {
    Origin& origin = state_.blame(o, module, reason, inputs);
    origin.before = before;
    date(origin, seen, state_);
  }
  state_.modules.set(node, item.tail, judged.trust);
  state_.latest_value[state_.parameter_of(seen)] = o;
}

}  // namespace tenscope::compare
