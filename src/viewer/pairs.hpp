#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compare/checkpoint_diff.hpp"
#include "tenscope/diff.hpp"
#include "viewer/catalog.hpp"

namespace tenscope::viewer {

// Which event of one side is which of the other, and what was said of them.
class Pairs {
 public:
  struct One {
    std::optional<EventId> partner;
    int verdict = -1;  // PairVerdict; -1: they were not judged
    double error = 0;  // |b - a| / |a|, Euclidean; NaN: it is not known
  };

  Pairs(std::size_t events_a, std::size_t events_b);

  // By name, step, call and rank alone; of files by name, or where each has one tensor, these two.
  static Pairs by_names(const Side& a, const Catalog& of_a, const Side& b, const Catalog& of_b);

  // As the comparison of two checkpoints has paired them.
  static Pairs of_weights(const compare::CheckpointDiff& diff, const Side& a, const Catalog& of_a, const Side& b,
                          const Catalog& of_b);

  void add(const DiffPair& pair);
  const One& of(std::size_t side, EventId event) const;

 private:
  std::array<std::vector<One>, 2> pairs_;
};

}  // namespace tenscope::viewer
