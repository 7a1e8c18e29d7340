#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace tenscope {

// Whether all of `text` matches: * is any run of characters, ? one character, everything else itself.
bool matches_glob(std::string_view text, std::string_view pattern) noexcept;

}  // namespace tenscope
#pragma GCC visibility pop
