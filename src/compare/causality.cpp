// Overview. A difference starts where what a place computes from agrees and what it gives does not. The walker goes
// through a lane in the order of execution and keeps, for every module call (a frame), a Trust: how far the tensors
// that its code has at hand agree.
//
//   forward    A module's code has its inputs, its parameters and buffers, and the outputs of the submodules that have
//              returned. A submodule's input that differs although all of these agree is the fault of the code around
//              it: the frame's module is blamed. An output or a buffer blames its own module. The outermost modules'
//              inputs come from the program (the data), as does the loss.
//   backward   The same, in the other direction: the gradient of a module's output arrives, the gradient of its input
//              leaves. A parameter's gradient depends on what arrives at its module.
//   optimizer  A parameter depends on all gradients (they may be clipped together) and on what it was before.
//
// A tainted Trust makes what follows a consequence. A Trust with noise lets through noise, enlarged (noise.cpp).
#include "compare/causality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "compare/backward_order.hpp"

namespace tenscope::compare {
namespace {

constexpr int kProgram = 0;

struct Frame {
  int parent = kProgram;
  int node = -1;  // of tree_a
  std::int64_t call = 0;
  Trust forward;
  Trust backward;
  bool has_backward = false;
  std::vector<Fingerprint> inputs;  // in the first run
};

enum class Verdict { Equal, Noise, Consequence, Origin };

// One observation: an event on both sides, or a gradient on one side only.
struct Observation {
  std::int64_t a = kNothing, b = kNothing;
};

class LaneWalker {
 public:
  LaneWalker(const Alignment& alignment, std::size_t lane, const Interner& interner, const Measure& measure,
             const NoiseJudge& judge, Findings& findings)
      : alignment_(alignment),
        lane_(lane),
        pair_(alignment.lanes[lane]),
        interner_(interner),
        measure_(measure),
        judge_(judge),
        findings_(findings),
        a_(pair_.a->items),
        b_(pair_.b->items),
        state_(alignment.tree_a.nodes.size()),
        arriving_(alignment.tree_a.nodes.size()) {
    frames_.emplace_back();
  }

  void walk(const std::function<void(double)>& on_progress) {
    scan();
    const std::vector<Observation> observations = observe();
    for (std::size_t i = 0; i < observations.size(); ++i) {
      position_ = i;
      visit(observations[i]);
      if (on_progress && i % 4096 == 0) on_progress(static_cast<double>(i) / static_cast<double>(observations.size()));
    }
    finish_gradients();
    group();
  }

 private:
  // What has to be known before the walk: how large a module's gradients are, which way gradients were recorded, where
  // a run ends.
  void scan() {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const Item& item = a_[i];
      if (item.io == Io::GradOutput) has_gradient_flow_ = true;
      if (item.io == Io::Grad)
        largest_gradient_[{item.scope, item.step, item.call}] =
            std::max(largest_gradient_[{item.scope, item.step, item.call}], item.abs_max);
      if (item.io == Io::Param && item.phase == Phase::Init)
        parameter_order_.try_emplace(parameter_key(item), parameter_order_.size());
      if (pair_.to_b[i] != kAlone) last_paired_ = i;
    }
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (pair_.to_a[j] != kAlone) last_paired_b_ = j;
  }

