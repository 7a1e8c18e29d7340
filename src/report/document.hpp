#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "report/style.hpp"
#include "report/table.hpp"

namespace tenscope::report {

// What a report says, block after block, before it is text for a terminal or HTML for a notebook. Text may hold
// anything: what a terminal or a browser would obey is written out.
class Document {
 public:
  // A field is a name and what it says behind it, from column `name_width` on.
  explicit Document(std::size_t name_width = 14) : name_width_(name_width) {}

  void headline(std::string text, Tone tone);
  void line(const std::string& text,
            Tone tone = Tone::Plain);  // a sentence; spaces in front of it move it to the right
  // An empty name: it goes on with the field before it.
  void field(std::string name, const std::string& text, Tone tone = Tone::Plain);
  void fields(std::string_view name, const std::vector<std::string>& lines);
  // Of a program or a command: each space counts.
  void code(std::string name, std::string text, Tone tone = Tone::Plain);
  void table(Table table) { add(std::move(table)); }
  void bars(std::string title, std::vector<std::pair<std::string, std::int64_t>> rows);
  // A heading behind an empty line, or that line alone; what follows stands below it, `depth` columns to the right.
  void section(std::string title, Tone tone, std::size_t depth = 2);

  std::string text(bool color, std::size_t width = 0) const;  // the width is that of tables, 0 for any
  // Elements with classes that python/tenscope/notebook/markup.py gives a look.
  std::string html() const;

 private:
  struct Line {
    std::string text;
    Tone tone;
    enum class Kind : std::uint8_t { Headline, Heading, Sentence } kind = Kind::Sentence;
  };
  struct Field {
    std::string name, text;
    Tone tone;
    bool is_code = false;
  };
  struct Bars {
    std::string title;
    std::vector<std::pair<std::string, std::int64_t>> rows;
    std::int64_t largest() const;
  };
  struct Block {
    std::variant<Line, Field, Table, Bars> what;
    std::size_t indent = 0;
  };

  template <class What>
  void add(What what) {
    blocks_.push_back({std::move(what), indent_});
  }

  std::size_t name_width_;
  std::size_t indent_ = 0;
  std::vector<Block> blocks_;
};

// `text` as an element of HTML that has the look of its tone.
std::string toned_html(std::string_view text, Tone tone);

}  // namespace tenscope::report
