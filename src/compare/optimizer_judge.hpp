#pragma once

#include <optional>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// Judges what an optimizer begins with and what it makes of the parameters. Overview in causality.cpp.
class OptimizerJudge {
 public:
  explicit OptimizerJudge(LaneState& state) : state_(state) {}

  void visit_gradient(const Observation& o);  // at the beginning of a step, where it is another one than after backward
  void visit_updated(const Observation& o);

 private:
  LaneState& state_;
  Trust gradients_;
  std::optional<Origin> rounded_update_;  // the first update that differs although all it depends on is equal in bits
};

}  // namespace tenscope::compare