  std::vector<Observation> observe() const {
    std::vector<Observation> observations;
    std::unordered_map<std::size_t, std::vector<std::int64_t>> only_b;  // after which item of a
    std::size_t after = 0;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (pair_.to_a[j] != kAlone)
        after = static_cast<std::size_t>(pair_.to_a[j]);
      else if (is_gradient(b_[j]) && j < last_paired_b_ && alignment_.tree_a.find(b_[j].root, b_[j].scope) >= 0)
        only_b[after].push_back(static_cast<std::int64_t>(j));
    }
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const bool is_paired = pair_.to_b[i] != kAlone;
      const bool is_missing = !is_paired && is_gradient(a_[i]) && i < last_paired_ && is_module_on_both_sides(a_[i]);
      if (is_paired || is_missing || a_[i].kind == EventKind::Enter || a_[i].kind == EventKind::Exit)
        observations.push_back({static_cast<std::int64_t>(i), pair_.to_b[i]});
      if (!only_b.empty())
        if (const auto found = only_b.find(i); found != only_b.end())
          for (const std::int64_t j : found->second) observations.push_back({kNothing, j});
    }
    return observations;
  }

  static bool is_gradient(const Item& item) {
    return item.is_tensor && (item.io == Io::Grad || item.io == Io::GradOutput || item.io == Io::GradInput);
  }

  bool is_module_on_both_sides(const Item& item) const {
    const int node = node_of(item);
    return node >= 0 && alignment_.module_to_b[static_cast<std::size_t>(node)] >= 0;
  }

  const Item& item_of(const Observation& o) const {
    return o.a != kNothing ? a_[static_cast<std::size_t>(o.a)] : b_[static_cast<std::size_t>(o.b)];
  }

  int node_of(const Item& item) const { return item.root == 0 ? -1 : alignment_.tree_a.find(item.root, item.scope); }

  std::uint64_t parameter_key(const Item& item) const {
    std::string_view tail = interner_.text(item.tail);
    if (item.io == Io::Grad && tail.ends_with(".grad")) tail.remove_suffix(5);
    return ModuleTree::key(item.root, item.scope) * 0x9E3779B97F4A7C15ULL ^ std::hash<std::string_view>{}(tail);
  }

  std::size_t parameter_order(const Item& item) const {
    const auto found = parameter_order_.find(parameter_key(item));
    return found == parameter_order_.end() ? std::numeric_limits<std::size_t>::max() : found->second;
  }

  // ---- frames

  static std::uint64_t frame_key(int node, std::int64_t call) {
    return (static_cast<std::uint64_t>(node) << 32) ^ static_cast<std::uint64_t>(call);
  }

  int frame_of(const Item& item) {
    const int node = node_of(item);
    return node < 0 ? kProgram : frame_at(node, item.call);
  }

  int frame_at(int node, std::int64_t call) {
    if (const auto found = frame_index_.find(frame_key(node, call)); found != frame_index_.end()) return found->second;
    const int parent_node = alignment_.tree_a.nodes[static_cast<std::size_t>(node)].parent;
    int parent = kProgram;  // no enter event was recorded: the latest call of the module above
    for (int above = parent_node; above >= 0; above = alignment_.tree_a.nodes[static_cast<std::size_t>(above)].parent)
      if (const auto latest = latest_frame_.find(above); latest != latest_frame_.end()) {
        parent = latest->second;
        break;
      }
    return add_frame(node, call, parent);
  }

  int add_frame(int node, std::int64_t call, int parent) {
    const int id = static_cast<int>(frames_.size());
    frames_.push_back({.parent = parent, .node = node, .call = call});
    frame_index_[frame_key(node, call)] = id;
    latest_frame_[node] = id;
    return id;
  }

  void enter(const Item& item) {
    const int node = node_of(item);
    if (node < 0) return;
    std::vector<int>& stack = stacks_[item.thread];
    const int parent = stack.empty() ? kProgram : stack.back();
    const auto found = frame_index_.find(frame_key(node, item.call));
    stack.push_back(found != frame_index_.end() ? found->second : add_frame(node, item.call, parent));
    call_order_.push_back(node);
  }

  void exit(const Item& item) {
    std::vector<int>& stack = stacks_[item.thread];
    const int node = node_of(item);
    while (!stack.empty()) {
      const bool is_it = frames_[static_cast<std::size_t>(stack.back())].node == node;
      stack.pop_back();
      if (is_it) break;
    }
  }

  Frame& frame(int id) { return frames_[static_cast<std::size_t>(id)]; }

  std::string path_of(int frame_id) const {
    const int node = frames_[static_cast<std::size_t>(frame_id)].node;
    return node < 0 ? std::string() : alignment_.tree_a.nodes[static_cast<std::size_t>(node)].path;
  }

  // ---- parameters and buffers as modules' state

  struct State {
    std::unordered_map<TextId, Trust> own;  // by name, those that are not clean
    int tainted = 0;                        // here and in the modules below
    double noise = 0;
  };

  void set_state(int node, TextId name, const Trust& trust) {
    if (node < 0) return;
    Trust& own = state_[static_cast<std::size_t>(node)].own[name];
    const int change = static_cast<int>(trust.is_tainted) - static_cast<int>(own.is_tainted);
    own = trust;
    for (int at = node; at >= 0; at = alignment_.tree_a.nodes[static_cast<std::size_t>(at)].parent) {
      state_[static_cast<std::size_t>(at)].tainted += change;
      state_[static_cast<std::size_t>(at)].noise = std::max(state_[static_cast<std::size_t>(at)].noise, trust.noise);
    }
  }

  Trust state_of(int node) const {
    if (node < 0) return {};
    return {state_[static_cast<std::size_t>(node)].noise, state_[static_cast<std::size_t>(node)].tainted > 0};
  }

  Trust at_hand(int frame_id) {
    Trust trust = frame(frame_id).forward;
    trust.add(state_of(frame(frame_id).node));
    return trust;
  }

  // ---- judging one observation

  struct Judged {
    Verdict verdict = Verdict::Equal;
    Trust trust;
  };

  static bool is_equal_in_bits(const Item& x, const Item& y) {
    if (x.is_tensor != y.is_tensor) return false;
    if (x.is_tensor) return x.fingerprint == y.fingerprint && x.dtype == y.dtype && x.shape == y.shape;
    return x.has_number == y.has_number && (x.number == y.number || (x.number != x.number && y.number != y.number)) &&
           x.text == y.text;
  }

  Judged judge(const Observation& o, const Trust& inputs, Stage stage, double floor = 0) {
    const Judged judged = judge_pair(o, inputs, stage, floor);
    const Item& item = item_of(o);
    const int node = node_of(item);
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

  Judged judge_pair(const Observation& o, const Trust& inputs, Stage stage, double floor) {
    ++findings_.compared;
    PairError error;
    if (o.a != kNothing && o.b != kNothing) {
      const Item &x = a_[static_cast<std::size_t>(o.a)], &y = b_[static_cast<std::size_t>(o.b)];
      if (is_equal_in_bits(x, y)) {
        ++findings_.bit_equal;
        if (x.is_tensor) last_agreeing_ = o.a;
        return {};
      }
      note_bit_difference(o);
      if (inputs.is_tainted) return consequence();
      error = measure_(x, y);
      const bool are_dtypes_inherited = inputs.noise > 0;
      const DType dtype = coarser(x, y, are_dtypes_inherited);
      if (judge_.is_noise(error, dtype, inputs, stage, floor)) {
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

  Judged consequence() {
    ++findings_.consequences;
    return {Verdict::Consequence, {0, true}};
  }

  // A tensor that is computed from equal ones in another dtype is measured by the finer of the two: the change of dtype
  // is part of the difference. Where dtypes differed before, the coarser one says what can be expected.
  static DType coarser(const Item& x, const Item& y, bool are_dtypes_inherited) {
    if (!x.is_tensor || !y.is_tensor) return DType::F32;
    const bool is_x_coarser = unit_roundoff(x.dtype) > unit_roundoff(y.dtype);
    return is_x_coarser == are_dtypes_inherited ? x.dtype : y.dtype;
  }

  void note_bit_difference(const Observation& o) {
    if (findings_.first_bit_difference && findings_.first_bit_difference->lane == lane_) return;
    Origin origin = make_origin(o, "");
    origin.blamed = std::string(interner_.text(item_of(o).scope));
    if (!findings_.first_bit_difference || position_ < findings_.first_bit_difference->position)
      findings_.first_bit_difference = origin;
  }

  Origin make_origin(const Observation& o, std::string reason) const {
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

  void blame(const Observation& o, std::string path, std::string reason) {
    Origin origin = make_origin(o, std::move(reason));
    origin.blamed = std::move(path);
    origins_.push_back(std::move(origin));
  }

  // ---- the walk

  void visit(const Observation& o) {
    const Item& item = item_of(o);
    if (item.io != Io::Grad && !pending_gradients_.empty()) finish_gradients();
    if (item.kind == EventKind::Enter) return enter(item);
    if (item.kind == EventKind::Exit) return exit(item);
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

  void visit_input(const Observation& o, const Item& item) {
    const int id = frame_of(item);
    const int around = frame(id).parent;
    const Judged judged = judge(o, at_hand(around), Stage::Forward);
    if (judged.verdict == Verdict::Origin) {
      if (around == kProgram)
        blame(o, "", "the input of the model differs; what was recorded before it agrees");
      else
        blame(o, path_of(around),
              fmt::format(
                  "the input of {} differs, while the inputs of {} and all that its submodules returned before agree",
                  interner_.text(item.scope), said(path_of(around))));
      frame(around).forward.is_tainted = true;
    }
    frame(id).forward.add(judged.trust);
    if (item.is_tensor) frame(id).inputs.push_back(item.fingerprint);
  }

  static std::string said(const std::string& path) { return path.empty() ? "the model" : path; }

  // An output, or a value recorded by hand inside a module.
  void visit_output(const Observation& o, const Item& item) {
    const int id = frame_of(item);
    const Judged judged = judge(o, at_hand(id), Stage::Forward);
    const bool is_output = item.io == Io::Output;
    if (judged.verdict == Verdict::Origin) {
      const std::string path = item.root == 0 ? std::string(interner_.text(item.scope)) : path_of(id);
      blame(o, path,
            is_output ? fmt::format("the output of {} differs, while its inputs, its parameters and all that its "
                                    "submodules returned agree",
                                    said(path))
                      : fmt::format("{} differs; what was recorded before it agrees", interner_.text(item.name)));
      frame(id).forward.is_tainted = true;
    }
    frame(is_output ? frame(id).parent : id).forward.add(judged.trust);
  }

  void visit_buffer(const Observation& o, const Item& item) {
    const int id = frame_of(item);
    const Judged judged = judge(o, at_hand(id), Stage::Forward);
    if (judged.verdict == Verdict::Origin) {
      blame(o, path_of(id),
            fmt::format("the buffer {} differs after the call, while the inputs of {} agree", interner_.text(item.tail),
                        said(path_of(id))));
      frame(id).forward.is_tainted = true;
    }
    set_state(frame(id).node, item.tail, judged.trust);
  }

  void visit_initial(const Observation& o, const Item& item) {
    const int node = node_of(item);
    Trust before = frame(kProgram).forward;
    before.add(gradients_);
    before.add(own_state(node, item.tail));
    const Judged judged = judge(o, before, Stage::Optimizer);
    if (judged.verdict == Verdict::Origin)
      blame(
          o, std::string(interner_.text(item.scope)),
          fmt::format("the {} {} differs {}", item.io == Io::Param ? "parameter" : "buffer", interner_.text(item.name),
                      is_first_value(item) ? "before the first forward"
                                           : "before the call, changed by something else than the optimizer"));
    set_state(node, item.tail, judged.trust);
  }

  bool is_first_value(const Item& item) const { return latest_frame_.find(node_of(item)) == latest_frame_.end(); }

  Trust own_state(int node, TextId name) const {
    if (node < 0) return {};
    const auto& own = state_[static_cast<std::size_t>(node)].own;
    const auto found = own.find(name);
    return found == own.end() ? Trust{} : found->second;
  }

  void visit_loss(const Observation& o, const Item& item) {
    Trust inputs = at_hand(kProgram);
    if (const int node = node_of(item); node >= 0) inputs.add(state_of(node));
    const Judged judged = judge(o, inputs, Stage::Forward);
    if (judged.verdict == Verdict::Origin) blame(o, "", "the loss differs, while the outputs of the model agree");
    frame(kProgram).backward = judged.trust;
    frame(kProgram).has_backward = true;
    std::fill(arriving_.begin(), arriving_.end(), Arriving{});
  }

  // What the gradients that reach the inside of a frame are computed from.
  Trust flowing_into(int id) {
    Trust trust;
    for (;; id = frame(id).parent) {
      trust.add(frame(id).forward);
      trust.add(frame(id).backward);
      if (frame(id).has_backward || id == kProgram) return trust;
    }
  }

  void spread_backward(int id, const Trust& trust) {
    for (;; id = frame(id).parent) {
      frame(id).backward.add(trust);
      if (id == kProgram) return;
    }
  }

  void visit_grad_output(const Observation& o, const Item& item) {
    const int id = frame_of(item);
    const int around = frame(id).parent;
    const Judged judged = judge(o, flowing_into(around), Stage::Backward);
    if (judged.verdict == Verdict::Origin) {
      blame(o, path_of(around),
            fmt::format("the gradient of {}'s output differs, while the gradients that reach {} and those that its "
                        "later submodules passed on agree",
                        said(path_of(id)), said(path_of(around))));
      frame(around).backward.is_tainted = true;
    }
    frame(id).backward.add(judged.trust);
    frame(id).has_backward = true;
    spread_backward(around, judged.trust);
    arrive(frame(id).node, judged.trust);
  }

  void visit_grad_input(const Observation& o, const Item& item) {
    const int id = frame_of(item);
    Trust inputs = frame(id).has_backward ? frame(id).backward : flowing_into(id);
    inputs.add(frame(id).forward);
    inputs.add(state_of(frame(id).node));
    const Judged judged = judge(o, inputs, Stage::Backward);
    const bool is_missing = o.a == kNothing || o.b == kNothing;
    if (judged.verdict == Verdict::Origin && is_missing) {
      const std::string around = path_of(giver_of_inputs(id));
      blame(o, around,
            fmt::format("no gradient goes from the input of {} back into {} in one of the runs: it was cut off there",
                        said(path_of(id)), said(around)));
    } else if (judged.verdict == Verdict::Origin) {
      blame(o, path_of(id),
            fmt::format("the gradient that {} passes on differs, while the one that reaches it agrees",
                        said(path_of(id))));
    }
    spread_backward(frame(id).parent, judged.trust);
  }

  // The innermost frame whose code made the inputs of a frame, and did not only pass its own inputs on.
  int giver_of_inputs(int id) {
    const std::vector<Fingerprint> inputs = frame(id).inputs;
    int giver = frame(id).parent;
    const auto is_passed_on = [&](const Fingerprint& input) {
      const std::vector<Fingerprint>& own = frame(giver).inputs;
      return std::find(own.begin(), own.end(), input) != own.end();
    };
    while (giver != kProgram && !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), is_passed_on))
      giver = frame(giver).parent;
    return giver;
  }

  // What reached a module in the current backward, over all its calls.
  struct Arriving {
    Trust trust;
    bool is_known = false;
  };

  void arrive(int node, const Trust& trust) {
    for (int at = node; at >= 0; at = alignment_.tree_a.nodes[static_cast<std::size_t>(at)].parent)
      arriving_[static_cast<std::size_t>(at)].trust.add(trust);
    if (node >= 0) arriving_[static_cast<std::size_t>(node)].is_known = true;
  }

  double gradient_floor(const Item& item) const {
    const auto found = largest_gradient_.find({item.scope, item.step, item.call});
    return found == largest_gradient_.end() ? 0 : 0.1 * found->second;
  }

  void visit_grad(const Observation& o, const Item& item) {
    const int node = node_of(item);
    Trust inputs = gradient_of_[parameter_key(item)];
    inputs.add(state_of(node));
    if (node >= 0) inputs.add(arriving_[static_cast<std::size_t>(node)].trust);
    if (const auto latest = latest_frame_.find(node); latest != latest_frame_.end())
      inputs.add(frame(latest->second).forward);
    const bool is_flow_known = node >= 0 && arriving_[static_cast<std::size_t>(node)].is_known;
    if (!is_flow_known) {
      inputs.add(frame(kProgram).forward);
      inputs.add(frame(kProgram).backward);
    }
    const Judged judged = judge(o, inputs, Stage::Backward, gradient_floor(item));
    pending_gradients_.push_back({o, position_, judged.verdict, is_flow_known, last_agreeing_});
    gradient_of_[parameter_key(item)] = judged.trust;
    gradients_now_.add(judged.trust);
  }

  // All gradients of one backward have been seen.
  void finish_gradients() {
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
        seen.push_back({node_of(item_of(g.observation)), g.verdict == Verdict::Origin});
      if (const auto found = blame_by_order(alignment_.tree_a, call_order_, seen)) {
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

  std::string parameter_name(const Item& item) const {
    std::string name(interner_.text(item.name));
    if (name.ends_with(".grad")) name.resize(name.size() - 5);
    return name;
  }

  // A gradient inside the network is told by the first parameter's gradient that differs with it.
  void show_gradient_for_inner_origins() {
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

  void visit_clipped(const Observation& o, const Item& item) {
    Trust inputs = gradients_;
    inputs.add(gradient_of_[parameter_key(item)]);
    const Judged judged = judge(o, inputs, Stage::Optimizer, gradient_floor(item));
    if (judged.verdict == Verdict::Origin)
      blame(o, std::string(interner_.text(item.scope)),
            fmt::format("the gradient of {} differs when the optimizer begins, while it agreed after backward",
                        parameter_name(item)));
    clipped_.add(judged.trust);
    gradient_of_[parameter_key(item)] = judged.trust;
  }

  void visit_updated(const Observation& o, const Item& item) {
    const int node = node_of(item);
    Trust inputs = gradients_;
    inputs.add(clipped_);
    inputs.add(own_state(node, item.tail));
    const Judged judged = judge(o, inputs, Stage::Optimizer);
    if (judged.verdict == Verdict::Origin)
      blame(o, std::string(interner_.text(item.scope)),
            fmt::format("{} differs after the optimizer's step, while the gradients agree", interner_.text(item.name)));
    set_state(node, item.tail, judged.trust);
  }

  // ---- origins that arise together count as one

  bool is_groupable(const Origin& origin) const {
    const Item& item = item_of({origin.a, origin.b});
    return item.io == Io::Param || item.io == Io::Grad || (item.io == Io::Buffer && item.phase == Phase::Init);
  }

  // Of initial values the one that is used first comes first, of gradients and parameters the first of the model.
  std::tuple<std::uint64_t, std::size_t> rank_in_group(const Origin& origin) const {
    const Item& item = item_of({origin.a, origin.b});
    const int node = node_of(item);
    const std::uint64_t order =
        item.phase == Phase::Init && node >= 0 ? alignment_.tree_a.nodes[static_cast<std::size_t>(node)].order : 0;
    const std::size_t among_parameters = parameter_order(item);
    return {order, among_parameters == std::numeric_limits<std::size_t>::max() ? origin.position : among_parameters};
  }

  void group() {
    std::map<std::tuple<std::int64_t, Phase, bool, std::int64_t, std::string>, std::size_t> groups;
    std::vector<Origin> result;
    for (Origin& origin : origins_) {
      const Item& item = item_of({origin.a, origin.b});
      if (!is_groupable(origin)) {
        result.push_back(std::move(origin));
        continue;
      }
      const bool is_initial = item.phase == Phase::Init;
      // Wrong weights of different modules are different places.
      const auto key = std::tuple{item.step, item.phase, item.io == Io::Grad, item.io == Io::Grad ? item.call : 0,
                                  is_initial ? origin.blamed : std::string()};
      const auto [place, is_new] = groups.try_emplace(key, result.size());
      if (is_new) {
        result.push_back(std::move(origin));
        continue;
      }
      Origin& head = result[place->second];
      const std::size_t tensors = head.tensors + 1, position = std::min(head.position, origin.position);
      if (rank_in_group(origin) < rank_in_group(head)) head = std::move(origin);
      head.tensors = tensors;
      head.position = position;
    }
    std::stable_sort(result.begin(), result.end(), [&](const Origin& x, const Origin& y) {
      const bool is_x_initial = x.phase == Phase::Init && x.step == y.step,
                 is_y_initial = y.phase == Phase::Init && x.step == y.step;
      if (is_x_initial && is_y_initial) return rank_in_group(x) < rank_in_group(y);
      return x.position < y.position;
    });
    for (Origin& origin : result) findings_.origins.push_back(std::move(origin));
  }

  struct PendingGradient {
    Observation observation;
    std::size_t position;
    Verdict verdict;
    bool is_flow_known;
    std::int64_t last_agreeing;
  };

  const Alignment& alignment_;
  std::size_t lane_;
  const LanePair& pair_;
  const Interner& interner_;
  const Measure& measure_;
  const NoiseJudge& judge_;
  Findings& findings_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;

  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, int> frame_index_;
  std::unordered_map<int, int> latest_frame_;  // by node
  std::unordered_map<std::uint64_t, std::vector<int>> stacks_;
  std::vector<int> call_order_;  // nodes
  std::vector<State> state_;
  std::vector<Arriving> arriving_;

  std::map<std::tuple<TextId, std::int64_t, std::int64_t>, double> largest_gradient_;
  std::unordered_map<std::uint64_t, std::size_t> parameter_order_;
  std::unordered_map<std::uint64_t, Trust> gradient_of_;
  std::vector<PendingGradient> pending_gradients_;
  Trust gradients_, gradients_now_, clipped_;
  bool has_gradient_flow_ = false;
  std::size_t last_paired_ = 0, last_paired_b_ = 0;

  std::size_t position_ = 0;
  std::int64_t last_agreeing_ = kNothing;
  std::vector<Origin> origins_;
};

// Ranks exchange gradients: one that starts to differ on a rank, at or after a difference on another one, follows from
// it.
void drop_what_other_ranks_caused(std::vector<Origin>& origins) {
  struct Forward {
    std::size_t lane;
    std::int64_t step;
  };
  std::vector<Forward> forward;
  for (const Origin& origin : origins)
    if (origin.phase == Phase::Forward) forward.push_back({origin.lane, origin.step});
  std::erase_if(origins, [&](const Origin& origin) {
    const bool is_exchanged = origin.phase == Phase::Backward || origin.phase == Phase::Optimizer;
    return is_exchanged && std::any_of(forward.begin(), forward.end(), [&](const Forward& cause) {
             return cause.lane != origin.lane && cause.step <= origin.step;
           });
  });
}

}  // namespace

Findings find_origins(const Alignment& alignment, const Interner& interner, const Measure& measure,
                      const NoiseJudge& judge, const std::function<void(double)>& on_progress) {
  Findings findings;
  findings.modules.resize(alignment.tree_a.nodes.size());
  const auto lanes = static_cast<double>(alignment.lanes.size());
  for (std::size_t lane = 0; lane < alignment.lanes.size(); ++lane) {
    std::function<void(double)> part;
    if (on_progress) part = [&](double done) { on_progress((static_cast<double>(lane) + done) / lanes); };
    LaneWalker(alignment, lane, interner, measure, judge, findings).walk(part);
  }
  drop_what_other_ranks_caused(findings.origins);
  std::stable_sort(findings.origins.begin(), findings.origins.end(), [](const Origin& x, const Origin& y) {
    const bool is_x_initial = x.phase == Phase::Init && x.step == 0,
               is_y_initial = y.phase == Phase::Init && y.step == 0;
    if (is_x_initial != is_y_initial) return is_x_initial;
    return !is_x_initial && x.position < y.position;
  });
  return findings;
}

}  // namespace tenscope::compare
