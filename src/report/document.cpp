#include "report/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/printable.hpp"
#include "report/html.hpp"

namespace tenscope::report {
namespace {

constexpr double kFullBar = 30;  // columns

std::string shown_html(std::string_view text) { return escape_html(printable(text)); }

// A sentence in which a name of thousands of letters does not hide the rest.
std::string readable(std::string_view text) {
  constexpr std::size_t kLongestWord = 160;
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    out += (begin == 0 ? "" : " ") + shortened(text.substr(begin, end - begin), kLongestWord);
    begin = end + 1;
  }
  return out;
}

std::string_view class_of(Tone tone) {
  switch (tone) {
    case Tone::Plain:
      return "";
    case Tone::Bold:
      return "tenscope-head";
    case Tone::Dim:
      return "tenscope-dim";
    case Tone::Red:
    case Tone::BoldRed:
      return "tenscope-bad";
    case Tone::Green:
    case Tone::BoldGreen:
      return "tenscope-good";
    case Tone::Yellow:
    case Tone::BoldYellow:
      return "tenscope-note";
    case Tone::Cyan:
      return "tenscope-name";
  }
  return "";
}

double share_of(std::int64_t count, std::int64_t largest) {
  return largest == 0 ? 0 : static_cast<double>(count) / static_cast<double>(largest);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string toned_html(std::string_view text, Tone tone) {
  if (tone == Tone::Plain || text.empty()) return shown_html(text);
  return fmt::format("<span class=\"{}\">{}</span>", class_of(tone), shown_html(text));
}

std::int64_t Document::Bars::largest() const {
  std::int64_t most = 0;
  for (const auto& [label, count] : rows) most = std::max(most, count);
  return most;
}

void Document::headline(std::string text, Tone tone) { add(Line{std::move(text), tone, Line::Kind::Headline}); }

void Document::line(const std::string& text, Tone tone) {
  for (const std::string_view one : lines_of(text)) add(Line{std::string(one), tone});
}

void Document::field(std::string name, const std::string& text, Tone tone) {
  for (const std::string_view one : lines_of(text)) add(Field{std::exchange(name, ""), std::string(one), tone});
}

void Document::fields(std::string_view name, const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) field(i == 0 ? std::string(name) : "", lines[i]);
}

void Document::code(std::string name, std::string text, Tone tone) {
  add(Field{std::move(name), std::move(text), tone, true});
}

void Document::bars(std::string title, std::vector<std::pair<std::string, std::int64_t>> rows) {
  add(Bars{std::move(title), std::move(rows)});
}

void Document::section(std::string title, Tone tone, std::size_t depth) {
  indent_ = 0;
  add(Line{std::move(title), tone, Line::Kind::Heading});
  indent_ = depth;
}

std::string Document::text(bool color, std::size_t width) const {
  std::string out;
  for (const auto& [what, indent] : blocks_) {
    const std::string margin(indent, ' ');
    if (const auto* line = std::get_if<Line>(&what)) {
      const std::size_t begin = std::min(line->text.find_first_not_of(' '), line->text.size());
      if (line->kind == Line::Kind::Heading) out += "\n";
      if (line->kind == Line::Kind::Heading && line->text.empty()) continue;
      out += margin + line->text.substr(0, begin) + toned(line->text.substr(begin), line->tone, color) + "\n";
    } else if (const auto* field = std::get_if<Field>(&what)) {
      const std::string name = fmt::format("{:<{}}", field->name, name_width_);
      out += fmt::format("{}  {} {}\n", margin, name, toned(field->text, field->tone, color));
    } else if (const auto* table = std::get_if<Table>(&what)) {
      out += table->text(color, width);
    } else if (const auto* bars = std::get_if<Bars>(&what)) {
      out += margin + "  " + bars->title + "\n";
      const std::int64_t largest = bars->largest();
      for (const auto& [label, count] : bars->rows) {
        const auto length = count == 0 ? 0 : std::max(1L, std::lround(kFullBar * share_of(count, largest)));
        std::string bar;
        for (long i = 0; i < length; ++i) bar += "█";
        out += fmt::format("{}    {:>8} {:>14} {}\n", margin, label, grouped(count), toned(bar, kFaint, color));
      }
    }
  }
  return out;
}

// Fields that follow each other are the rows of one table, and the lines of one field stand in one cell.
std::string Document::html() const {
  std::string out = "<div class=\"tenscope\">";
  bool has_fields = false;
  const auto end_fields = [&] {
    if (has_fields) out += "</td></tr></table>";
    has_fields = false;
  };
  for (const auto& [what, indent] : blocks_) {
    const auto* field = std::get_if<Field>(&what);
    if (field == nullptr) end_fields();
    if (const auto* line = std::get_if<Line>(&what)) {
      if (line->text.empty()) continue;
      const bool is_further_in = indent > 0 || line->text.starts_with(' ');
      const std::string_view of_kind = line->kind == Line::Kind::Headline  ? "tenscope-headline"
                                       : line->kind == Line::Kind::Heading ? "tenscope-heading"
                                       : is_further_in                     ? "tenscope-below"
                                                                           : "";
      const std::size_t begin = std::min(line->text.find_first_not_of(' '), line->text.size());
      out += fmt::format("<p class=\"{}\">{}</p>", of_kind,
                         toned_html(readable(std::string_view(line->text).substr(begin)), line->tone));
    } else if (field != nullptr) {
      if (!has_fields) out += fmt::format("<table class=\"tenscope-fields{}\">", indent > 0 ? " tenscope-below" : "");
      if (!field->name.empty() || !has_fields) {
        if (has_fields) out += "</td></tr>";
        out += fmt::format("<tr><th>{}</th><td>", shown_html(field->name));
      }
      has_fields = true;
      const std::string_view element = field->is_code ? "code" : "div";
      out += fmt::format("<{0}>{1}</{0}>", element,
                         toned_html(field->is_code ? field->text : readable(field->text), field->tone));
    } else if (const auto* table = std::get_if<Table>(&what)) {
      out += table->html();
    } else if (const auto* bars = std::get_if<Bars>(&what)) {
      out += fmt::format("<table class=\"tenscope-bars{}\"><caption>{}</caption>", indent > 0 ? " tenscope-below" : "",
                         shown_html(bars->title));
      const std::int64_t largest = bars->largest();
      for (const auto& [label, count] : bars->rows)
        out += fmt::format("<tr><th>{}</th><td>{}</td><td><div style=\"width:{:.1f}%\"></div></td></tr>",
                           shown_html(label), grouped(count), 100 * share_of(count, largest));
      out += "</table>";
    }
  }
  end_fields();
  return out + "</div>";
}

}  // namespace tenscope::report
