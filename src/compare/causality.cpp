// Overview. A difference starts where what a place computes from agrees and what it gives does not. The walker
// (lane_walker.cpp) goes through a lane in the order of execution and keeps, for every module call (a frame), a Trust:
// how far the tensors that its code has at hand agree.
//
//   forward    A module's code has its inputs, its parameters and buffers, and the outputs of the submodules that have
//              returned. A submodule's input that differs although all of these agree is the fault of the code around
//              it: the frame's module is blamed. An output or a buffer blames its own module. The outermost modules'
//              inputs come from the program (the data), as does the loss.
//   backward   The same, in the other direction: the gradient of a module's output arrives, the gradient of its input
//              leaves. A parameter's gradient depends on what arrives at its module.
//   optimizer  A parameter depends on all gradients (they may be clipped together) and on what it was before.
//
// An input in one run only blames the code that gives it; a difference after a module changed a tensor in place in one
// run only blames that module. A parameter is also judged by its update (update.cpp).
//
// A tainted Trust makes what follows a consequence. A Trust with noise lets through noise, enlarged (noise.cpp).
#include "compare/causality.hpp"

#include <algorithm>

#include "compare/lane_walker.hpp"
#include "compare/origin_groups.hpp"

namespace tenscope::compare {

Findings find_origins(const Alignment& alignment, const Interner& interner, const Measures& measures,
                      const NoiseJudge& judge, const std::function<void(double)>& on_progress) {
  Findings findings;
  findings.modules.resize(alignment.tree_a.nodes.size());
  const auto lanes = static_cast<double>(alignment.lanes.size());
  for (std::size_t lane = 0; lane < alignment.lanes.size(); ++lane) {
    std::function<void(double)> part;
    if (on_progress) part = [&](double done) { on_progress((static_cast<double>(lane) + done) / lanes); };
    LaneWalker walker(alignment, lane, interner, measures, judge, findings);
    for (Origin& origin : group_origins(walker.walk(part), walker, alignment.tree_a))
      findings.origins.push_back(std::move(origin));
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
