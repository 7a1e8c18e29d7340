#include "report/layout.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "report/chart.hpp"
#include "report/curve.hpp"
#include "report/series.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

TEST(Layout, widths_are_those_of_a_terminal) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("中文"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("\033[1;31mabc\033[0m"), 3U);
}

TEST(Layout, long_names_lose_their_middle) {
  EXPECT_EQ(shortened("model.layers.weight", 19), "model.layers.weight");
  EXPECT_EQ(shortened("model.layers.weight", 11), "model…eight");
  EXPECT_EQ(display_width(shortened("中文名字.重み.weight", 10)), 10U);
  EXPECT_LE(display_width(shortened("中文名字中文名字", 6)), 6U);
}

TEST(Layout, lines_are_broken_at_words) {
  EXPECT_EQ(wrapped("one two three", 8), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("one averyverylongword two", 8), (std::vector<std::string>{"one", "averyverylongword", "two"}));
  EXPECT_EQ(wrapped("one two", 0), (std::vector<std::string>{"one two"}));
}

std::size_t widest(const std::string& text) {
  std::size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, display_width(line));
  return width;
}

TEST(Table, fits_the_terminal) {
  Table table({{"name", Align::Left, Fit::Middle},
               {"shape"},
               {"steps", Align::Right, Fit::Whole, 2},
               {"size", Align::Right, Fit::Whole, 1},
               {"state", Align::Left, Fit::Words}});
  table.add({std::string(5000, 'x'), "[3, 4]", "0-19", "128 B", "crashed, and some words that say why it has"});
  table.add({"loss", "[]", "0-19", "4 B", "closed"});
  for (const std::size_t width : {30, 60, 80, 140}) EXPECT_LE(widest(table.text(false, width)), width);
  EXPECT_EQ(table.text(false, 80).find("size"), std::string::npos);
  // Of any width: in full, but a name of 5,000 characters does not move the others.
  EXPECT_NE(table.text(false).find(std::string(5000, 'x')), std::string::npos);
  EXPECT_NE(table.text(false).find("loss  []"), std::string::npos);
}

TEST(Table, a_name_stays_in_its_cell) {
  Table table({{"name"}, {"value"}});
  table.add({"a\nb\033[2J", "1"});
  EXPECT_EQ(table.text(true), "\033[2mname\033[0m         \033[2mvalue\033[0m\na\\nb\\x1b[2J  1\n");
}

TEST(Sparkline, has_a_character_for_each_value) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sparkline(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}, 16), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(std::vector<double>{0, nan, 1}, 16), "▁×█");
  EXPECT_EQ(sparkline(std::vector<double>{0, 0, 1, 1}, 2), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{5, 5}, 16), "▄▄");
  EXPECT_EQ(sparkline(std::vector<double>{5}, 16), "");
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sparkline(std::vector<double>{-most, most}, 16), "▁█");
}

Series line_of(const std::vector<double>& values) {
  Series series{.name = "loss"};
  for (std::size_t i = 0; i < values.size(); ++i) series.points.push_back({static_cast<std::int64_t>(i), 0, values[i]});
  return series;
}

TEST(Fitted, breaks_between_pairs) {
  EXPECT_EQ(fitted("min 1  max 2.5  absmax 2.5", 22), "min 1  max 2.5\n       absmax 2.5");
  EXPECT_EQ(fitted("a  as long a text as may be broken anywhere", 22),
            "a  as long a text as\n   may be broken\n   anywhere");
}

TEST(Fitted, gives_a_line_that_begins_far_in_its_room) {
  const std::string line = "                        one two three four five";
  for (std::size_t width = 42; width < line.size(); ++width) {
    const std::string text = fitted(line, width);
    EXPECT_LE(text.find('\n'), width) << text;
  }
}

TEST(Curve, goes_from_corner_to_corner) {
  const Series series = line_of({0, 1});
  const std::string text = curve_text({{&series, kName}}, {.width = 20, .height = 3, .is_utf8 = false});
  EXPECT_EQ(text,
            "1 |           *****\n"
            "  |     ******\n"
            "0 |*****\n"
            "  +----------------\n"
            "   step 0         1\n");
}

TEST(Curve, shows_what_is_no_number) {
  const Series series = line_of({1, std::numeric_limits<double>::quiet_NaN(), 1});
  EXPECT_NE(curve_text({{&series, kName}}, {.width = 40, .height = 4}).find("×"), std::string::npos);
  const Series none = line_of({std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(curve_text({{&none, kName}}, {}), "");
}

TEST(Ticks, are_round) {
  EXPECT_EQ(round_ticks(0, 1, 5, false), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(round_ticks(0.5, 2000, 5, true), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(round_ticks(3, 3, 5, false), (std::vector<double>{3}));
}

TEST(Chart, escapes_names) {
  Chart chart{.title = "a<b", .curves = {{line_of({0, 1, 2}), "x&\"y", false}, {line_of({2, 1}), "b", true}}};
  const std::string svg = chart_svg({chart}, "run\033");
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("x&amp;&quot;y"), std::string::npos);
  EXPECT_EQ(svg.find('\033'), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos);
}

}  // namespace
}  // namespace tenscope::report
