#include "report/decimal.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace tenscope::report {
namespace {

// digits[0].digits[1]digits[2]... times 10^exponent
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int exponent = 0;
};

Decimal parse_scientific(std::string_view text) {
  Decimal result;
  if (text.starts_with('-')) {
    result.is_negative = true;
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  for (const char c : text.substr(0, e)) {
    if (c != '.') result.digits += c;
  }
  result.exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  while (result.digits.size() > 1 && result.digits.back() == '0') result.digits.pop_back();
  return result;
}

// A half has eleven bits: the first of 1 to 5 digits that lies nearer to it than to its neighbours.
Decimal shortest_half(double x) {
  int exponent = 0;
  const bool is_power_of_two = std::abs(std::frexp(x, &exponent)) == 0.5;
  const double spacing = std::ldexp(1.0, std::max(exponent - 11, -24));
  for (int digits = 0; digits < 5; ++digits) {
    const std::string text = fmt::format("{:.{}e}", x, digits);
    const double candidate = std::strtod(text.c_str(), nullptr);
    const bool is_crowded = is_power_of_two && std::abs(candidate) < std::abs(x);  // its neighbour below is nearer
    if (std::abs(candidate - x) < spacing / (is_crowded ? 4 : 2)) return parse_scientific(text);
  }
  return parse_scientific(fmt::format("{:.5e}", x));
}

Decimal shortest(double x, FloatWidth width) {
  if (width == FloatWidth::Half && x != 0) return shortest_half(x);
  char buffer[64];
  const auto result =
      width == FloatWidth::Double
          ? std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific)
          : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(x), std::chars_format::scientific);
  return parse_scientific({buffer, static_cast<std::size_t>(result.ptr - buffer)});
}

std::string trim_zeros(std::string text) {
  while (text.back() == '0') text.pop_back();
  return text;
}

}  // namespace

double largest_positional(FloatWidth width) {
  return width == FloatWidth::Double ? 1e8 : width == FloatWidth::Single ? 1e6 : 1e3;
}

std::string positional_text(double x, FloatWidth width, int precision) {
  const Decimal decimal = shortest(x, width);
  const int count = static_cast<int>(decimal.digits.size());
  if (count - 1 - decimal.exponent > precision) {
    const std::string text = fmt::format("{:.{}f}", x, precision);
    return precision == 0 ? text + "." : trim_zeros(text);
  }
  std::string whole, fraction;
  for (int i = 0; i <= decimal.exponent; ++i) whole += i < count ? decimal.digits[i] : '0';
  for (int i = -1; i > decimal.exponent; --i) fraction += '0';
  for (int i = std::max(0, decimal.exponent + 1); i < count; ++i) fraction += decimal.digits[i];
  return (decimal.is_negative ? "-" : "") + (whole.empty() ? "0" : whole) + trim_zeros("." + fraction);
}

std::string scientific_text(double x, FloatWidth width, int precision) {
  Decimal decimal = shortest(x, width);
  if (static_cast<int>(decimal.digits.size()) - 1 > precision)
    decimal = parse_scientific(fmt::format("{:.{}e}", x, precision));
  return fmt::format("{}{}.{}e{}{:02}", decimal.is_negative ? "-" : "", decimal.digits[0], decimal.digits.substr(1),
                     decimal.exponent < 0 ? '-' : '+', std::abs(decimal.exponent));
}

std::string padded_scientific_text(double x, int precision, int exponent_digits) {
  std::string text = fmt::format("{:.{}e}", x, precision);
  if (precision == 0) text.insert(text.find('e'), ".");
  const std::size_t sign = text.find('e') + 1;
  const int missing = exponent_digits - static_cast<int>(text.size() - sign - 1);
  if (missing > 0) text.insert(sign + 1, static_cast<std::size_t>(missing), '0');
  return text;
}

std::string scalar_text(double x, FloatWidth width) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const double large = width == FloatWidth::Double ? 1e16 : largest_positional(width);
  if (x == 0 || (std::abs(x) >= 1e-4 && std::abs(x) < large)) {
    const std::string text = positional_text(x, width, std::numeric_limits<int>::max());
    return text.back() == '.' ? text + "0" : text;
  }
  std::string text = scientific_text(x, width, std::numeric_limits<int>::max());
  const std::size_t point = text.find(".e");
  return point == std::string::npos ? text : text.erase(point, 1);
}

}  // namespace tenscope::report
