#include "tenscope/summary.hpp"

#include <fmt/format.h>

#include <charconv>

namespace tenscope {

std::string Fingerprint::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Fingerprint> Fingerprint::parse(std::string_view hex) noexcept {
  if (hex.size() != 32) return std::nullopt;
  Fingerprint result;
  const auto parse_half = [](std::string_view text, std::uint64_t& half) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), half, 16);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (!parse_half(hex.substr(0, 16), result.high) || !parse_half(hex.substr(16), result.low)) return std::nullopt;
  return result;
}

}  // namespace tenscope
