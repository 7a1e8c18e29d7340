#include "format/crc32c.hpp"

#include <array>

namespace tenscope {
namespace {

// tables[k][b]: what the byte b, with k bytes of zero behind it, leaves in the register.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c_of(std::string_view bytes) noexcept {
  std::uint32_t rest = ~std::uint32_t{0};
  std::size_t i = 0;
  const auto byte_at = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      const std::uint32_t in_register = k < 4 ? rest >> (8 * k) & 0xff : 0;
      next ^= kTables[7 - k][byte_at(i + k) ^ in_register];
    }
    rest = next;
  }
  for (; i < bytes.size(); ++i) rest = (rest >> 8) ^ kTables[0][(rest ^ byte_at(i)) & 0xff];
  return ~rest;
}

}  // namespace tenscope
