#include "store/writer_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "store/run_folder.hpp"

namespace tenscope::store {
namespace {

constexpr std::size_t kWidth = 48;

// Ranks in a row as one: its first and its last.
std::vector<std::pair<int, int>> stretches_of(const std::vector<int>& ranks) {
  std::vector<std::pair<int, int>> stretches;
  for (const int rank : ranks) {
    if (!stretches.empty() && rank == stretches.back().second + 1)
      stretches.back().second = rank;
    else
      stretches.emplace_back(rank, rank);
  }
  return stretches;
}

// As many as fit into a line, at least one; `sizes` says how many writers each stands for.
std::string joined(const std::vector<std::string>& texts, const std::vector<std::size_t>& sizes) {
  std::string line;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0 && line.size() + 2 + texts[i].size() > kWidth) {
      std::size_t left = 0;
      for (std::size_t j = i; j < sizes.size(); ++j) left += sizes[j];
      return fmt::format("{} and {} more", line, left);
    }
    line += (i > 0 ? ", " : "") + texts[i];
  }
  return line;
}

}  // namespace

std::string writers_text(const std::vector<std::string>& folders, const Reader& reader) {
  if (folders.size() == 1) return folders.front();
  std::vector<int> ranks;
  bool has_children = false;
  for (const std::string& folder : folders) {
    const auto parsed = parse_writer_folder(folder);
    has_children |= !parsed || parsed->pid != 0;
    ranks.push_back(parsed ? parsed->rank : 0);
  }
  int count = 0;  // of the run's ranks
  for (const WriterInfo& writer : reader.writers()) count = std::max(count, writer.rank + 1);
  for (const int rank : ranks) count = std::max(count, rank + 1);
  const bool are_all_two = folders.size() == 2 && count == 2;
  if (has_children || are_all_two) return joined(folders, std::vector<std::size_t>(folders.size(), 1));
  std::sort(ranks.begin(), ranks.end());
  if (stretches_of(ranks).size() == 1 && ranks.size() > 2)
    return fmt::format("rank-{} … rank-{}", ranks.front(), ranks.back());
  return fmt::format("{} of {}", ranks_text(ranks), count);
}

std::string ranks_text(const std::vector<int>& ranks) {
  const auto stretches = stretches_of(ranks);
  std::vector<std::string> texts;
  std::vector<std::size_t> sizes;
  for (const auto& [first, last] : stretches) {
    texts.push_back(first == last ? fmt::format("{}", first)
                                  : fmt::format("{}{}{}", first, last == first + 1 ? ", " : "-", last));
    sizes.push_back(static_cast<std::size_t>(last - first + 1));
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", joined(texts, sizes));
}

std::vector<std::pair<std::string, std::string>> writers_by_state(const Reader& reader) {
  std::map<std::pair<int, std::string>, std::vector<std::string>> groups;
  for (const WriterInfo& writer : reader.writers()) {
    const Span<const WriterInfo> one(&writer, 1);
    groups[{-static_cast<int>(run_state(one)), state_text(one)}].push_back(writer.folder);
  }
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [state, folders] : groups) result.emplace_back(writers_text(folders, reader), state.second);
  return result;
}

std::vector<Loss> folded_losses(const Reader& reader) {
  std::vector<Loss> result;
  std::vector<std::vector<std::string>> writers;
  std::map<std::tuple<std::string, bool, bool, bool, bool>, std::size_t> places;
  for (const Loss& loss : reader.losses()) {
    const auto [place, is_new] = places.try_emplace(
        {loss.reason, loss.is_limit, loss.is_exact, loss.events > 0, loss.tensors > 0}, result.size());
    if (is_new) {
      result.push_back(loss);
      writers.push_back({loss.writer});
      continue;
    }
    Loss& folded = result[place->second];
    folded.events += loss.events;
    folded.tensors += loss.tensors;
    writers[place->second].push_back(loss.writer);
  }
  for (std::size_t i = 0; i < result.size(); ++i) result[i].writer = writers_text(writers[i], reader);
  return result;
}

}  // namespace tenscope::store
