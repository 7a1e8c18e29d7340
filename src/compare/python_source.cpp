#include "compare/python_source.hpp"

#include <algorithm>
#include <cctype>

namespace tenscope::compare {
namespace {

constexpr std::string_view kSpaces = " \t\f";

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// What goes on from line to line: a bracket, a string in three quotes, a backslash at the end.
class Scanner {
 public:
  bool is_inside() const { return depth_ > 0 || quote_ != 0 || is_continued_; }

  void pass(std::string_view line) {
    is_continued_ = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote_ != 0) {
        if (c == '\\') {
          ++i;
        } else if (is_triple_ ? line.substr(i).starts_with(std::string(3, quote_)) : c == quote_) {
          i += is_triple_ ? 2 : 0;
          quote_ = 0;
        }
      } else if (c == '#') {
        break;
      } else if (c == '"' || c == '\'') {
        quote_ = c;
        is_triple_ = line.substr(i).starts_with(std::string(3, c));
        i += is_triple_ ? 2 : 0;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth_;
      } else if ((c == ')' || c == ']' || c == '}') && depth_ > 0) {
        --depth_;
      } else if (c == '\\' && i + 1 == line.size()) {
        is_continued_ = true;
      }
    }
    if (quote_ != 0 && !is_triple_) {  // ends with its line, unless a backslash does not let it
      if (!line.ends_with('\\')) quote_ = 0;
    }
  }

 private:
  int depth_ = 0;
  char quote_ = 0;
  bool is_triple_ = false;
  bool is_continued_ = false;
};

struct Header {
  bool is_class = false;
  std::string_view name;
};

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0; }

bool take_word(std::string_view& line, std::string_view word) {
  if (!line.starts_with(word) || line.size() == word.size() || kSpaces.find(line[word.size()]) == kSpaces.npos)
    return false;
  line.remove_prefix(std::min(line.find_first_not_of(kSpaces, word.size()), line.size()));
  return true;
}

// Of a statement "class Name(...):", "def name(...)", "async def name(...)".
std::optional<Header> header_of(std::string_view statement) {
  Header header;
  take_word(statement, "async");
  header.is_class = take_word(statement, "class");
  if (!header.is_class && !take_word(statement, "def")) return std::nullopt;
  const auto end = std::find_if_not(statement.begin(), statement.end(), is_of_name);
  header.name = statement.substr(0, static_cast<std::size_t>(end - statement.begin()));
  if (header.name.empty()) return std::nullopt;
  return header;
}

class Finder {
 public:
  explicit Finder(const std::vector<std::string_view>& lines) : lines_(lines) {}

  std::vector<Definition> find() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::size_t indent = std::min(lines_[i].find_first_not_of(kSpaces), lines_[i].size());
      const bool is_empty = indent == lines_[i].size() || lines_[i][indent] == '#';
      if (!scanner_.is_inside() && !is_empty) statement(i, indent);
      if (!is_empty || scanner_.is_inside()) end_ = i + 1;
      scanner_.pass(lines_[i]);
    }
    close(0);
    return std::move(found_);
  }

 private:
  struct Open {
    std::size_t indent = 0;
    std::size_t index = 0;  // in found_
  };

  void statement(std::size_t line, std::size_t indent) {
    close(indent);
    const std::string_view text = lines_[line].substr(indent);
    if (text.starts_with('@')) {
      if (!decorator_) decorator_ = line;
      return;
    }
    if (const auto header = header_of(text)) {
      std::string name = open_.empty() ? "" : found_[open_.back().index].name + ".";
      name += header->name;
      open_.push_back({indent, found_.size()});
      found_.push_back({std::move(name), header->is_class, decorator_.value_or(line), line, 0});
    }
    decorator_.reset();
  }

  // A statement that stands no further in than a definition ends it.
  void close(std::size_t indent) {
    while (!open_.empty() && open_.back().indent >= indent) {
      found_[open_.back().index].end = end_;
      open_.pop_back();
    }
  }

  const std::vector<std::string_view>& lines_;
  Scanner scanner_;
  std::vector<Definition> found_;
  std::vector<Open> open_;
  std::optional<std::size_t> decorator_;
  std::size_t end_ = 0;  // behind the last line that is not empty
};

std::string without_locals(std::string_view qualified) {
  constexpr std::string_view kLocals = "<locals>.";
  std::string name(qualified);
  for (std::size_t at = 0; (at = name.find(kLocals, at)) != name.npos;) name.erase(at, kLocals.size());
  return name;
}

}  // namespace

PythonSource::PythonSource(std::string text)
    : text_(std::move(text)), lines_(split_lines(text_)), definitions_(Finder(lines_).find()) {}

std::vector<std::string_view> PythonSource::lines_of(const Definition& definition) const {
  const auto begin = lines_.begin();
  return {begin + static_cast<std::ptrdiff_t>(definition.begin), begin + static_cast<std::ptrdiff_t>(definition.end)};
}

const Definition* PythonSource::find_class(std::string_view qualified, std::optional<std::size_t> with) const {
  const std::string name = without_locals(qualified);
  const Definition* found = nullptr;
  for (const Definition& one : definitions_) {
    if (!one.is_class || one.name != name) continue;
    found = &one;
    if (with && one.contains(*with)) break;
  }
  return found;
}

const Definition* PythonSource::around(std::size_t line) const {
  const Definition* found = nullptr;
  for (const Definition& one : definitions_)
    if (one.contains(line) && (one.is_class || found == nullptr)) found = &one;
  return found;
}

Definition PythonSource::statement_at(std::size_t line) const {
  Definition statement{.name = {}, .is_class = false, .begin = line, .line = line, .end = line};
  Scanner scanner;
  while (statement.end < lines_.size()) {
    scanner.pass(lines_[statement.end++]);
    if (!scanner.is_inside()) break;
  }
  return statement;
}

const Definition* PythonSource::function_at(std::size_t line) const {
  const Definition* found = nullptr;
  for (const Definition& one : definitions_)
    if (one.contains(line) && !one.is_class) found = &one;
  return found;
}

const Definition* PythonSource::find(std::string_view qualified) const {
  const auto found = std::ranges::find(definitions_, without_locals(qualified), &Definition::name);
  return found == definitions_.end() ? nullptr : &*found;
}

}  // namespace tenscope::compare
