#include "format/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tenscope {
namespace {

constexpr std::uint64_t kBillion = 1'000'000'000;

// magnitude = magnitude * factor + carry, in digits of the given base, least significant first
void multiply_add(std::vector<std::uint64_t>& magnitude, std::uint64_t base, std::uint64_t factor,
                  std::uint64_t carry) {
  for (auto& digit : magnitude) {
    carry += digit * factor;
    digit = carry % base;
    carry /= base;
  }
  for (; carry > 0; carry /= base) magnitude.push_back(carry % base);
}

void negate(std::string& bytes) {
  unsigned carry = 1;
  for (auto& byte : bytes) {
    const unsigned value = static_cast<unsigned char>(~byte) + carry;
    byte = static_cast<char>(value);
    carry = value >> 8;
  }
}

}  // namespace

std::string decimal_of_bytes(std::string_view bytes) {
  const bool is_negative = !bytes.empty() && (bytes.back() & 0x80);
  std::string positive(bytes);
  if (is_negative) negate(positive);
  std::vector<std::uint64_t> groups;  // of nine decimal digits
  for (auto byte = positive.rbegin(); byte != positive.rend(); ++byte) {
    multiply_add(groups, kBillion, 256, static_cast<unsigned char>(*byte));
  }
  if (groups.empty()) return "0";
  std::string digits = is_negative ? "-" : "";
  digits += fmt::format("{}", groups.back());
  for (auto group = groups.rbegin() + 1; group != groups.rend(); ++group) digits += fmt::format("{:09}", *group);
  return digits;
}

std::string bytes_of_decimal(std::string_view digits) {
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.remove_prefix(1);
  std::vector<std::uint64_t> magnitude;  // of bytes
  for (const char digit : digits) multiply_add(magnitude, 256, 10, static_cast<std::uint64_t>(digit - '0'));
  std::string bytes;
  for (const auto byte : magnitude) bytes += static_cast<char>(byte);
  bytes += '\0';
  if (is_negative) negate(bytes);
  const char filler = is_negative ? '\xff' : '\0';
  while (bytes.size() > 1 && bytes.back() == filler && ((bytes[bytes.size() - 2] ^ filler) & 0x80) == 0)
    bytes.pop_back();
  return bytes == std::string(1, '\0') ? "" : bytes;
}

}  // namespace tenscope
