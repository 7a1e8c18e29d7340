#include "compare/line_diff.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

namespace tenscope::compare {
namespace {

using Lines = std::vector<std::string_view>;

// What the diff makes of `a`, read as `patch` would: every hunk at its place, every line that stays or goes compared.
std::vector<std::string> applied(const Lines& a, const LineDiff& diff, std::size_t first_a, std::size_t first_b) {
  std::vector<std::string> result;
  std::size_t at = 0;
  for (const std::string& line : diff.lines) {
    if (line.starts_with("@@")) {
      std::size_t line_a = 0, count_a = 1, line_b = 0, count_b = 1;
      if (std::sscanf(line.c_str(), "@@ -%zu,%zu", &line_a, &count_a) != 2) count_a = 1;
      const std::string plus = line.substr(line.find('+'));
      if (std::sscanf(plus.c_str(), "+%zu,%zu", &line_b, &count_b) != 2) count_b = 1;
      const std::size_t begin = line_a - first_a - (count_a > 0 ? 1 : 0);
      for (; at < begin; ++at) result.emplace_back(a.at(at));
      EXPECT_EQ(result.size(), line_b - first_b - (count_b > 0 ? 1 : 0));
    } else if (line.front() == '+') {
      result.push_back(line.substr(1));
    } else {
      EXPECT_EQ(a.at(at), line.substr(1));
      if (line.front() == ' ') result.emplace_back(a.at(at));
      ++at;
    }
  }
  for (; at < a.size(); ++at) result.emplace_back(a[at]);
  return result;
}

TEST(LineDiff, HasTheFormOfDiff) {
  const Lines a = {"a", "b", "c", "d", "e", "f", "g", "h", "i"}, b = {"a", "b", "c", "D", "e", "f", "g", "h", "x", "i"};
  const std::vector<std::string> expected = {"@@ -3,3 +3,3 @@", " c", "-d", "+D", " e",
                                             "@@ -8,2 +8,3 @@", " h", "+x", " i"};
  const LineDiff diff = diff_lines(a, b, {.context = 1});
  EXPECT_EQ(diff.lines, expected);
  EXPECT_EQ(diff.removed, 1U);
  EXPECT_EQ(diff.added, 2U);
  EXPECT_EQ(diff_lines(a, b, {.context = 0, .first_a = 10, .first_b = 20}).lines,
            (std::vector<std::string>{"@@ -14 +24 @@", "-d", "+D", "@@ -18,0 +29 @@", "+x"}));
  EXPECT_TRUE(diff_lines(a, a).lines.empty());
  EXPECT_EQ(diff_lines({}, b).added, b.size());
  EXPECT_EQ(diff_lines(a, {}).lines.front(), "@@ -1,9 +0,0 @@");
}

TEST(LineDiff, AppliedItGivesTheOtherText) {
  std::mt19937 random(7);
  const Lines words = {"a", "b", "", "    return x", "class A:"};
  for (int trial = 0; trial < 400; ++trial) {
    Lines a, b;
    const auto length = random() % 30;
    for (std::size_t i = 0; i < length; ++i) a.push_back(words[random() % words.size()]);
    for (const std::string_view line : a) {
      const auto what = random() % 8;
      if (what != 0) b.push_back(what == 1 ? words[random() % words.size()] : line);
      if (what == 2) b.push_back(words[random() % words.size()]);
    }
    const std::size_t first_a = random() % 3, first_b = random() % 3;
    const LineDiff diff = diff_lines(a, b, {.context = random() % 4, .first_a = first_a, .first_b = first_b});
    const std::vector<std::string> expected(b.begin(), b.end());
    ASSERT_EQ(applied(a, diff, first_a, first_b), expected) << trial;
  }
}

}  // namespace
}  // namespace tenscope::compare
