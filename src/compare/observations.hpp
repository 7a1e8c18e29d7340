#pragma once

#include <cstdint>
#include <vector>

#include "compare/align.hpp"

namespace tenscope::compare {

inline constexpr std::int64_t kNothing = -1;

// What the walk through a lane looks at, as indices into the items of both runs: an event on both sides, or one whose
// absence on the other side (kNothing) says something: gradients, inputs, and what was changed in one run only:
// inputs, buffers, parameters.
struct Observation {
  std::int64_t a = kNothing, b = kNothing;
  bool is_on_both_sides() const { return a != kNothing && b != kNothing; }
};

// In the order of execution of the first run.
std::vector<Observation> list_observations(const Alignment& alignment, const LanePair& pair, const Interner& interner);

// An input that its module changed in place: "input.0.after".
bool is_changed_input(const Item& item, const Interner& interner);

}  // namespace tenscope::compare
