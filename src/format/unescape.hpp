#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenscope {

bool is_ascii(std::string_view text) noexcept;

// 'it\'s\x00' as Python 2's repr wrote bytes: the bytes. Nothing where it is malformed.
std::optional<std::string> unescape_python_string(std::string_view quoted);

// Latin-1 with \uXXXX and \UXXXXXXXX, as protocol 0 writes text: UTF-8. Nothing where it is malformed.
std::optional<std::string> unescape_raw_unicode(std::string_view text);

// UTF-8 text whose characters are all below 256, as bytes. Nothing where there is another.
std::optional<std::string> latin1_of_utf8(std::string_view text);

}  // namespace tenscope
