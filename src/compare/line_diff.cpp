#include "compare/line_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "compare/sequence.hpp"

namespace tenscope::compare {
namespace {

using Lines = std::span<const std::string_view>;

// A range of lines that is replaced by another; one of them may be empty.
struct Change {
  std::size_t a = 0, a_end = 0, b = 0, b_end = 0;
};

std::vector<std::uint64_t> tokens_of(Lines lines) {
  std::vector<std::uint64_t> tokens;
  for (const std::string_view line : lines) tokens.push_back(std::hash<std::string_view>{}(line) | 1U);
  return tokens;
}

std::vector<Change> changes_between(Lines a, Lines b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t before = 0, behind = 0;
  while (before < shorter && a[before] == b[before]) ++before;
  while (behind < shorter - before && a[a.size() - behind - 1] == b[b.size() - behind - 1]) ++behind;
  const Lines middle_a = a.subspan(before, a.size() - before - behind),
              middle_b = b.subspan(before, b.size() - before - behind);
  const auto score = [&](std::size_t i, std::size_t j) { return middle_a[i] == middle_b[j] ? 1 : 0; };
  auto pairs = align_sequences(tokens_of(middle_a), tokens_of(middle_b), score).pairs;
  pairs.emplace_back(middle_a.size(), middle_b.size());
  std::vector<Change> changes;
  std::size_t i = 0, j = 0;
  for (const auto& [next_a, next_b] : pairs) {
    if (next_a > i || next_b > j) changes.push_back({before + i, before + next_a, before + j, before + next_b});
    i = next_a + 1;
    j = next_b + 1;
  }
  return changes;
}

// "20,5": as diff has it, an empty range is named by the line before it.
std::string range_text(std::size_t begin, std::size_t end, std::size_t first) {
  const std::size_t count = end - begin, line = first + begin + (count > 0 ? 1 : 0);
  return count == 1 ? fmt::format("{}", line) : fmt::format("{},{}", line, count);
}

}  // namespace

LineDiff diff_lines(Lines a, Lines b, const LineDiffOptions& options) {
  LineDiff result;
  const std::vector<Change> changes = changes_between(a, b);
  const auto put = [&](char mark, std::string_view line) { result.lines.push_back(fmt::format("{}{}", mark, line)); };
  for (std::size_t i = 0; i < changes.size();) {
    std::size_t last = i;  // changes whose contexts meet are one hunk
    while (last + 1 < changes.size() && changes[last + 1].a - changes[last].a_end <= 2 * options.context) ++last;
    const std::size_t lead = std::min(options.context, changes[i].a),
                      trail = std::min(options.context, a.size() - changes[last].a_end);
    result.lines.push_back(fmt::format("@@ -{} +{} @@",
                                       range_text(changes[i].a - lead, changes[last].a_end + trail, options.first_a),
                                       range_text(changes[i].b - lead, changes[last].b_end + trail, options.first_b)));
    std::size_t at = changes[i].a - lead;
    for (; i <= last; ++i) {
      const Change& change = changes[i];
      for (; at < change.a; ++at) put(' ', a[at]);
      for (; at < change.a_end; ++at) put('-', a[at]);
      for (std::size_t j = change.b; j < change.b_end; ++j) put('+', b[j]);
      result.removed += change.a_end - change.a;
      result.added += change.b_end - change.b;
    }
    for (const std::size_t end = at + trail; at < end; ++at) put(' ', a[at]);
  }
  return result;
}

}  // namespace tenscope::compare
