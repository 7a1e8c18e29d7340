#pragma once

#include <string>
#include <string_view>

namespace tenscope {

// Integers of any size, between decimal text and the two's complement, little-endian bytes that pickle uses. The work
// grows with the square of the length: bound it first.
std::string decimal_of_bytes(std::string_view bytes);
std::string bytes_of_decimal(std::string_view digits);  // "-12"; as few bytes as hold it and its sign

}  // namespace tenscope
