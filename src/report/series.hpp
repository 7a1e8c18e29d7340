#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::report {

// One number of a tensor; Value is the element of a tensor that has one only.
enum class Statistic : std::uint8_t { Value, Min, Max, Mean, Std, L2, AbsMax };
std::optional<Statistic> parse_statistic(std::string_view word) noexcept;  // "min", ..., "absmax"

// The number that a value is; nothing of text, None, and of a tensor of several elements unless a statistic is asked.
std::optional<double> number_of(const EventValue& value, Statistic statistic = Statistic::Value);

// It as a person reads it: 0.1 of a float32 is 0.1, an int64 has all its digits. Nothing where there is no number.
std::optional<std::string> number_in_words(const EventValue& value);

// A name's numbers over steps.
struct Series {
  struct Point {
    std::int64_t step = 0, call = 0;
    double value = 0;
  };
  std::string name;
  std::vector<Point> points;
};

// Those of events, in their order; what is no number is left out. At most `most` of them, evenly, with the first and
// the last; 0: all.
Series read_series(const Reader& reader, std::span<const EventId> ids, Statistic statistic = Statistic::Value,
                   std::size_t most = 0);

// The finite values of it.
struct Extent {
  double least = 0, most = 0;
  bool is_empty = true;
  void add(double value) noexcept;  // leaves NaN and infinities out
};
Extent extent_of(const Series& series) noexcept;

// "▁▂▅█", a character each; NaN and infinities are "×". Of more values, the mean of each part. Empty where there are
// fewer than two.
std::string sparkline(std::span<const double> values, std::size_t width);

}  // namespace tenscope::report
