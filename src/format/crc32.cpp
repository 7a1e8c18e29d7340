// Overview. libdeflate's CRC-32 takes 16 bytes at a time, some 7 GB/s. Where the CPU multiplies polynomials in
// registers of 64 bytes, a long input is folded first: 256 bytes are multiplied by x^2048 modulo the polynomial and
// added to the 256 that follow, until 256 bytes are left that have the same remainder as all those before. libdeflate
// does the rest.
#include "format/crc32.hpp"

#include <libdeflate.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenscope {
namespace {

constexpr std::size_t kFoldBytes = 256;

#if defined(__x86_64__)
bool can_fold() noexcept {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  return has;
}

// Returns how many bytes went into `folded`. `state` is the register before the first byte.
__attribute__((target("avx512f,vpclmulqdq"))) std::size_t fold(std::uint32_t state, const std::byte* data,
                                                               std::size_t size, std::byte* folded) noexcept {
  const __m512i by_2048_bits = _mm512_set4_epi64(0x1322d1430, 0x11542778a, 0x1322d1430, 0x11542778a);
  __m512i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm512_loadu_si512(data + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  std::size_t at = kFoldBytes;
  for (; at + kFoldBytes <= size; at += kFoldBytes) {
    for (int i = 0; i < 4; ++i) {
      const __m512i low = _mm512_clmulepi64_epi128(x[i], by_2048_bits, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(x[i], by_2048_bits, 0x11);
      x[i] = _mm512_xor_si512(_mm512_xor_si512(low, high), _mm512_loadu_si512(data + at + 64 * i));
    }
  }
  for (int i = 0; i < 4; ++i) _mm512_storeu_si512(folded + 64 * i, x[i]);
  return at;
}
#else
bool can_fold() noexcept { return false; }
std::size_t fold(std::uint32_t, const std::byte*, std::size_t, std::byte*) noexcept { return 0; }
#endif

}  // namespace

std::uint32_t crc32_of(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  if (bytes.size() >= 4 * kFoldBytes && can_fold()) {
    std::byte folded[kFoldBytes];
    bytes = bytes.subspan(fold(~crc, bytes.data(), bytes.size(), folded));
    crc = libdeflate_crc32(~std::uint32_t{0}, folded, sizeof folded);  // inverted: from a register of 0
  }
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

}  // namespace tenscope
