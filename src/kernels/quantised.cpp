// Overview. One struct for each type: how many elements a block has, in how many bytes, and how its elements are made
// of them. A block begins or ends with its scales; the elements' low bits are packed so that neighbours in a byte are
// far apart in the tensor (16, 32 or 64 elements), and what does not fit into a nibble stands in bytes of its own.
// Products and sums are made in float32 in the order in which ggml makes them, so that the results have the same bits.
#include "tenscope/quantised.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>

#include "kernels/element.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

using Byte = std::uint8_t;

float half(const Byte* bytes) {
  kernels::Float16 value;
  std::memcpy(&value, bytes, sizeof value);
  return kernels::to_float(value);
}

int low(Byte byte) { return byte & 15; }
int high(Byte byte) { return byte >> 4; }
int two_bits(Byte byte, int place) { return (byte >> (2 * place)) & 3; }
int one_bit(Byte byte, int place) { return (byte >> place) & 1; }

// 32 elements in 16 bytes: the low nibbles, then the high ones.
template <class Use>
void for_each_nibble(const Byte* bytes, Use use) {
  for (int i = 0; i < 16; ++i) {
    use(i, low(bytes[i]));
    use(i + 16, high(bytes[i]));
  }
}

struct Q4_0 {
  static constexpr int kElements = 32, kBytes = 18;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block);
    for_each_nibble(block + 2, [&](int i, int q) { out[i] = scale * static_cast<float>(q - 8); });
  }
};

struct Q4_1 {
  static constexpr int kElements = 32, kBytes = 20;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block), least = half(block + 2);
    for_each_nibble(block + 4, [&](int i, int q) { out[i] = scale * static_cast<float>(q) + least; });
  }
};

struct Q5_0 {
  static constexpr int kElements = 32, kBytes = 22;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block);
    const Byte* fifth = block + 2;
    for_each_nibble(block + 6, [&](int i, int q) {
      out[i] = scale * static_cast<float>((q | (one_bit(fifth[i / 8], i % 8) << 4)) - 16);
    });
  }
};

struct Q5_1 {
  static constexpr int kElements = 32, kBytes = 24;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block), least = half(block + 2);
    const Byte* fifth = block + 4;
    for_each_nibble(block + 8, [&](int i, int q) {
      out[i] = scale * static_cast<float>(q | (one_bit(fifth[i / 8], i % 8) << 4)) + least;
    });
  }
};

struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block);
    for (int i = 0; i < kElements; ++i) out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
};

// The K types have blocks of 256 in parts of 16 or 32 elements that have a scale of their own, a part of the block's.

struct Q2_K {
  static constexpr int kElements = 256, kBytes = 84;
  static void decode(const Byte* block, float* out) {
    const Byte *scales = block, *quants = block + 16;
    const float scale = half(block + 80), least = half(block + 82);
    for (int part = 0; part < 16; ++part) {
      const float step = scale * static_cast<float>(low(scales[part]));
      const float offset = least * static_cast<float>(high(scales[part]));
      for (int i = 16 * part; i < 16 * part + 16; ++i)
        out[i] = step * static_cast<float>(two_bits(quants[i / 128 * 32 + i % 32], i % 128 / 32)) - offset;
    }
  }
};

struct Q3_K {
  static constexpr int kElements = 256, kBytes = 110;
  static void decode(const Byte* block, float* out) {
    const Byte *third = block, *quants = block + 32, *scales = block + 96;
    const float scale = half(block + 108);
    for (int part = 0; part < 16; ++part) {
      const int lower = part < 8 ? low(scales[part]) : high(scales[part - 8]);
      const int upper = two_bits(scales[8 + part % 4], part / 4);
      const float step = scale * static_cast<float>((lower | (upper << 4)) - 32);
      for (int i = 16 * part; i < 16 * part + 16; ++i) {
        const int q = two_bits(quants[i / 128 * 32 + i % 32], i % 128 / 32);
        out[i] = step * static_cast<float>(q - (one_bit(third[i % 32], i / 32) != 0 ? 0 : 4));
      }
    }
  }
};

// Eight scales and eight offsets of 6 bits in 12 bytes.
struct ScalesAndOffsets {
  const Byte* bytes;
  int scale(int part) const { return part < 4 ? bytes[part] & 63 : low(bytes[part + 4]) | (bytes[part - 4] >> 6 << 4); }
  int offset(int part) const {
    return part < 4 ? bytes[part + 4] & 63 : high(bytes[part + 4]) | (bytes[part] >> 6 << 4);
  }
};

struct Q4_K {
  static constexpr int kElements = 256, kBytes = 144;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block), least = half(block + 2);
    const ScalesAndOffsets parts{block + 4};
    for (int part = 0; part < 8; ++part) {
      const float step = scale * static_cast<float>(parts.scale(part));
      const float offset = least * static_cast<float>(parts.offset(part));
      const Byte* quants = block + 16 + part / 2 * 32;
      for (int i = 0; i < 32; ++i)
        out[32 * part + i] = step * static_cast<float>(part % 2 == 0 ? low(quants[i]) : high(quants[i])) - offset;
    }
  }
};

struct Q5_K {
  static constexpr int kElements = 256, kBytes = 176;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block), least = half(block + 2);
    const ScalesAndOffsets parts{block + 4};
    const Byte* fifth = block + 16;
    for (int part = 0; part < 8; ++part) {
      const float step = scale * static_cast<float>(parts.scale(part));
      const float offset = least * static_cast<float>(parts.offset(part));
      const Byte* quants = block + 48 + part / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        const int q = part % 2 == 0 ? low(quants[i]) : high(quants[i]);
        out[32 * part + i] = step * static_cast<float>(q | (one_bit(fifth[i], part) << 4)) - offset;
      }
    }
  }
};

