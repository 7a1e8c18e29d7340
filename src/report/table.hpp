#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/layout.hpp"
#include "report/style.hpp"

namespace tenscope::report {

struct Cell {
  std::string text;
  Tone tone = Tone::Plain;

  Cell(std::string text, Tone tone = Tone::Plain) : text(std::move(text)), tone(tone) {}
  Cell(const char* text) : text(text) {}
};

enum class Align { Left, Right };

// What a column does where the table is wider than the terminal: stays whole, has its long cells shortened in the
// middle, or broken at words into several lines.
enum class Fit { Whole, Middle, Words };

// The columns that go before names are shortened to less than they should be.
inline constexpr int kLastBeforeNames = 7;

// A table of text, two spaces between columns. The head is dim. Where it is wider than the terminal, long names are
// shortened, and columns go in the order of their `leaves`; where that is not enough each row takes several lines: what
// stands first alone, the rest below it. Names may hold anything: what a terminal would obey is written out.
class Table {
 public:
  struct Column {
    std::string head;
    Align align = Align::Left;
    Fit fit = Fit::Whole;
    int leaves = 0;  // 1 is the first to go; 0: it stays
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);
  bool empty() const noexcept { return rows_.empty(); }
  std::string text(bool color, std::size_t width = 0) const;  // a line break behind every row; 0: any width
  std::string html() const;                                   // its first rows, and how many are left out

 private:
  std::vector<std::size_t> natural_widths() const;
  std::string narrow_text(bool color, std::size_t width) const;
  std::string aligned_text(const std::vector<std::size_t>& shown, const std::vector<std::size_t>& widths, bool color,
                           bool is_fitted) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace tenscope::report
