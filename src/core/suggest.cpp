#include "core/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tenscope {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Words of the same kind are near when a third of their letters may be wrong; a part of a longer name counts as near,
// too.
constexpr std::size_t kFar = 1000;

// As much of a dotted name as has the levels of `word`: "blocks.0.attn" of "blocks.0.attn.output" for "blocks.0.atn".
std::string_view upper_levels(std::string_view candidate, std::string_view word) {
  auto dots = std::ranges::count(word, '.');
  for (std::size_t at = 0; at < candidate.size(); ++at)
    if (candidate[at] == '.' && dots-- == 0) return candidate.substr(0, at);
  return candidate;
}

std::size_t distance(std::string_view word, std::string_view candidate) {
  constexpr std::string_view kDashes = "--";
  if (word.starts_with(kDashes) && candidate.starts_with(kDashes)) {  // options: what they share says nothing
    word.remove_prefix(kDashes.size());
    candidate.remove_prefix(kDashes.size());
  }
  std::size_t edits = edit_distance(word, candidate);
  const std::string_view upper = upper_levels(candidate, word);
  if (const std::size_t above = edit_distance(word, upper); upper.size() < candidate.size() && above <= word.size() / 4)
    edits = std::min(edits, above + 1);
  if (edits <= std::max(word.size(), candidate.size()) / 3 + 1 && edits < std::max(word.size(), candidate.size())) {
    return edits;
  }
  return word.size() >= 2 && candidate.find(word) != std::string_view::npos ? kFar / 2 + candidate.size() : kFar;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates, std::size_t limit) {
  constexpr std::size_t kLongest = 256;  // nobody types a longer one, and it would hide the message
  std::vector<std::pair<std::size_t, const std::string*>> scored;
  const std::string wanted = lower(word.substr(0, kLongest));
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t score = distance(wanted, lower(candidate));
    if (score < kFar) scored.emplace_back(score, &candidate);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (const auto& [score, candidate] : scored)
    if (result.size() < limit && std::ranges::find(result, *candidate) == result.end()) result.push_back(*candidate);
  return result;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::vector<std::string> near = nearest(word, candidates);
  std::string result;
  for (std::size_t i = 0; i < near.size(); ++i) {
    const std::string_view joint = i == 0 ? "; did you mean " : i + 1 == near.size() ? " or " : ", ";
    result += fmt::format("{}'{}'", joint, near[i]);
  }
  return result.empty() ? result : result + "?";
}

}  // namespace tenscope
