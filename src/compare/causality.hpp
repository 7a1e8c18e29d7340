#pragma once

#include <functional>

#include "compare/align.hpp"
#include "compare/lane_state.hpp"
#include "compare/noise.hpp"
#include "compare/origin.hpp"

namespace tenscope::compare {

struct CausalityOptions {
  NoiseJudge noise;
  bool allow_prefix = false;                     // a run that ends earlier than the other is no difference
  std::function<void(double done)> on_progress;  // may be empty
};

// Walks through both runs together and finds the places that start a difference.
Findings find_origins(const Alignment& alignment, const Interner& interner, const Measures& measures,
                      const CausalityOptions& options);

}  // namespace tenscope::compare
