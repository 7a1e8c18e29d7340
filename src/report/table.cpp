#include "report/table.hpp"

#include <algorithm>
#include <array>

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

std::string Table::text(bool color) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.head));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  }
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
