#pragma once

#include <cstdint>
#include <string>

#include "tenscope/tensor_view.hpp"

namespace tenscope::report {

// NumPy's print options, with its defaults.
struct ArrayTextOptions {
  int precision = 8;              // digits behind the decimal point, at most
  std::int64_t threshold = 1000;  // from more elements on, only the edges are shown
  std::int64_t edge_items = 3;
  std::size_t line_width = 75;
  bool suppress = false;  // no scientific notation for the sake of small numbers
};

// A tensor's values as NumPy's print() shows them. bfloat16 and float8, which NumPy lacks, are shown as float32.
std::string array_text(const TensorView& view, const ArrayTextOptions& options = {});

}  // namespace tenscope::report
