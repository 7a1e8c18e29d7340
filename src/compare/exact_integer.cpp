#include "compare/exact_integer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenscope::compare {

std::string digits_of(double number) {
  if (!std::isfinite(number) || std::trunc(number) != number) return {};
  return number == 0 ? "0" : fmt::format("{:.0f}", number);
}

}  // namespace tenscope::compare
