// Overview. A difference starts where what a place computes from agrees and what it gives does not. Each lane is walked
// through in the order of execution. For every module call (a frame) the walk keeps a Trust: how far the tensors that
// its code has at hand agree.
//
//   forward    A module's code has its inputs, its parameters and buffers, and the outputs of the submodules that have
//              returned. A submodule's input that differs although all of these agree is the fault of the code around
//              it: the frame's module is blamed. An output or a buffer blames its own module. The outermost modules'
//              inputs come from the program (the data), as does the loss.
//   backward   The same, in the other direction: the gradient of a module's output arrives, the gradient of its input
//              leaves. A parameter's gradient depends on what arrives at its module.
//   optimizer  A parameter depends on all gradients (they may be clipped together) and on what it was before.
//   end        One run goes on where the other does not (run_end.cpp).
//
// An input that differs is exonerated where nothing comes of it: where all that its call returns agrees.
//
// An input in one run only blames the code that gives it, unless it may be a mask; a difference after a module changed
// a tensor in place in one run only blames that module. A parameter is also judged by its update (update.cpp).
//
// A tainted Trust makes what follows a consequence. A Trust with noise lets through noise, enlarged (noise.cpp). A
// Trust with something unknown in it is remembered: an origin after it says that the difference may have begun earlier.
//
// Runs that are laid out differently over ranks have become two timelines of one process each before (logical_slots,
// logical_match, logical_runs).
//
// The files in the order of the data: timeline (events), module_tree and module_match, call_match, align (pairs of
// events), observations, lane_state (how one pair is judged), forward_judge, backward_judge, optimizer_judge, run_end,
// this file, origin_groups, run_diff (the result).
#include "compare/causality.hpp"

#include "compare/backward_judge.hpp"
#include "compare/forward_judge.hpp"
#include "compare/optimizer_judge.hpp"
#include "compare/origin_groups.hpp"
#include "compare/run_end.hpp"

namespace tenscope::compare {
namespace {

class LaneWalk {
 public:
  explicit LaneWalk(LaneState& state) : state_(state), forward_(state), backward_(state), optimizer_(state) {}

  void walk(const std::function<void(double)>& on_progress) {
    constexpr std::size_t kBetweenProgress = 4096;
    const std::size_t count = state_.observations.size();
    for (std::size_t i = 0; i < count; ++i) {
      state_.position = i;
      visit(state_.observations[i]);
      if (on_progress && i % kBetweenProgress == 0) on_progress(static_cast<double>(i) / static_cast<double>(count));
    }
    backward_.finish();
    forward_.finish();
    state_.position = count;
  }

 private:
  void visit(const Observation& o) {
    const Item& item = state_.item_of(o);
    if (item.io != Io::Grad) backward_.finish();
    if (item.kind == EventKind::Enter) return state_.frames.enter(state_.call_of(o), item.thread);
    if (item.kind == EventKind::Exit) {
      const int ended = state_.frames.exit(state_.node_of(o), item.thread);
      if (ended != kProgram) forward_.leave(ended);
      return;
    }
    switch (item.io) {
      case Io::Input:
        return forward_.visit_input(o);
      case Io::Output:
      case Io::None:
      case Io::Local:
      case Io::Op:
      case Io::Oracle:
      case Io::Other:
        return forward_.visit_output(o);
      case Io::Buffer:
        return item.phase == Phase::Init ? forward_.visit_initial(o) : forward_.visit_buffer(o);
      case Io::Param:
        return item.phase == Phase::Optimizer ? optimizer_.visit_updated(o) : forward_.visit_initial(o);
      case Io::Loss:
        return backward_.visit_loss(o);
      case Io::GradOutput:
        return backward_.visit_grad_output(o);
      case Io::GradInput:
        return backward_.visit_grad_input(o);
      case Io::Grad:
        return item.phase == Phase::Optimizer ? optimizer_.visit_gradient(o) : backward_.visit_grad(o);
    }
  }

  LaneState& state_;
  ForwardJudge forward_;
  BackwardJudge backward_;
  OptimizerJudge optimizer_;
};

}  // namespace

Findings find_origins(const Alignment& alignment, const Interner& interner, const Measures& measures,
                      const CausalityOptions& options) {
  Findings findings;
  findings.modules.resize(alignment.tree_a.nodes.size());
  for (const LanePair& pair : alignment.lanes) findings.pairs.emplace_back(pair.to_b.size(), PairVerdict::Unknown);
  const auto lanes = static_cast<double>(alignment.lanes.size());
  for (std::size_t lane = 0; lane < alignment.lanes.size(); ++lane) {
    std::function<void(double)> part;
    if (options.on_progress)
      part = [&](double done) { options.on_progress((static_cast<double>(lane) + done) / lanes); };
    LaneState state(alignment, lane, interner, measures, options.noise, findings);
    LaneWalk(state).walk(part);
    if (!options.allow_prefix)
      if (auto end = find_end(state)) state.origins.push_back(std::move(*end));
    std::erase_if(state.origins, [&](const Origin& origin) {
      if (origin.is_pending) findings.idle_inputs.push_back({lane, origin.seen});
      findings.idle += origin.is_pending ? 1 : 0;
      return origin.is_pending;
    });
    for (Origin& origin : group_origins(state)) findings.origins.push_back(std::move(origin));
    if (measures.release) measures.release(*state.pair.a, *state.pair.b);
  }
  sort_origins(findings.origins);
  return findings;
}

}  // namespace tenscope::compare
