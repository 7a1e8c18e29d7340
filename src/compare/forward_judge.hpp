#pragma once

#include <vector>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// Judges what happens before backward: initial values, inputs, outputs, buffers. Overview in causality.cpp.
class ForwardJudge {
 public:
  explicit ForwardJudge(LaneState& state) : state_(state) {}

  void visit_initial(const Observation& o);
  void visit_input(const Observation& o);
  void visit_output(const Observation& o);  // also a value recorded by hand, or an input that was changed in place
  void visit_buffer(const Observation& o);

 private:
  struct ChangedInput {  // in place, in one run only
    int frame;
    Observation observation;
  };

  void blame_code_of(int frame, const Observation& o, DiffReason reason, const Trust& inputs);

  LaneState& state_;
  std::vector<ChangedInput> changed_inputs_;
};

// An origin that is a change of one run alone is where that run made it.
void date(Origin& origin, const Observation& change, const LaneState& state);

}  // namespace tenscope::compare
