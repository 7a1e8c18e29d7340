#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenscope {

// Whether a code point does something to a terminal instead of being shown: control characters, separators of lines,
// and marks that turn the direction of what follows.
bool is_control(char32_t code) noexcept;

// The code point that begins at `at`, which moves behind it. A byte that is no UTF-8 counts as U+FFFD.
char32_t next_code_point(std::string_view text, std::size_t& at) noexcept;

// A name as it can be shown in one line: what a terminal would obey is written out, "a\nb", "\x1b[31m", "\u202e".
std::string printable(std::string_view text);

// The same for a text of several lines: line breaks and tabs stay.
std::string printable_lines(std::string_view text);

// A count as people read it: 1,234,567.
std::string grouped(std::int64_t count);

}  // namespace tenscope
