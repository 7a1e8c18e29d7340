// Overview. NaN and infinities spread: one mistake makes thousands of ill tensors. They are one chain, and what matters
// is its origin: the first value that is not finite although all that it was made from is.
//
// The events of a process are visited in their order. A frame is a module call; its `chain` says whether anything that
// the code of this call has at hand (its inputs, what its submodules returned, parameters and buffers in it) is ill,
// and from which origin. An ill value whose frame has a chain follows from it and is counted there; otherwise it is an
// origin, and blames
//   an output             the module: it is the innermost one, since a submodule's output is at its caller's hand;
//   an input              the caller's own code, or the data where nobody called it;
//   the loss              the program;
//   a gradient            (backward) the module that was reached by a sound one, or the code between two modules;
//   a parameter           init, or the optimizer's step: where its gradient is ill, it follows from the gradient.
// Parameters and buffers carry a chain from step to step; all else is forgotten with its call. In a training loop each
// step begins with new data, so what the program has at hand is forgotten too; elsewhere (generation) it is kept until
// a step without ill values.
//
// Infinities can be on purpose: masks. An input or buffer of -Inf and 0 is a mask, and so is what a mask in reach can
// have made of sound values (-Inf alone, in a shape to which the mask broadcasts). Other infinities in inputs, buffers
// and local values are suspects: chains that are not told unless a NaN or an infinity in an output, a loss, a gradient
// or a parameter follows from them. A suspect that a submodule takes in, returning sound values, is let go (`quiet`)
// for the forward, though not for the backward: log(0) under a tanh shows in the gradients only.
#include "compare/check_origins.hpp"

#include <algorithm>
#include <cmath>

