#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/align.hpp"
#include "compare/measure.hpp"
#include "compare/noise.hpp"
#include "compare/observations.hpp"
#include "compare/update.hpp"

namespace tenscope::compare {

// A place where a difference starts, as indices into the items of a pair of lanes.
struct Origin {
  std::size_t lane = 0;       // of Alignment::lanes
  std::size_t position = 0;   // in the order of execution of its lane
  std::int64_t a = kNothing;  // the event on each side; kNothing: it is missing there
  std::int64_t b = kNothing;
  std::int64_t shown_a = kNothing;  // the event to show for it: of a gradient inside, the first parameter's gradient
  std::int64_t shown_b = kNothing;
  std::string blamed;                     // path of the innermost module to blame, in the first run's names
  std::int64_t last_agreeing = kNothing;  // in a's items
  std::string reason;
  std::size_t tensors = 1;
  // What orders origins that arise together: gradients and parameters of one step, initial values.
  std::int64_t step = 0;
  Phase phase = Phase::None;
  bool is_change_in_b = false;  // the event is in the second run alone; `a` is the value that holds in the first
};

// What was seen of a module of the first run.
struct ModuleVerdict {
  bool is_compared = false;
  bool is_bit_equal = true;
  bool is_within_tolerance = true;
  std::int64_t step = 0;  // of the first tensor beyond tolerance
  Phase phase = Phase::None;
};

struct Findings {
  std::vector<Origin> origins;  // in the order in which they arise
  std::optional<Origin> first_bit_difference;
  std::vector<ModuleVerdict> modules;  // by node of tree_a
  std::size_t compared = 0, bit_equal = 0, noise = 0, consequences = 0;
};

// A parameter at one step of an optimizer, by its events.
struct UpdateItems {
  const Item *before, *after, *gradient;
};

// Nothing where the tensors' bytes were not kept.
using MeasureUpdate = std::function<std::optional<UpdateError>(const UpdateItems& a, const UpdateItems& b)>;

struct Measures {
  Measure pair;
  MeasureUpdate update;  // may be empty
};

// Walks through both runs together and finds the places that start a difference.
Findings find_origins(const Alignment& alignment, const Interner& interner, const Measures& measures,
                      const NoiseJudge& judge, const std::function<void(double)>& on_progress = {});

}  // namespace tenscope::compare
