#include "core/printable.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenscope {
namespace {

std::string written_out(char32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return code < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(code))
                          : fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  }
}

std::string without_controls(std::string_view text, bool keeps_lines) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (is_control(code) && !(keeps_lines && (code == '\n' || code == '\t')))
      result += written_out(code);
    else
      result.append(text, begin, at - begin);
  }
  return result;
}

}  // namespace

bool is_control(char32_t code) noexcept {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return true;
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  constexpr char32_t kNoCharacter = 0xFFFD;
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  if (more == 0) return kNoCharacter;
  char32_t code = first & (0x3F >> more);
  std::size_t next = at;
  for (int i = 0; i < more; ++i, ++next) {
    if (next >= text.size() || (text[next] & 0xC0) != 0x80) return kNoCharacter;
    code = (code << 6) | (text[next] & 0x3F);
  }
  at = next;
  return code;
}

std::string printable(std::string_view text) { return without_controls(text, false); }

std::string printable_lines(std::string_view text) { return without_controls(text, true); }

std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

}  // namespace tenscope
