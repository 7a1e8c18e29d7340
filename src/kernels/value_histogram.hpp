#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/look.hpp"

namespace tenscope::kernels {

// What a first pass over a look finds: how many elements have the same upper 16 bits as a double (sign, exponent, a
// sixteenth of the octave), in the order of the bits. Small, whatever the size of the tensor.
struct ValueCensus {
  std::vector<std::pair<std::uint16_t, std::int64_t>> keys;  // of finite elements but zeros
  double min = 0, max = 0;                                   // of them
  bool is_integral = true;                                   // of integers or bool
  std::int64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, subnormal = 0;
};

ValueCensus take_census(const Look& look, int threads = 0);

// Edges that follow the data of all censuses, strictly ascending, at most kMaxHistogramBins + 1; none where every
// element is 0 or not finite. Every finite element that is not 0 lies in one bin.
// Logarithmic on both sides of zero, each octave in equal parts, with one bin on each side for what is nearer to zero
// than all but one in two hundred; an element on an edge belongs to the bin farther from zero. Linear where all are of
// one sign and within a factor of kLinearFactor, and one bin to an integer where integers are few; an element on an
// edge belongs to the bin above, and one on the last to the last.
struct HistogramEdges {
  std::vector<double> edges;
  bool is_linear = false;
};

inline constexpr int kMaxHistogramBins = 128;
inline constexpr double kLinearFactor = 100;

HistogramEdges choose_edges(std::span<const ValueCensus> censuses);

// The counts of a look's elements in these bins; zeros and what is not finite are in none. Reads the look again only
// where the edges are linear.
std::vector<std::int64_t> count_bins(const Look& look, const ValueCensus& census, const HistogramEdges& edges,
                                     int threads = 0);

}  // namespace tenscope::kernels
