#pragma once

#include <string>
#include <vector>

#include "report/series.hpp"

namespace tenscope::report {

// Curves in a picture.
struct Chart {
  struct Curve {
    Series series;
    std::string label;         // in the legend
    bool is_compared = false;  // of the second run: dashed, in the colour of the curve before it
  };
  std::string title;
  std::vector<Curve> curves;
  bool is_log = false;
};

// The charts below each other.
std::string chart_svg(const std::vector<Chart>& charts, const std::string& title);
// The same picture for Graphviz's neato with -n2, which makes a .png of it.
std::string chart_dot(const std::vector<Chart>& charts, const std::string& title);

}  // namespace tenscope::report