struct Q6_K {
  static constexpr int kElements = 256, kBytes = 210;
  static void decode(const Byte* block, float* out) {
    const Byte *lower = block, *upper = block + 128, *scales = block + 192;
    const float scale = half(block + 208);
    for (int part = 0; part < 16; ++part) {
      const float step = scale * static_cast<float>(static_cast<std::int8_t>(scales[part]));
      for (int i = 16 * part; i < 16 * part + 16; ++i) {
        const int in_half = i % 128;
        const Byte pair = lower[i / 128 * 64 + in_half % 64];
        const int q = in_half < 64 ? low(pair) : high(pair);
        out[i] =
            step * static_cast<float>((q | (two_bits(upper[i / 128 * 32 + in_half % 32], in_half / 32) << 4)) - 32);
      }
    }
  }
};

// Sixteen values that suit weights better than evenly spaced ones.
constexpr std::array<std::int8_t, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

struct IQ4_NL {
  static constexpr int kElements = 32, kBytes = 18;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block);
    for_each_nibble(block + 2, [&](int i, int q) { out[i] = scale * static_cast<float>(kUneven[q]); });
  }
};

struct IQ4_XS {
  static constexpr int kElements = 256, kBytes = 136;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block);
    const Byte *upper = block + 2, *lower = block + 4;
    for (int part = 0; part < 8; ++part) {
      const int nibble = part % 2 == 0 ? low(lower[part / 2]) : high(lower[part / 2]);
      const float step = scale * static_cast<float>((nibble | (two_bits(upper[part / 4], part % 4) << 4)) - 32);
      for_each_nibble(block + 8 + 16 * part,
                      [&](int i, int q) { out[32 * part + i] = step * static_cast<float>(kUneven[q]); });
    }
  }
};

// Elements are -1, 0 and 1. Five of them in a byte: its digits to the base 3, of byte / 256 as a fraction.
struct TQ1_0 {
  static constexpr int kElements = 256, kBytes = 54;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block + 52);
    constexpr std::array<Byte, 5> kPowers = {1, 3, 9, 27, 81};
    const auto put = [&](int first, const Byte* bytes, int width, int digits) {
      for (int i = 0; i < width * digits; ++i) {
        const auto shifted = static_cast<Byte>(bytes[i % width] * kPowers[i / width]);
        out[first + i] = scale * static_cast<float>(((shifted * 3) >> 8) - 1);
      }
    };
    put(0, block, 32, 5);
    put(160, block + 32, 16, 5);
    put(240, block + 48, 4, 4);
  }
};

struct TQ2_0 {
  static constexpr int kElements = 256, kBytes = 66;
  static void decode(const Byte* block, float* out) {
    const float scale = half(block + 64);
    for (int i = 0; i < kElements; ++i)
      out[i] = scale * static_cast<float>(two_bits(block[i / 128 * 32 + i % 32], i % 128 / 32) - 1);
  }
};

// The 4-bit floats of the OCP microscaling formats, twice as large, and half of a power of two as their scale.
struct MXFP4 {
  static constexpr int kElements = 32, kBytes = 17;
  static void decode(const Byte* block, float* out) {
    constexpr std::array<std::int8_t, 16> kTwice = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const std::uint32_t exponent = block[0];
    const float scale = std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
    for_each_nibble(block + 1, [&](int i, int q) { out[i] = scale * static_cast<float>(kTwice[q]); });
  }
};

struct Traits {
  std::string_view name;
  int elements, bytes;
  void (*decode)(const Byte* block, float* out);
};

template <class Type>
constexpr Traits traits_of(std::string_view name) {
  return {name, Type::kElements, Type::kBytes, &Type::decode};
}

// In the order of the enumeration.
constexpr std::array<Traits, kBlockTypeCount> kTraits = {
    traits_of<Q4_0>("q4_0"),   traits_of<Q4_1>("q4_1"),   traits_of<Q5_0>("q5_0"),     traits_of<Q5_1>("q5_1"),
    traits_of<Q8_0>("q8_0"),   traits_of<Q2_K>("q2_K"),   traits_of<Q3_K>("q3_K"),     traits_of<Q4_K>("q4_K"),
    traits_of<Q5_K>("q5_K"),   traits_of<Q6_K>("q6_K"),   traits_of<IQ4_NL>("iq4_nl"), traits_of<IQ4_XS>("iq4_xs"),
    traits_of<TQ1_0>("tq1_0"), traits_of<TQ2_0>("tq2_0"), traits_of<MXFP4>("mxfp4"),
};

const Traits& traits(BlockType type) noexcept { return kTraits[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(BlockType type) noexcept { return traits(type).name; }

std::optional<BlockType> parse_block_type(std::string_view name) noexcept {
  const auto is_same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  for (std::size_t i = 0; i < kTraits.size(); ++i)
    if (std::ranges::equal(kTraits[i].name, name, is_same)) return static_cast<BlockType>(i);
  return std::nullopt;
}

std::int64_t block_elements(BlockType type) noexcept { return traits(type).elements; }
std::size_t block_bytes(BlockType type) noexcept { return static_cast<std::size_t>(traits(type).bytes); }

void dequantise(BlockType type, const void* bytes, std::int64_t count, float* out) {
  const Traits& of = traits(type);
  if (count < 0 || count % of.elements != 0)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot dequantise {} elements of {}: its blocks have {}", count, of.name, of.elements));
  const auto* block = static_cast<const Byte*>(bytes);
  for (std::int64_t done = 0; done < count; done += of.elements, block += of.bytes, out += of.elements)
    of.decode(block, out);
}

}  // namespace tenscope
