#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::report {

// How a piece of text stands out on a terminal.
enum class Tone { Plain, Bold, Dim, Red, Green, Yellow, Cyan };

// `text` with the escape codes of its tone where `color` is on.
std::string toned(std::string_view text, Tone tone, bool color);

// How many columns a UTF-8 text takes on a terminal, one per code point.
std::size_t display_width(std::string_view text) noexcept;

struct Cell {
  std::string text;
  Tone tone = Tone::Plain;

  Cell(std::string text, Tone tone = Tone::Plain) : text(std::move(text)), tone(tone) {}
  Cell(const char* text) : text(text) {}
};

enum class Align { Left, Right };

// A table of text, two spaces between columns. The head is dim. Where it is wider than the terminal, each row takes
// several lines: what stands first alone, the rest below it.
class Table {
 public:
  struct Column {
    std::string head;
    Align align = Align::Left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const noexcept { return rows_.empty(); }
  std::string text(bool color, std::size_t width = 0) const;  // a line break behind every row; 0: any width

 private:
  std::string narrow_text(bool color, std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace tenscope::report
