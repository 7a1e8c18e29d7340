#include "tenscope/glob.hpp"

#include <cstddef>

namespace tenscope {

bool matches_glob(std::string_view text, std::string_view pattern) noexcept {
  std::size_t t = 0, p = 0;
  std::size_t star = std::string_view::npos, star_text = 0;  // the last star, and where the text went on behind it
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tenscope
