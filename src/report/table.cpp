#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/printable.hpp"
#include "report/document.hpp"

namespace tenscope::report {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLongName = 100;  // in a table of any width, a longer one does not move the other columns
constexpr std::size_t kMostHtmlRows = 200, kLongestHtmlCell = 200;
constexpr std::size_t kFullName = 48, kReadableName = 20, kLeastName = 12, kLeastWords = 24;

}  // namespace

void Table::add(std::vector<Cell> row) {
  for (Cell& cell : row) cell.text = printable(cell.text);
  rows_.push_back(std::move(row));
}

// The cells of a row behind each other, as many in a line as fit. Words of a long cell go to the next line.
std::string Table::narrow_text(bool color, std::size_t width) const {
  constexpr std::size_t kMargin = 4;
  std::string result;
  const auto add_row = [&](const std::vector<Cell>& row, bool is_head) {
    result += toned(shortened(row.front().text, width), row.front().tone, color) + "\n";
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
        const std::string word = text.substr(begin, end - begin);
        add(width > kMargin ? shortened(word, width - kMargin) : word, row[i].tone, begin == 0 ? 2 : 1);
        begin = end + 1;
      }
    }
    if (used > 0) result += std::string(kMargin, ' ') + line + "\n";
  };
  std::vector<Cell> head;
  for (const Column& column : columns_) head.emplace_back(column.head, kFaint);
  add_row(head, true);
  for (const auto& row : rows_) add_row(row, false);
  return result;
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.head));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text));
  return widths;
}

std::string Table::text(bool color, std::size_t width) const {
  std::vector<std::size_t> widths = natural_widths();
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (widths[i] > 0 || i == 0) shown.push_back(i);
  if (width == 0) {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].fit == Fit::Middle) {
        std::size_t usual = display_width(columns_[i].head);
        for (const auto& row : rows_)
          if (const std::size_t one = display_width(row[i].text); one <= kLongName) usual = std::max(usual, one);
        widths[i] = usual;
      }
    return aligned_text(shown, widths, color, false);
  }
  const auto total = [&] {
    std::size_t sum = shown.empty() ? 0 : kGap * (shown.size() - 1);
    for (const std::size_t i : shown) sum += widths[i];
    return sum;
  };
  const auto shrink = [&](Fit fit, std::size_t least) {
    while (total() > width) {  // the widest first
      std::optional<std::size_t> widest;
      for (const std::size_t i : shown)
        if (columns_[i].fit == fit && widths[i] > least && (!widest || widths[i] > widths[*widest])) widest = i;
      if (!widest) return;
      widths[*widest] -= std::min(total() - width, widths[*widest] - least);
    }
  };
  const auto drop_until_it_fits = [&](int last) {
    while (total() > width) {
      std::optional<std::size_t> first;
      for (std::size_t at = 0; at < shown.size(); ++at)
        if (const int leaves = columns_[shown[at]].leaves;
            leaves > 0 && leaves <= last && (!first || leaves < columns_[shown[*first]].leaves))
          first = at;
      if (!first) return;
      shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(*first));
    }
  };
  shrink(Fit::Middle, kFullName);
  shrink(Fit::Words, kLeastWords * 2);
  drop_until_it_fits(kLastBeforeNames);
  shrink(Fit::Middle, kReadableName);
  drop_until_it_fits(std::numeric_limits<int>::max());
  // What went may have left room for what was shortened before.
  const std::vector<std::size_t> natural = natural_widths();
  for (const std::size_t i : shown)
    if (widths[i] < natural[i] && total() < width) widths[i] += std::min(width - total(), natural[i] - widths[i]);
  shrink(Fit::Words, kLeastWords);
  shrink(Fit::Middle, kLeastName);
  return total() > width ? narrow_text(color, width) : aligned_text(shown, widths, color, true);
}

std::string Table::aligned_text(const std::vector<std::size_t>& shown, const std::vector<std::size_t>& widths,
                                bool color, bool is_fitted) const {
  std::string result;
  const auto add_row = [&](const std::vector<Cell>& row, bool is_head) {
    std::vector<std::vector<std::string>> cells;  // their lines
    std::size_t height = 1;
    for (const std::size_t i : shown) {
      const std::string& text = i < row.size() ? row[i].text : "";
      const bool is_long = display_width(text) > widths[i];
      cells.push_back(is_long && columns_[i].fit == Fit::Words                 ? wrapped(text, widths[i])
                      : is_long && is_fitted && columns_[i].fit == Fit::Middle ? std::vector{shortened(text, widths[i])}
                                                                               : std::vector{text});
      height = std::max(height, cells.back().size());
    }
    for (std::size_t line_number = 0; line_number < height; ++line_number) {
      std::string line;
      for (std::size_t at = 0; at < shown.size(); ++at) {
        const std::size_t i = shown[at];
        const std::string text = line_number < cells[at].size() ? cells[at][line_number] : "";
        const std::size_t used = display_width(text);
        const std::string gap(widths[i] > used ? widths[i] - used : 0, ' ');
        const std::string cell = toned(text, is_head ? kFaint : i < row.size() ? row[i].tone : Tone::Plain, color);
        line += columns_[i].align == Align::Left ? cell + gap : gap + cell;
        if (at + 1 < shown.size()) line += std::string(kGap, ' ');
      }
      result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  };
  std::vector<Cell> head;
  for (const Column& column : columns_) head.emplace_back(column.head);
  add_row(head, true);
  for (const auto& row : rows_) add_row(row, false);
  return result;
}

std::string Table::html() const {
  const std::vector<std::size_t> widths = natural_widths();
  std::string out = "<div class=\"tenscope-wide\"><table class=\"tenscope-table\">";
  const auto add_row = [&](const std::vector<Cell>& row, std::string_view element) {
    out += "<tr>";
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (widths[i] == 0) continue;
      const Cell& cell = i < row.size() ? row[i] : Cell("");
      const std::size_t begin = std::min(cell.text.find_first_not_of(' '), cell.text.size());
      out += fmt::format("<{0}{1}>{2}</{0}>", element,
                         columns_[i].align == Align::Right ? " class=\"tenscope-right\"" : "",
                         toned_html(shortened(std::string_view(cell.text).substr(begin), kLongestHtmlCell), cell.tone));
    }
    out += "</tr>";
  };
  std::vector<Cell> head;
  for (const Column& column : columns_) head.emplace_back(column.head);
  out += "<thead>";
  add_row(head, "th");
  out += "</thead><tbody>";
  for (std::size_t i = 0; i < rows_.size() && i < kMostHtmlRows; ++i) add_row(rows_[i], "td");
  out += "</tbody></table></div>";
  if (rows_.size() > kMostHtmlRows)
    out += fmt::format("<p class=\"tenscope-below\">… {} more</p>", rows_.size() - kMostHtmlRows);
  return out;
}

}  // namespace tenscope::report
