#pragma once

#include <string>
#include <vector>

#include "report/series.hpp"
#include "report/style.hpp"

namespace tenscope::report {

struct CurveOptions {
  std::size_t width = 80;  // of everything
  std::size_t height = 10;
  bool is_log = false;  // the axis of values; what is not above 0 is left out
  bool is_utf8 = true;  // Braille dots, else asterisks
  bool color = false;
};

struct ToneSeries {
  const Series* series = nullptr;
  Tone tone = kName;
};

// Numbers over steps, drawn with characters: values at the left, steps below. NaN and infinities are × on the floor.
std::string curve_text(const std::vector<ToneSeries>& all, const CurveOptions& options);

// Where a point lies among steps: calls of one step follow each other within it.
std::vector<double> places_of(const Series& series);

// Round numbers across a range, some `wished` of them: 0, 0.5, 1.
std::vector<double> round_ticks(double least, double most, std::size_t wished, bool is_log);

// A number at an axis: four digits.
std::string tick_text(double value);

}  // namespace tenscope::report