namespace tenscope::compare {

OriginTracer::Value OriginTracer::value_of(EventId id, const Event& event) const {
  Value value{.id = id, .event = event, .tensor = std::get_if<TensorRecord>(&event.value), .io = event.io};
  if (value.tensor != nullptr) {
    const Stats& stats = value.tensor->stats;
    value.count = stats.count;
    value.nan = stats.nan;
    value.pos_inf = stats.pos_inf;
    value.neg_inf = stats.neg_inf;
  } else if (const auto* number = std::get_if<double>(&event.value)) {
    value.count = 1;
    value.nan = std::isnan(*number);
    value.pos_inf = std::isinf(*number) && *number > 0;
    value.neg_inf = std::isinf(*number) && *number < 0;
  }
  const bool has_nan = static_cast<double>(value.nan) > nan_limit_;
  value.is_ill = has_nan || static_cast<double>(value.pos_inf + value.neg_inf) > inf_limit_;
  value.is_only_inf = value.is_ill && !has_nan;
  return value;
}

int OriginTracer::node_of(const Event& event) {
  if (event.root.empty()) return kNone;
  const auto [found, is_new] = node_index_.try_emplace(event.root + '\n' + event.scope, 0);
  if (is_new) {
    found->second = static_cast<int>(nodes_.size());
    nodes_.push_back({event.root, event.scope, event.cls, ""});
  }
  return found->second;
}

// The call that an event belongs to. Where no enter was recorded, it was called by the latest call of a module above.
int OriginTracer::frame_of(const Event& event) {
  const int node = node_of(event);
  if (node == kNone) return kProgram;
  const auto [found, is_new] = lane_.frame_of.try_emplace({node, event.call}, static_cast<int>(lane_.frames.size()));
  if (!is_new) return found->second;
  Frame frame{.node = node};
  for (std::string_view path = event.scope; !path.empty() && frame.parent == kProgram;) {
    path = parent_path(path);
    const auto above = node_index_.find(event.root + '\n' + std::string(path));
    if (above == node_index_.end()) continue;
    if (const auto call = lane_.latest.find(above->second); call != lane_.latest.end()) frame.parent = call->second;
  }
  lane_.latest[node] = found->second;
  lane_.frames.push_back(std::move(frame));
  return found->second;
}

std::string OriginTracer::key_of(const Event& event) const {
  return event.root + '\n' + std::string(event.io == Io::Grad ? parameter_of_gradient(event.name) : event.name);
}

// ---- what is at hand

int OriginTracer::either(int x, int y) const {
  if (x == kNone || y == kNone) return x == kNone ? y : x;
  const bool is_ill_x = chains_[static_cast<std::size_t>(x)].is_ill;
  const bool is_ill_y = chains_[static_cast<std::size_t>(y)].is_ill;
  return is_ill_x == is_ill_y ? std::min(x, y) : is_ill_x ? x : y;
}

int OriginTracer::at_hand(int id) const {
  const Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  int chain = frame.chain;
  if (!frame.has_inputs && id != kProgram) chain = either(chain, at_hand(frame.parent));
  if (frame.node == kNone || lane_.states.empty()) return chain;
  const Node& node = nodes_[static_cast<std::size_t>(frame.node)];
  const std::string prefix = node.root + '\n' + (node.scope.empty() ? "" : node.scope + ".");
  for (auto at = lane_.states.lower_bound(prefix); at != lane_.states.end() && at->first.starts_with(prefix); ++at)
    chain = either(chain, at->second.chain);
  return chain;
}

// What the gradients that reach the inside of a frame are made from.
int OriginTracer::flowing_into(int id) const {
  for (;; id = lane_.frames[static_cast<std::size_t>(id)].parent) {
    const Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
    if (const int chain = either(either(frame.backward, frame.chain), frame.quiet); chain != kNone) return chain;
    if (frame.has_backward || id == kProgram) return kNone;
  }
}

namespace {

bool broadcasts(const std::vector<std::int64_t>& mask, const std::vector<std::int64_t>& shape) {
  if (mask.size() > shape.size()) return false;
  for (std::size_t i = 1; i <= mask.size(); ++i)
    if (mask[mask.size() - i] != 1 && mask[mask.size() - i] != shape[shape.size() - i]) return false;
  return true;
}

}  // namespace

// Nothing but infinities and zeros: of -Inf it is a mask, and in a buffer (an observer's range, say) either is meant.
bool OriginTracer::is_mask(const Value& value) {
  return value.tensor != nullptr && value.is_only_inf && (value.pos_inf == 0 || value.io == Io::Buffer) &&
         value.tensor->stats.zero == value.count - value.neg_inf - value.pos_inf;
}

int OriginTracer::add_mask(const Value& value) {
  lane_.masks.push_back({value.id, value.tensor->shape});
  return static_cast<int>(lane_.masks.size()) - 1;
}

// The mask at hand that can have made this tensor's infinities out of sound values.
int OriginTracer::find_mask(int id, const Value& value) const {
  if (value.tensor == nullptr || !value.is_only_inf || value.pos_inf > 0) return kNone;
  const auto fits = [&](int mask) {
    return mask != kNone && broadcasts(lane_.masks[static_cast<std::size_t>(mask)].shape, value.tensor->shape);
  };
  const Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  const auto found = std::find_if(frame.masks.begin(), frame.masks.end(), fits);
  if (found != frame.masks.end()) return *found;
  if (frame.node == kNone) return kNone;
  const Node& node = nodes_[static_cast<std::size_t>(frame.node)];
  const std::string prefix = node.root + '\n' + (node.scope.empty() ? "" : node.scope + ".");
  for (auto at = lane_.states.lower_bound(prefix); at != lane_.states.end() && at->first.starts_with(prefix); ++at)
    if (fits(at->second.mask)) return at->second.mask;
  return kNone;
}

void OriginTracer::reach(int node, int chain) {
  if (node == kNone || chain == kNone) return;
  int& reached = lane_.module_chain.try_emplace(node, kNone).first->second;
  reached = either(reached, chain);
}

void OriginTracer::taint(int id, int chain) {
  Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  frame.chain = either(frame.chain, chain);
  reach(frame.node, chain);
  if (id == kProgram) lane_.is_program_ill = true;
}

// Where several origins are at hand, an input that is some module's output follows from what that output does.
void OriginTracer::know_content(const Value& value, int chain) {
  if (value.tensor != nullptr)
    lane_.chain_of_content[{value.tensor->fingerprint.high, value.tensor->fingerprint.low}] = chain;
}

int OriginTracer::chain_of_content(const Value& value, int otherwise) const {
  if (value.tensor == nullptr) return otherwise;
  const auto found = lane_.chain_of_content.find({value.tensor->fingerprint.high, value.tensor->fingerprint.low});
  return found == lane_.chain_of_content.end() ? otherwise : found->second;
}

// ---- chains

int OriginTracer::add_chain(const Value& value, int blamed, Reason reason, int id) {
  const Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  Chain chain{.origin = value.id, .rank = lane_.rank, .blamed = blamed, .reason = reason};
  std::size_t size = 0;
  for (const EventId event : {frame.gradient, frame.last_output, frame.inputs[0], frame.inputs[1], frame.inputs[2]})
    if (event != kNoEvent && event != value.id && size < chain.before.size() && reason != Reason::Data &&
        reason != Reason::Outside && (event != frame.gradient || is_gradient(value.io)))
      chain.before[size++] = event;
  if (!frame.masks.empty()) chain.mask = lane_.masks[static_cast<std::size_t>(frame.masks.front())].event;
  chain.has_nan = value.nan > 0;
  chain.has_inf = value.pos_inf + value.neg_inf > 0;
  chain.is_only_negative = value.nan + value.pos_inf == 0;
  chains_.push_back(std::move(chain));
  return static_cast<int>(chains_.size()) - 1;
}

// Where the same origin was found before, and none of its values has been sound since, it is that one again.
int OriginTracer::make_ill(int id) {
  Chain& chain = chains_[static_cast<std::size_t>(id)];
  if (chain.same_as != kNone) return chain.same_as;
  if (chain.is_ill) return id;
  chain.is_ill = true;
  const Event event = reader_.event(chain.origin);
  const auto [found, is_new] = lane_.known.try_emplace(event.root + '\n' + event.name);
  if (!is_new && !found->second.has_recovered && found->second.chain != id) {
    Chain& first = chains_[static_cast<std::size_t>(found->second.chain)];
    ++first.again;
    first.after += chain.after;
    first.last_again = chain.origin;
    chain.same_as = found->second.chain;
    return chain.same_as;
  }
  found->second = {id, false};
  return id;
}

std::string OriginTracer::say_on_way(const Value& value) {
  const char* kind = value.nan > 0 ? "NaN" : value.pos_inf > 0 ? "+Inf" : "-Inf";
  return value.event.name + " (" + kind + ")";
}

// An ill value that follows from a chain.
int OriginTracer::follow(int id, const Value& value) {
  id = make_ill(id);
  Chain& chain = chains_[static_cast<std::size_t>(id)];
  ++chain.after;
  chain.has_nan |= value.nan > 0;
  chain.has_inf |= value.pos_inf + value.neg_inf > 0;
  chain.is_only_negative &= value.nan + value.pos_inf == 0;
  if (value.io == Io::Grad && chain.gradient_step < 0) chain.gradient_step = value.event.step;
  constexpr std::size_t kMostPlaces = 6;
  if (chain.way.size() < kMostPlaces && value.io != Io::Input) {
    std::string place = say_on_way(value);
    if (std::find(chain.way.begin(), chain.way.end(), place) == chain.way.end()) chain.way.push_back(std::move(place));
  }
  return id;
}

int OriginTracer::blame(const Value& value, int blamed, Reason reason, int frame) {
  return make_ill(add_chain(value, blamed, reason, frame));
}

void OriginTracer::note_sound(const Value& value) {
  if (lane_.known.empty()) return;
  if (const auto found = lane_.known.find(value.event.root + '\n' + value.event.name); found != lane_.known.end())
    found->second.has_recovered = true;
}

// ---- the walk

void OriginTracer::look_at(EventId id, const Event& event) {
  if (const std::size_t writer = reader_.writer_index(id); writer != lane_.writer) {
    finish_gradients();
    lane_ = Lane{.writer = writer, .rank = reader_.writers()[writer].rank, .step = event.step};
  }
  if (event.kind == EventKind::Enter) return enter(event);
  if (event.kind == EventKind::Exit) return leave(event);
  if (event.kind != EventKind::Value && event.kind != EventKind::Change) return;
  const Value value = value_of(id, event);
  const Phase phase = event.phase;
  if (value.io != Io::Grad || phase == Phase::Optimizer || event.step != lane_.step) finish_gradients();
  if (!lane_.pending.empty() && lane_.pending.back().event.call != event.call) finish_gradients();
  if (event.step != lane_.step) begin_step(event.step);
  if (!value.is_ill) note_sound(value);
  switch (value.io) {
    case Io::Input:
      return visit_input(value);
    case Io::Output:
      return visit_output(value);
    case Io::Buffer:
      return phase == Phase::Init ? visit_state(value) : visit_output(value);
    case Io::Param:
      return visit_state(value);
    case Io::Loss:
      return visit_loss(value);
    case Io::GradOutput:
      return visit_grad_output(value);
    case Io::GradInput:
      return visit_grad_input(value);
    case Io::Grad:
      if (phase == Phase::Optimizer) return visit_clipped(value);
      lane_.pending.push_back({id, event});
      return;
    default:
      return visit_inside(value);
  }
}

void OriginTracer::begin_step(std::int64_t step) {
  Frame& program = lane_.frames[kProgram];
  if (lane_.is_training || !lane_.is_program_ill) {
    program.chain = program.quiet = kNone;
    program.masks.clear();
  }
  lane_.is_program_ill = false;
  lane_.gradients = lane_.updates = kNone;
  lane_.gradient_chain.clear();
  lane_.chain_of_content.clear();
  lane_.step = step;
}

void OriginTracer::begin_forward() {
  if (!lane_.is_backward) return;
  lane_.is_backward = false;
  lane_.module_chain.clear();
  lane_.flow_known.clear();
}

void OriginTracer::enter(const Event& event) {
  finish_gradients();
  begin_forward();
  const int node = node_of(event);
  if (node == kNone) return;
  nodes_[static_cast<std::size_t>(node)].cls = event.cls;
  nodes_[static_cast<std::size_t>(node)].site = event.site;
  std::vector<int>& stack = lane_.stacks[event.thread];
  const int parent = stack.empty() ? kProgram : stack.back();
  const int frame = frame_of(event);
  if (frame != parent) lane_.frames[static_cast<std::size_t>(frame)].parent = parent;
  stack.push_back(frame);
}

void OriginTracer::leave(const Event& event) {
  const int node = node_of(event);
  std::vector<int>& stack = lane_.stacks[event.thread];
  while (!stack.empty()) {
    const bool is_it = lane_.frames[static_cast<std::size_t>(stack.back())].node == node;
    stack.pop_back();
    if (is_it) break;
  }
}

void OriginTracer::visit_input(const Value& value) {
  begin_forward();
  const int id = frame_of(value.event);
  const int around = lane_.frames[static_cast<std::size_t>(id)].parent;
  lane_.frames[static_cast<std::size_t>(id)].has_inputs = true;
  if (value.tensor == nullptr && value.is_only_inf) return;  // an infinite number as an argument is meant
  if (!value.is_ill) {
    auto& inputs = lane_.frames[static_cast<std::size_t>(id)].inputs;
    if (const auto free = std::find(inputs.begin(), inputs.end(), kNoEvent); free != inputs.end()) *free = value.id;
    return;
  }
  int chain = at_hand(around);
  if (around == kProgram && chain == kNone) chain = lane_.frames[static_cast<std::size_t>(id)].chain;
  if (chain != kNone) {
    chain = chain_of_content(value, chain);
    if (!value.is_only_inf || chains_[static_cast<std::size_t>(chain)].is_ill) chain = follow(chain, value);
  } else {
    if ((around == kProgram && is_mask(value)) || find_mask(around, value) != kNone) {
      lane_.frames[static_cast<std::size_t>(id)].masks.push_back(add_mask(value));
      return;
    }
    const int blamed = lane_.frames[static_cast<std::size_t>(around)].node;
    const Reason reason = around != kProgram          ? Reason::CallerCode
                          : value.event.scope.empty() ? Reason::Data
                                                      : Reason::Outside;
    chain = add_chain(value, blamed, reason, around);
    if (!value.is_only_inf) chain = make_ill(chain);
    if (around != kProgram) taint(around, chain);
  }
  taint(id, chain);
}

// An output, an input as the call left it, a buffer after the call.
void OriginTracer::visit_output(const Value& value) {
  if (value.io == Io::Output) begin_forward();
  const int id = frame_of(value.event);
  const int around = lane_.frames[static_cast<std::size_t>(id)].parent;
  Frame& outer = lane_.frames[static_cast<std::size_t>(around)];
  Frame& frame = lane_.frames[static_cast<std::size_t>(id)];
  const std::string key = key_of(value.event);
  if (!value.is_ill) {
    if (value.io == Io::Buffer) {
      lane_.states.erase(key);
      return;
    }
    outer.last_output = value.id;
    if (around == kProgram && frame.node == lane_.ill_root) {  // sound again
      outer.chain = lane_.ill_root = kNone;
    }
    if (frame.chain != kNone && !chains_[static_cast<std::size_t>(frame.chain)].is_ill) {
      frame.quiet = frame.chain;
      if (outer.chain == frame.chain) {
        outer.chain = kNone;
        outer.quiet = frame.chain;
      }
    }
    return;
  }
  int chain = at_hand(id);
  if (chain == kNone && find_mask(id, value) != kNone) {
    const int mask = add_mask(value);
    if (value.io == Io::Buffer)
      lane_.states[key] = {kNone, mask};
    else
      outer.masks.push_back(mask);
    return;
  }
  const bool may_be_on_purpose = value.io == Io::Buffer && value.is_only_inf;
  if (chain == kNone) {
    chain = add_chain(value, frame.node, Reason::Output, id);
    if (!may_be_on_purpose) chain = make_ill(chain);
  } else if (!may_be_on_purpose || chains_[static_cast<std::size_t>(chain)].is_ill) {
    chain = follow(chain, value);
  }
  if (value.io == Io::Buffer) {
    lane_.states[key] = {chain, kNone};
    return;
  }
  know_content(value, chain);
  taint(id, chain);
  taint(around, chain);
  if (around == kProgram) lane_.ill_root = frame.node;
}

// A value recorded by hand, inside a module call or outside of all.
void OriginTracer::visit_inside(const Value& value) {
  const int id = frame_of(value.event);
  if (!value.is_ill) {
    lane_.frames[static_cast<std::size_t>(id)].last_output = value.id;
    return;
  }
  const bool is_number = value.tensor == nullptr || value.count == 1;  // a loss, say, and no mask
  const bool may_be_on_purpose = value.is_only_inf && !is_number;
  int chain = at_hand(id);
  if (chain == kNone) {
    if (!is_number && (is_mask(value) || find_mask(id, value) != kNone)) {
      lane_.frames[static_cast<std::size_t>(id)].masks.push_back(add_mask(value));
      return;
    }
    chain = add_chain(value, lane_.frames[static_cast<std::size_t>(id)].node, Reason::Inside, id);
    if (!may_be_on_purpose) chain = make_ill(chain);
  } else if (!may_be_on_purpose || chains_[static_cast<std::size_t>(chain)].is_ill) {
    chain = follow(chain, value);
  }
  taint(id, chain);
}

}  // namespace tenscope::compare
