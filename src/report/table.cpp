#include "report/table.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace tenscope::report {

std::string toned(std::string_view text, Tone tone, bool color) {
  constexpr std::array<std::string_view, 7> kCodes{"",         "\033[1m",  "\033[2m", "\033[31m",
                                                   "\033[32m", "\033[33m", "\033[36m"};
  if (!color || tone == Tone::Plain || text.empty()) return std::string(text);
  return std::string(kCodes[static_cast<std::size_t>(tone)]) + std::string(text) + "\033[0m";
}

std::size_t display_width(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The cells of a row behind each other, as many in a line as fit. Words of a long cell go to the next line.
std::string Table::narrow_text(bool color, std::size_t width) const {
  constexpr std::size_t kMargin = 4;
  std::string result;
  const auto add_row = [&](const std::vector<Cell>& row, bool is_head) {
    result += toned(row.front().text, row.front().tone, color) + "\n";
    std::string line;
    std::size_t used = 0;
    const auto add = [&](const std::string& text, Tone tone, std::size_t gap) {
      if (used > 0 && kMargin + used + gap + display_width(text) > width) {
        result += std::string(kMargin, ' ') + line + "\n";
        line.clear();
        used = 0;
      }
      line += (used > 0 ? std::string(gap, ' ') : "") + toned(text, tone, color);
      used += (used > 0 ? gap : 0) + display_width(text);
    };
    for (std::size_t i = 1; i < row.size(); ++i) {
      if (row[i].text.empty()) continue;
      const bool needs_head = !is_head && columns_[i].align == Align::Right;
      const std::string text = needs_head ? columns_[i].head + " " + row[i].text : row[i].text;
      const bool is_long = kMargin + display_width(text) > width;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = is_long ? std::min(text.find(' ', begin), text.size()) : text.size();
        add(text.substr(begin, end - begin), row[i].tone, begin == 0 ? 2 : 1);
        begin = end + 1;
      }
    }
    if (used > 0) result += std::string(kMargin, ' ') + line + "\n";
  };
  std::vector<Cell> head;
  for (const Column& column : columns_) head.emplace_back(column.head, Tone::Dim);
  add_row(head, true);
  for (const auto& row : rows_) add_row(row, false);
  return result;
}

std::string Table::text(bool color, std::size_t width) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.head));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  }
  const std::size_t total = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
  if (width > 0 && total > width) return narrow_text(color, width);
  std::string result;
  const auto add_row = [&](const std::vector<Cell>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - display_width(row[i].text), ' ');
      const std::string cell = toned(row[i].text, row[i].tone, color);
      line += columns_[i].align == Align::Left ? cell + gap : gap + cell;
      if (i + 1 < row.size()) line += "  ";
    }
    result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::vector<Cell> head;
  for (const Column& column : columns_) head.emplace_back(column.head, Tone::Dim);
  add_row(head);
  for (const auto& row : rows_) add_row(row);
  return result;
}

}  // namespace tenscope::report
