#include "format/unescape.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace tenscope {
namespace {

std::optional<std::uint32_t> parse_number(std::string_view digits, int base) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

bool is_ascii(std::string_view text) noexcept {
  return std::ranges::none_of(text, [](char c) { return c & 0x80; });
}

std::optional<std::string> unescape_python_string(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != quoted.back() || (quoted.front() != '\'' && quoted.front() != '"')) {
    return std::nullopt;
  }
  quoted = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\') {
      out += quoted[i];
      continue;
    }
    if (++i == quoted.size()) return std::nullopt;
    switch (quoted[i]) {
      case '\\':
      case '\'':
      case '"':
        out += quoted[i];
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'v':
        out += '\v';
        break;
      case '0':
        out += '\0';
        break;
      case 'x': {
        const auto code = parse_number(quoted.substr(std::min(i + 1, quoted.size()), 2), 16);
        if (!code || i + 2 >= quoted.size()) return std::nullopt;
        out += static_cast<char>(*code);
        i += 2;
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return out;
}

std::optional<std::string> unescape_raw_unicode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'u' || text[i + 1] == 'U');
    if (!is_escape) {
      append_utf8(out, static_cast<unsigned char>(text[i]));
      continue;
    }
    const std::size_t length = text[i + 1] == 'u' ? 4 : 8;
    const auto digits = text.substr(i + 2, length);
    const auto code = parse_number(digits, 16);
    if (!code || digits.size() != length || *code > 0x10ffff) return std::nullopt;
    append_utf8(out, *code);
    i += 1 + length;
  }
  return out;
}

std::optional<std::string> latin1_of_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      out += text[i];
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80) {
      out += static_cast<char>((byte & 3) << 6 | (text[++i] & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace tenscope
