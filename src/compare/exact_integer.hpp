#pragma once

#include <string>
#include <string_view>

namespace tenscope::compare {

// The decimal digits of a whole number, all of them: "1180591620717411303424" of 2^70. Empty where it is no whole
// number.
std::string digits_of(double number);

// Is a number the integer of these digits, however many they are?
inline bool is_integer(double number, std::string_view digits) { return digits_of(number) == digits; }

}  // namespace tenscope::compare
