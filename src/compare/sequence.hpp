#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tenscope::compare {

using IndexPair = std::pair<std::size_t, std::size_t>;

// How well two members of two sequences fit; 0 or less: they must not be paired.
using Score = std::function<int(std::size_t a, std::size_t b)>;

struct SequenceAlignment {
  std::vector<IndexPair> pairs;
  bool is_rough = false;  // parts were too long to try all pairs: they were cut into slices of equal length first
};

// Pairs two sequences in order so that the sum of the scores is largest. `tokens` tell members apart (0: cannot tell):
// one that occurs once on each side with the same token is an anchor where the sequences are too long for trying all
// pairs.
SequenceAlignment align_sequences(std::span<const std::uint64_t> tokens_a, std::span<const std::uint64_t> tokens_b,
                                  const Score& score);

}  // namespace tenscope::compare
