#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tenscope::compare {

// Some rows (along the last axis) of a tensor of both runs. Of what the first run alone is asked for, b is empty.
struct RowSample {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> a, b;  // rows * cols

  bool has_shape_of(const RowSample& other) const { return rows == other.rows && cols == other.cols; }
};

// A matrix of the first run: for each column of a result (of those that are looked at) the factors of a source's
// columns.
struct WeightMatrix {
  std::int64_t out = 0, in = 0;
  std::vector<double> values;  // out * in
};

// What the errors of the sources make of the result, as the first run computes it: for each source, in the result's
// shape; empty where the result does not depend on it. Their sum is the error that was handed on.
using HandedOn = std::vector<std::vector<double>>;

// What may have been made of the sources.
struct Replay {
  const RowSample& result;
  std::span<const RowSample* const> sources;    // all with as many rows as the result
  std::span<const RowSample* const> constants;  // terms of a sum that come from nowhere: parameters
  double unit = 0;                              // of roundoff of the first run's result
};

// How a simple computation hands errors on: a sum of some sources, each with a factor; a product of two; a
// normalisation of rows; a function of each element, which is read off the pairs of source and result. Which of these
// it is, the numbers of the first run tell: nothing where none of them gives its result.
std::optional<HandedOn> replay(const Replay& what);

// The same for a source times one of the matrices, and perhaps a constant.
std::optional<HandedOn> replay_matrix(const Replay& what, std::span<const WeightMatrix> weights);

// The same for sums alone, as of sketches, which are linear: `tolerance` of the fit.
std::optional<HandedOn> replay_sum(const Replay& what, double tolerance);

}  // namespace tenscope::compare
