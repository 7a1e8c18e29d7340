#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenscope/tensor_view.hpp"

namespace tenscope::report {

// Bins of equal width over a tensor's finite elements, as numpy.histogram makes them; of a complex tensor over real and
// imaginary parts. No bins where there is no finite element.
struct Histogram {
  std::vector<double> edges;  // one more than counts
  std::vector<std::int64_t> counts;
};

Histogram make_histogram(const TensorView& view, int bins);

// Bars of block characters (or # where the terminal is not UTF-8), a line a bin.
std::string histogram_text(const Histogram& histogram, std::size_t width, bool is_utf8, bool color);

}  // namespace tenscope::report
