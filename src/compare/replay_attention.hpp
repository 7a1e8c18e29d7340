#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compare/replay.hpp"

namespace tenscope::compare {

// Whole sequences of a tensor of both runs, sequences * length * cols elements.
struct SequenceSample {
  std::int64_t cols = 0;
  std::vector<double> a, b;
};

struct AttentionReplay {
  const RowSample& result;                         // the rows of the queries, of one sequence after the other
  std::span<const SequenceSample* const> sources;  // in the order in which they were made
  std::span<const SequenceSample* const>
      tables;  // may be cosines and sines, one row for each position, of one sequence
  std::int64_t sequences = 0, length = 0;
  std::span<const std::int64_t> queries;  // positions
  double unit = 0;                        // of roundoff of the first run's result
};

// replay() of softmax(q k^T / sqrt(d)) v, in any number of heads, causal or not, of one source or three, with rotary
// positions where there are tables.
std::optional<HandedOn> replay_attention(const AttentionReplay& what);

}  // namespace tenscope::compare
