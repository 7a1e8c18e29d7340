// Parameters, the loss, gradients and optimizers. Overview in check_origins.cpp.
#include <algorithm>

#include "compare/check_origins.hpp"

namespace tenscope::compare {

// A parameter or buffer before the first forward, changed by something else than an optimizer, or after its step.
void OriginTracer::visit_state(const Value& value) {
  const std::string key = key_of(value.event);
  const bool is_update = value.event.phase == Phase::Optimizer;
  if (is_update) lane_.is_training = true;
  if (!value.is_ill) {
    lane_.states.erase(key);
    return;
  }
  if (value.io == Io::Buffer && is_mask(value)) {
    lane_.states[key] = {kNone, add_mask(value)};
    return;
  }
  int chain = kNone;
  if (const auto before = lane_.states.find(key); before != lane_.states.end()) chain = before->second.chain;
  if (const auto gradient = lane_.gradient_chain.find(key); gradient != lane_.gradient_chain.end())
    chain = either(chain, gradient->second);
  chain = either(chain, lane_.gradients);
  const int node = node_of(value.event);
  const bool is_initial = !is_update && !lane_.latest.contains(node);
  if (chain == kNone && value.io == Io::Param) chain = is_update ? lane_.updates : is_initial ? lane_.initial : kNone;
  const bool may_be_on_purpose = value.io == Io::Buffer && value.is_only_inf;
  if (chain == kNone) {
    const auto gradient = lane_.gradient.find(key);
    const Reason reason = is_initial                         ? Reason::Initial
                          : !is_update                       ? Reason::Replaced
                          : gradient == lane_.gradient.end() ? Reason::Update
                                                             : Reason::Optimizer;
    chain = add_chain(value, node, reason, kProgram);
    Chain& added = chains_[static_cast<std::size_t>(chain)];
    added.before.fill(kNoEvent);
    if (reason == Reason::Optimizer) added.before[0] = gradient->second;
    if (!may_be_on_purpose) chain = make_ill(chain);
    if (value.io == Io::Param && is_update) lane_.updates = chain;
    if (value.io == Io::Param && is_initial) lane_.initial = chain;
  } else if (!may_be_on_purpose || chains_[static_cast<std::size_t>(chain)].is_ill) {
    chain = follow(chain, value);
  }
  lane_.states[key] = {chain, kNone};
}

void OriginTracer::visit_loss(const Value& value) {
  begin_backward();
  lane_.is_training = true;
  Frame& program = lane_.frames[kProgram];
  if (!value.is_ill) {
    program.gradient = value.id;
    return;
  }
  int chain = program.chain;
  for (const auto& [key, state] : lane_.states)
    if (key.starts_with(value.event.root + '\n')) chain = either(chain, state.chain);
  chain = chain == kNone ? blame(value, kNone, Reason::Loss, kProgram) : follow(chain, value);
  program.backward = either(program.backward, chain);
  taint(kProgram, chain);
}

void OriginTracer::begin_backward() {
  if (lane_.is_backward) return;
  lane_.is_backward = true;
  lane_.frames[kProgram].backward = kNone;
  lane_.frames[kProgram].gradient = kNoEvent;
}

// A gradient that reaches a module from outside cannot follow from one inside of it: what was taken for the doing of
// the module's own code came with it. Gradients are recorded from the inside outwards where a tensor is the output of
// several modules.
void OriginTracer::move_origin(int id, const Value& value, int blamed, int around) {
  Chain& chain = chains_[static_cast<std::size_t>(id)];
  const Event inner = reader_.event(chain.origin);
  const auto known = lane_.known.find(inner.root + '\n' + inner.name);
  if (known != lane_.known.end() && known->second.chain == id) lane_.known.erase(known);
  ++chain.after;
  chain.way.insert(chain.way.begin(), say_on_way(value_of(chain.origin, inner)));
  const int moved = add_chain(value, blamed, Reason::GradientCode, around);
  Chain& to = chains_[static_cast<std::size_t>(id)];
  to.origin = value.id;
  to.blamed = blamed;
  to.before = chains_[static_cast<std::size_t>(moved)].before;
  to.is_ill = false;
  chains_.pop_back();
}

void OriginTracer::visit_grad_output(const Value& value) {
  begin_backward();
  lane_.is_training = true;
  const int id = frame_of(value.event);
  Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  const int around = frame.parent;
  frame.has_backward = true;
  lane_.flow_known.insert(frame.node);
  if (!value.is_ill) {
    if (frame.gradient == kNoEvent) frame.gradient = value.id;
    return;
  }
  const int outside = lane_.frames[static_cast<std::size_t>(around)].node;
  int chain = flowing_into(around);
  if (frame.code != kNone && chains_[static_cast<std::size_t>(frame.code)].same_as == kNone) {
    move_origin(frame.code, value, outside, around);
    chain = make_ill(frame.code);
    lane_.frames[static_cast<std::size_t>(around)].code = frame.code;
    frame.code = kNone;
  } else if (chain != kNone) {
    chain = follow(chain, value);
  } else {
    chain = blame(value, outside, Reason::GradientCode, around);
    if (around != kProgram && chains_[static_cast<std::size_t>(chain)].origin == value.id)
      lane_.frames[static_cast<std::size_t>(around)].code = chain;
  }
  frame.backward = either(frame.backward, chain);
  for (int above = id;; above = lane_.frames[static_cast<std::size_t>(above)].parent) {
    Frame& at = lane_.frames[static_cast<std::size_t>(above)];
    at.backward = either(at.backward, chain);
    reach(at.node, chain);
    if (above == kProgram) break;
  }
}

void OriginTracer::visit_grad_input(const Value& value) {
  begin_backward();
  const int id = frame_of(value.event);
  if (!value.is_ill) return;
  const Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  int chain = either(either(frame.backward, at_hand(id)), frame.quiet);
  if (chain == kNone && !frame.has_backward) chain = flowing_into(frame.parent);
  chain = chain == kNone ? blame(value, frame.node, Reason::Backward, id) : follow(chain, value);
  for (int above = id;; above = lane_.frames[static_cast<std::size_t>(above)].parent) {
    Frame& at = lane_.frames[static_cast<std::size_t>(above)];
    at.backward = either(at.backward, chain);
    if (above == id) reach(at.node, chain);
    if (above == kProgram) break;
  }
}

// What explains a parameter's gradient; `node` is the nearest module with a call that owns it.
int OriginTracer::explain_gradient(const Value& value, int node) const {
  int chain = kNone;
  const std::string key = key_of(value.event);
  if (const auto earlier = lane_.gradient_chain.find(key); earlier != lane_.gradient_chain.end())
    chain = either(chain, earlier->second);
  if (const auto state = lane_.states.find(key); state != lane_.states.end())
    chain = either(chain, state->second.chain);
  if (const auto reached = lane_.module_chain.find(node); reached != lane_.module_chain.end())
    chain = either(chain, reached->second);
  const auto latest = lane_.latest.find(node);
  const int frame = latest == lane_.latest.end() ? kProgram : latest->second;
  chain = either(chain, either(at_hand(frame), lane_.frames[static_cast<std::size_t>(frame)].quiet));
  if (chain == kNone && !lane_.flow_known.contains(node)) chain = flowing_into(frame);
  return chain;
}

// All gradients of parameters after one backward have been seen. Those that nothing explains have one origin: in the
// module that was called last, as gradients go from the last to the first.
void OriginTracer::finish_gradients() {
  if (lane_.pending.empty()) return;
  lane_.is_training = true;
  begin_backward();
  const std::vector<PendingGradient> pending = std::move(lane_.pending);
  lane_.pending.clear();
  const auto caller_of = [&](const Event& event) {
    for (std::string_view path = event.scope;; path = parent_path(path)) {
      const auto node = node_index_.find(event.root + '\n' + std::string(path));
      if (node != node_index_.end() && lane_.latest.contains(node->second)) return node->second;
      if (path.empty()) return node_of(event);
    }
  };
  std::vector<const PendingGradient*> unexplained;
  for (const PendingGradient& gradient : pending) {
    const Value value = value_of(gradient.id, gradient.event);
    const std::string key = key_of(gradient.event);
    lane_.gradient[key] = gradient.id;
    if (!value.is_ill) {
      lane_.gradient_chain.erase(key);
    } else if (const int chain = explain_gradient(value, caller_of(gradient.event)); chain != kNone) {
      lane_.gradients = either(lane_.gradients, lane_.gradient_chain[key] = follow(chain, value));
    } else {
      unexplained.push_back(&gradient);
    }
  }
  if (unexplained.empty()) return;
  const auto last_call = [&](const PendingGradient* gradient) {
    const auto latest = lane_.latest.find(caller_of(gradient->event));
    return latest == lane_.latest.end() ? kNone : latest->second;
  };
  const PendingGradient* first = unexplained.front();
  for (const PendingGradient* other : unexplained)
    if (last_call(other) > last_call(first)) first = other;
  const int node = caller_of(first->event);
  const bool is_flow_known = lane_.flow_known.contains(node);
  const int frame = std::max(last_call(first), kProgram);
  int chain = blame(value_of(first->id, first->event), node_of(first->event),
                    is_flow_known ? Reason::Backward : Reason::BackwardPart, frame);
  Chain& added = chains_[static_cast<std::size_t>(chain)];
  if (added.gradient_step < 0) added.gradient_step = first->event.step;
  for (const PendingGradient* other : unexplained) {
    if (other != first) chain = follow(chain, value_of(other->id, other->event));
    lane_.gradient_chain[key_of(other->event)] = chain;
  }
  lane_.gradients = either(lane_.gradients, chain);
}

void OriginTracer::visit_clipped(const Value& value) {
  const std::string key = key_of(value.event);
  const EventId before = lane_.gradient.contains(key) ? lane_.gradient[key] : kNoEvent;
  lane_.gradient[key] = value.id;
  if (!value.is_ill) {
    lane_.gradient_chain.erase(key);
    return;
  }
  int chain = lane_.gradients;
  if (const auto earlier = lane_.gradient_chain.find(key); earlier != lane_.gradient_chain.end())
    chain = either(chain, earlier->second);
  if (chain == kNone) {
    chain = add_chain(value, node_of(value.event), Reason::Clipping, kProgram);
    chains_[static_cast<std::size_t>(chain)].before = {before, kNoEvent, kNoEvent, kNoEvent};
    chain = make_ill(chain);
  } else {
    chain = follow(chain, value);
  }
  lane_.gradient_chain[key] = chain;
  lane_.gradients = either(lane_.gradients, chain);
}

}  // namespace tenscope::compare
