#include "store/sketch_text.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tenscope::store {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 0xFF;
constexpr auto kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

using Bytes = std::array<unsigned char, Sketch::kSums * sizeof(double) + 2>;

// Of each sum: all 8 bytes of the 64-bit types, else what is far finer than the type's own roundoff.
std::size_t bytes_of_sum(DType dtype) noexcept {
  const std::size_t size = item_size(dtype) / (kind_of(dtype) == DTypeKind::Complex ? 2 : 1);
  return size == 8 ? 8 : size == 4 ? 5 : 4;
}

// The bits, rounded to the upper bytes.
std::uint64_t rounded_bits(double sum, std::size_t bytes) noexcept {
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if (bytes < 8) bits = (bits + (std::uint64_t{1} << (63 - 8 * bytes))) >> (64 - 8 * bytes);
  return bits;
}

}  // namespace

void put_sketch(TextBuffer& out, DType dtype, const Sketch& sketch) {
  const std::size_t width = bytes_of_sum(dtype);
  std::size_t count = Sketch::kSums;
  while (count > 0 && sketch.sums[count - 1] == 0) --count;
  Bytes bytes{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = rounded_bits(sketch.sums[i], width);
    for (std::size_t k = 0; k < width; ++k) bytes[i * width + k] = static_cast<unsigned char>(bits >> (8 * k));
  }
  const std::size_t size = count * width;
  std::array<char, (Bytes().size() + 2) / 3 * 4> text;
  char* to = text.data();
  for (std::size_t i = 0; i < size; i += 3) {
    const std::uint32_t three =
        static_cast<std::uint32_t>(bytes[i]) << 16 | static_cast<std::uint32_t>(bytes[i + 1]) << 8 | bytes[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = kDigits[three >> shift & 63];
  }
  for (std::size_t i = size; i % 3 != 0; ++i) to[-1 - static_cast<std::ptrdiff_t>(i - size)] = '=';
  out.put({text.data(), static_cast<std::size_t>(to - text.data())});
}

std::shared_ptr<const Sketch> parse_sketch(std::string_view text, DType dtype) {
  const std::size_t width = bytes_of_sum(dtype);
  Bytes bytes{};
  if (text.size() % 4 != 0 || text.size() / 4 * 3 > bytes.size()) return nullptr;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const bool is_padding = i + k >= text.size() - padding;
      const std::uint8_t value = is_padding ? 0 : kValues[static_cast<unsigned char>(text[i + k])];
      if (value == kNoDigit) return nullptr;
      three = three << 6 | value;
    }
    for (std::size_t k = 0; k < 3; ++k) bytes[i / 4 * 3 + k] = static_cast<unsigned char>(three >> (16 - 8 * k));
  }
  const std::size_t size = text.size() / 4 * 3 - padding;
  if (size % width != 0 || size / width > Sketch::kSums) return nullptr;
  auto sketch = std::make_shared<Sketch>();
  for (std::size_t i = 0; i < size / width; ++i) {
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < width; ++k)
      bits |= static_cast<std::uint64_t>(bytes[i * width + k]) << (8 * (8 - width + k));
    sketch->sums[i] = std::bit_cast<double>(bits);
    if (!std::isfinite(sketch->sums[i])) return nullptr;
  }
  return sketch;
}

double sketch_rounding(DType dtype) noexcept { return std::ldexp(1.0, 11 - 8 * static_cast<int>(bytes_of_sum(dtype))); }

}  // namespace tenscope::store
