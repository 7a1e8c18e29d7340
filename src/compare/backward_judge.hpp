#pragma once

#include <vector>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// Judges the loss and the gradients of a backward. Overview in causality.cpp.
class BackwardJudge {
 public:
  explicit BackwardJudge(LaneState& state);

  void visit_loss(const Observation& o);
  void visit_grad_output(const Observation& o);
  void visit_grad_input(const Observation& o);
  void visit_grad(const Observation& o);  // of a parameter
  void finish();                          // all parameters' gradients of one backward have been seen

 private:
  struct PendingGradient {
    Observation observation;
    std::size_t position;
    Judged judged;
    Trust inputs;
    bool is_flow_known;
    std::int64_t last_agreeing;
  };
  struct Missing {  // a gradient that reaches a module, or that it passes on, in one run only
    Observation observation;
    std::size_t position;
    int frame;
    bool is_reaching;
    Trust inputs;
  };
  struct Arriving {  // what reached a module in the current backward, over all its calls
    Trust trust;
    bool is_known = false;
    double size = 0;  // the largest number of it
  };

  Trust flowing_into(int frame) const;
  double floor_inside(int frame, const Observation& o, const Trust& inputs) const;
  void spread(int frame, const Trust& trust);
  int giver_of_inputs(int frame, int around) const;
  int user_of_outputs(int frame) const;
  bool blame_missing_in(int frame);
  // In one of the runs no gradient reaches a module call at all.
  bool is_unreached(const Missing& one) const { return one.is_reaching && !state_.frames[one.frame].has_backward; }
  void arrive(int node, const Trust& trust, double size);
  void show_gradient_for_inner_origins();

  LaneState& state_;
  std::vector<Arriving> arriving_;  // by node
  std::vector<PendingGradient> pending_;
  std::vector<Missing> missing_;  // in the current backward
  Trust gradients_now_;
  bool has_gradient_flow_ = false;  // gradients inside the network were recorded
};

}  // namespace tenscope::compare
