#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/noise.hpp"
#include "compare/observations.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// A place where a difference starts, as indices into the items of a pair of lanes.
struct Origin {
  std::size_t lane = 0;      // of Alignment::lanes
  std::size_t position = 0;  // in the order of execution of its lane
  Observation seen;          // the event on each side; kNothing: it is missing there
  Observation shown;         // the event to show for it: of a gradient inside, the first parameter's gradient
  std::string blamed;        // path of the innermost module to blame, in the first run's names
  DiffReason reason;
  std::int64_t last_agreeing = kNothing;  // in a's items
  std::size_t tensors = 1;
  std::optional<DiffDistribution> distribution;  // of initial values
  Observation before;                            // of an optimizer's update: the parameter before it
  // What orders origins that arise together: gradients and parameters of one step, initial values.
  std::int64_t step = 0;
  Phase phase = Phase::None;
  // The event is in the second run alone; seen.a is the value that still holds in the first.
  bool is_change_in_b = false;
  bool is_pending = false;  // nothing is known to have come of it
  double relative = 0;      // how large it is, where it is or was pending
};

// What was seen of a module of the first run.
struct ModuleVerdict {
  bool is_compared = false;
  bool is_bit_equal = true;
  bool is_within_tolerance = true;
  bool is_unknown = false;
  std::size_t agreeing = 0;  // tensors that are equal, or but for noise
  std::int64_t step = 0;     // of the first tensor beyond tolerance
  Phase phase = Phase::None;
};

// Equal values in another dtype.
struct DtypeChange {
  std::size_t lane = 0;
  Observation observation;
  std::size_t count = 1;
};

// A value of both runs.
struct SeenValue {
  std::size_t lane = 0;
  Observation observation;
};

struct Findings {
  std::vector<Origin> origins;  // in the order in which they arise
  std::optional<Origin> first_bit_difference, first_unknown;
  std::vector<ModuleVerdict> modules;           // by node of tree_a
  std::vector<std::vector<PairVerdict>> pairs;  // by lane and item of a: what was said of it and its partner
  std::optional<DtypeChange> dtype_change;
  std::vector<SeenValue> idle_inputs;  // that differ, and from which nothing follows
  std::size_t compared = 0, bit_equal = 0, same_values = 0, noise = 0, unknown = 0, consequences = 0;
  std::size_t other_draws = 0;                  // initial values that look like another draw of the same distribution
  std::size_t idle = 0;                         // tensors that differ, from which nothing follows
  std::optional<DiffEngineNoise> engine_noise;  // where tensors were paired by content
  std::size_t judged_by_profile = 0;            // that differ, and were judged by the measured noise of their place
  std::size_t hidden_by_noise = 0;              // of these, where noise is nearly as large as the values
  SeenValue first_hidden;
  std::size_t descriptions = 0;  // equal texts that describe what could not be recorded: not compared
  std::string first_description;
  std::size_t compared_results = 0;  // of these, outputs, losses and values recorded by hand
};

}  // namespace tenscope::compare
