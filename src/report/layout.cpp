#include "report/layout.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/printable.hpp"

namespace tenscope::report {
namespace {

struct Range {
  char32_t first, last;
};

// The larger blocks of Unicode's East Asian Width W and F, and of emoji.
constexpr std::array<Range, 16> kWide{{{0x1100, 0x115F},
                                       {0x231A, 0x231B},
                                       {0x2E80, 0x303E},
                                       {0x3041, 0x33FF},
                                       {0x3400, 0x4DBF},
                                       {0x4E00, 0x9FFF},
                                       {0xA000, 0xA4CF},
                                       {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},
                                       {0xFF00, 0xFF60},
                                       {0xFFE0, 0xFFE6},
                                       {0x1F300, 0x1F64F},
                                       {0x1F680, 0x1F6FF},
                                       {0x1F900, 0x1F9FF},
                                       {0x20000, 0x3FFFD}}};
constexpr std::array<Range, 9> kCombining{{{0x0300, 0x036F},
                                           {0x0483, 0x0489},
                                           {0x0591, 0x05BD},
                                           {0x064B, 0x065F},
                                           {0x1AB0, 0x1AFF},
                                           {0x200B, 0x200D},
                                           {0x20D0, 0x20FF},
                                           {0xFE00, 0xFE0F},
                                           {0xFE20, 0xFE2F}}};

template <std::size_t kCount>
bool is_in(const std::array<Range, kCount>& ranges, char32_t code) {
  return std::ranges::any_of(ranges, [&](const Range& one) { return code >= one.first && code <= one.last; });
}

std::size_t width_of(char32_t code) {
  if (code < 0x300) return 1;
  return is_in(kCombining, code) ? 0 : is_in(kWide, code) ? 2 : 1;
}

// Behind a colour that begins at `at`, else `at`.
std::size_t behind_color(std::string_view text, std::size_t at) {
  if (text.substr(at, 2) != "\033[") return at;
  const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : at;
}

// Where the text of a line begins, and where it goes on below when it is broken: behind the first words of a list,
// "  why            the output of", else two columns further in.
std::pair<std::size_t, std::size_t> indents(std::string_view line) {
  constexpr std::size_t kFurthest = 20;
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", begin);
  if (gap != line.npos && line.find('\033') > gap)
    if (const std::size_t text = line.find_first_not_of(' ', gap); text != line.npos && text <= kFurthest)
      return {text, text};
  return {begin, std::min(begin + 2, kFurthest)};
}

}  // namespace

std::size_t display_width(std::string_view text) noexcept {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\033')
      if (const std::size_t end = behind_color(text, at); end > at) {
        at = end;
        continue;
      }
    width += width_of(next_code_point(text, at));
  }
  return width;
}

std::string shortened(std::string_view text, std::size_t width) {
  if (text.size() <= width || display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::vector<std::pair<std::size_t, std::size_t>> pieces;  // where each code point begins, and its width
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    pieces.emplace_back(begin, width_of(code));
  }
  // The end of a name tells more than its beginning: it gets the odd column.
  const std::size_t head_room = (width - 1) / 2, tail_room = width - 1 - head_room;
  std::size_t head = 0, used = 0;
  while (head < pieces.size() && used + pieces[head].second <= head_room) used += pieces[head++].second;
  std::size_t tail = pieces.size();
  used = 0;
  while (tail > head && used + pieces[tail - 1].second <= tail_room) used += pieces[--tail].second;
  while (tail < pieces.size() && pieces[tail].second == 0) ++tail;
  const std::size_t head_end = head < pieces.size() ? pieces[head].first : text.size();
  const std::size_t tail_begin = tail < pieces.size() ? pieces[tail].first : text.size();
  return std::string(text.substr(0, head_end)) + "…" + std::string(text.substr(tail_begin));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t first) {
  constexpr std::size_t kLongestCell = 24;  // "absmax 4.70878" between two spaces each is not broken
  if (width == 0 || first + display_width(text) <= width) return {std::string(text)};
  std::vector<std::string> lines;
  std::string line;
  std::size_t used = first;
  bool has_word = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t end = begin;
    while (end < text.size() && text[end] == ' ') ++end;  // spaces belong to the word behind them
    const std::size_t start = end;
    end = std::min(text.find(' ', start), text.size());
    if (start >= begin + 2)
      if (const std::size_t cell = std::min(text.find("  ", start), text.size()); cell - start <= kLongestCell)
        end = cell;
    std::string_view word = text.substr(begin, end - begin);
    if (has_word && used + display_width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
      used = 0;
      word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    }
    line += word;
    used += display_width(word);
    has_word = true;
    if (end >= text.size()) break;
    begin = end;
  }
  lines.push_back(std::move(line));
  return lines;
}

std::string fitted(const std::string& line, std::size_t width) {
  if (width == 0 || display_width(line) <= width) return line;
  const auto [begin, indent] = indents(line);
  const std::string_view text = std::string_view(line).substr(begin);
  if (text.starts_with("tenscope ") || width < 2 * indent) return line;
  std::string result = line.substr(0, begin);
  bool is_first = true;
  for (const std::string& one : wrapped(text, width - indent, begin > indent ? begin - indent : 0)) {
    result += (is_first ? "" : "\n" + std::string(indent, ' ')) + shortened(one, width - (is_first ? begin : indent));
    is_first = false;
  }
  return result;
}

}  // namespace tenscope::report
