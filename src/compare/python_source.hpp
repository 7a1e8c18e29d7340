#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::compare {

// A class or function of a source text. Lines count from 0.
struct Definition {
  std::string name;  // qualified, "Outer.Name"; the functions around it are in it, without "<locals>"
  bool is_class = false;
  std::size_t begin = 0;  // its first line: that of its first decorator
  std::size_t line = 0;   // of the `class` or `def`
  std::size_t end = 0;    // the line behind its last

  bool contains(std::size_t at) const { return begin <= at && at < end; }
};

// A text of Python, as far as it takes to find definitions in it: statements by their indentation, without what stands
// in strings, brackets and comments. It is no parser: a text that is no Python gives some definitions or none.
class PythonSource {
 public:
  explicit PythonSource(std::string text);
  PythonSource(const PythonSource&) = delete;  // the lines are views of the text
  PythonSource& operator=(const PythonSource&) = delete;

  const std::vector<std::string_view>& lines() const { return lines_; }        // without their ends
  const std::vector<Definition>& definitions() const { return definitions_; }  // in the order of their lines
  std::vector<std::string_view> lines_of(const Definition& definition) const;

  // The class of a qualified name, "make.<locals>.Net"; of several, the one that has line `with` in it, else the last.
  const Definition* find_class(std::string_view qualified, std::optional<std::size_t> with = {}) const;
  // The innermost class that a line is in; where it is in none, the outermost function.
  const Definition* around(std::size_t line) const;
  const Definition* find(std::string_view qualified) const;
  // What stands in a line, and in those that it goes on in: a lambda that is in no function.
  Definition statement_at(std::size_t line) const;
  // The innermost function that a line is in.
  const Definition* function_at(std::size_t line) const;

 private:
  std::string text_;
  std::vector<std::string_view> lines_;
  std::vector<Definition> definitions_;
};

}  // namespace tenscope::compare
