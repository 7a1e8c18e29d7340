#pragma once

#include <string>

namespace tenscope::report {

// How wide a number was before it became a double: it decides how many digits identify it.
enum class FloatWidth { Half, Single, Double };

// From here on NumPy turns to scientific notation: where the digits of integers are no longer exact.
double largest_positional(FloatWidth width);

// The shortest digits that identify x among the numbers of its width, cut to `precision` digits behind the point and
// rounded there; at least one sign of a point: "0.1", "3.", "-0.33333333". x is finite.
std::string positional_text(double x, FloatWidth width, int precision);

// The same as d.ddde+dd.
std::string scientific_text(double x, FloatWidth width, int precision);

// Exactly `precision` digits behind the point, as rounded from the exact value; the exponent has at least two digits.
std::string padded_scientific_text(double x, int precision, int exponent_digits);

// As NumPy prints one number: "0.1", "1e-05", "nan", "3.0".
std::string scalar_text(double x, FloatWidth width);

}  // namespace tenscope::report
