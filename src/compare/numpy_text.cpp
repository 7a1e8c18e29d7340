#include "compare/numpy_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

namespace tenscope::compare {

std::string numpy_dtype(DType dtype) {
  switch (dtype) {
    case DType::BF16:
    case DType::F8E4M3:
    case DType::F8E5M2:
    case DType::F8E4M3Fnuz:
    case DType::F8E5M2Fnuz:
      return fmt::format("ml_dtypes.{}", to_string(dtype));
    case DType::Bool:
      return "np.bool_";
    default:
      return fmt::format("np.{}", to_string(dtype));
  }
}

std::string atom(const std::string& expression) {
  int depth = 0;
  for (const char c : expression) {
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (c == ' ' && depth == 0) return fmt::format("({})", expression);
  }
  return expression;
}

std::string cast(const std::string& expression, DType dtype) {
  return fmt::format("{}.astype({})", atom(expression), numpy_dtype(dtype));
}

std::string reshaped(const std::string& expression, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}.reshape({})", atom(expression), shape.empty() ? "()" : list_text(shape));
}

std::string list_text(const std::vector<std::int64_t>& numbers) { return fmt::format("{}", fmt::join(numbers, ", ")); }

std::string index_text(const std::vector<AxisRange>& ranges) {
  std::size_t last = ranges.size();
  while (last > 0 && ranges[last - 1].is_whole()) --last;
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < last; ++k) {
    const AxisRange& range = ranges[k];
    parts.push_back(range.is_single    ? fmt::format("{}", range.begin)
                    : range.is_whole() ? ":"
                                       : fmt::format("{}:{}", range.begin, range.end));
  }
  return fmt::format("[{}]", parts.empty() ? ":" : fmt::format("{}", fmt::join(parts, ", ")));
}

std::string short_number(double value, double error) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = fmt::format("{:.{}g}", value, digits);
    if (std::abs(std::strtod(text.c_str(), nullptr) - value) <= error) return text;
  }
  return fmt::format("{}", value);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "np.nan";
  if (std::isinf(value)) return value > 0 ? "np.inf" : "-np.inf";
  return value == std::trunc(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

}  // namespace tenscope::compare
