// Overview. Short sequences are aligned exactly, by dynamic programming over all pairs (Needleman and Wunsch with free
// gaps). Long ones are cut first: members whose token is unique on both sides are candidates for anchors, the longest
// chain of them that is in order on both sides is kept (as in Hunt and Szymanski), and what lies between two anchors
// is aligned exactly, or in slices where it is still too long.
#include "compare/sequence.hpp"

#include <algorithm>
#include <unordered_map>

namespace tenscope::compare {
namespace {

constexpr std::size_t kMaxCells = 1U << 22;

struct Range {
  std::size_t a, a_end, b, b_end;
  std::size_t rows() const { return a_end - a; }
  std::size_t columns() const { return b_end - b; }
};

void align_exactly(const Range& range, const Score& score, std::vector<IndexPair>& pairs) {
  const std::size_t rows = range.rows(), columns = range.columns(), width = columns + 1;
  std::vector<int> best((rows + 1) * width, 0), fit(rows * columns);
  for (std::size_t i = rows; i-- > 0;)
    for (std::size_t j = columns; j-- > 0;) {
      fit[i * columns + j] = score(range.a + i, range.b + j);
      int value = std::max(best[(i + 1) * width + j], best[i * width + j + 1]);
      if (fit[i * columns + j] > 0) value = std::max(value, best[(i + 1) * width + j + 1] + fit[i * columns + j]);
      best[i * width + j] = value;
    }
  for (std::size_t i = 0, j = 0; i < rows && j < columns;) {
    const int value = best[i * width + j], pair_fit = fit[i * columns + j];
    if (pair_fit > 0 && value == best[(i + 1) * width + j + 1] + pair_fit)
      pairs.emplace_back(range.a + i++, range.b + j++);
    else if (value == best[(i + 1) * width + j])
      ++i;
    else
      ++j;
  }
}

void align_in_slices(const Range& range, const Score& score, SequenceAlignment& result) {
  if (range.rows() == 0 || range.columns() == 0) return;
  const std::size_t slices = (range.rows() * range.columns() + kMaxCells - 1) / kMaxCells;
  result.is_rough |= slices > 1;
  for (std::size_t s = 0; s < slices; ++s)
    align_exactly({range.a + range.rows() * s / slices, range.a + range.rows() * (s + 1) / slices,
                   range.b + range.columns() * s / slices, range.b + range.columns() * (s + 1) / slices},
                  score, result.pairs);
}

// Positions of the tokens that occur exactly once.
std::unordered_map<std::uint64_t, std::size_t> unique_tokens(std::span<const std::uint64_t> tokens) {
  std::unordered_map<std::uint64_t, std::size_t> found;
  std::unordered_map<std::uint64_t, std::size_t> count;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] != 0 && ++count[tokens[i]] == 1) found[tokens[i]] = i;
  std::erase_if(found, [&](const auto& entry) { return count[entry.first] > 1; });
  return found;
}

std::vector<IndexPair> anchors(std::span<const std::uint64_t> tokens_a, std::span<const std::uint64_t> tokens_b) {
  const auto in_a = unique_tokens(tokens_a), in_b = unique_tokens(tokens_b);
  std::vector<IndexPair> candidates;
  for (std::size_t i = 0; i < tokens_a.size(); ++i) {
    const auto a = in_a.find(tokens_a[i]);
    const auto b = in_b.find(tokens_a[i]);
    if (a != in_a.end() && a->second == i && b != in_b.end()) candidates.emplace_back(i, b->second);
  }
  // The longest chain that is ascending in b: ends[k] is the candidate that ends the best chain of length k + 1.
  std::vector<std::size_t> ends, previous(candidates.size());
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const auto place = std::lower_bound(ends.begin(), ends.end(), candidates[c].second,
                                        [&](std::size_t end, std::size_t b) { return candidates[end].second < b; });
    previous[c] = place == ends.begin() ? c : *(place - 1);
    if (place == ends.end())
      ends.push_back(c);
    else
      *place = c;
  }
  std::vector<IndexPair> chain;
  if (ends.empty()) return chain;
  for (std::size_t c = ends.back();; c = previous[c]) {
    chain.push_back(candidates[c]);
    if (previous[c] == c) break;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace

SequenceAlignment align_sequences(std::span<const std::uint64_t> tokens_a, std::span<const std::uint64_t> tokens_b,
                                  const Score& score) {
  SequenceAlignment result;
  const Range all{0, tokens_a.size(), 0, tokens_b.size()};
  if (all.rows() * all.columns() <= kMaxCells) {
    align_exactly(all, score, result.pairs);
    return result;
  }
  Range gap{0, 0, 0, 0};
  for (const auto& [a, b] : anchors(tokens_a, tokens_b)) {
    if (score(a, b) <= 0) continue;
    gap.a_end = a;
    gap.b_end = b;
    align_in_slices(gap, score, result);
    result.pairs.emplace_back(a, b);
    gap.a = a + 1;
    gap.b = b + 1;
  }
  gap.a_end = all.a_end;
  gap.b_end = all.b_end;
  align_in_slices(gap, score, result);
  return result;
}

}  // namespace tenscope::compare
