// The words of runs that are laid out differently.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

std::string whose(int rank, std::int64_t pass) {
  return pass < 0 ? fmt::format("rank {}", rank) : fmt::format("rank {}, pass {}", rank, pass);
}

}  // namespace

std::vector<std::string> assembly_in_words(const DiffMetrics& metrics) {
  std::vector<std::string> lines;
  if (!metrics.assembled_a.empty()) lines.push_back("a: " + metrics.assembled_a);
  if (!metrics.assembled_b.empty()) lines.push_back("b: " + metrics.assembled_b);
  return lines;
}

std::vector<std::string> parts_in_words(const DiffMetrics& metrics) {
  std::vector<std::string> lines;
  if (metrics.is_sum_missing)
    lines.emplace_back("every rank has a summand: added up they agree, but the sum over ranks is missing");
  constexpr std::size_t kListed = 4;
  std::size_t others = 0;
  for (const DiffPart& part : metrics.parts) {
    if (lines.size() >= kListed) {
      ++others;
      continue;
    }
    std::string line = whose(part.rank, part.pass);
    if (part.like >= 0) {
      line += fmt::format(" has the part of {}", whose(part.like, part.like_pass));
    } else {
      line += std::isfinite(part.rel_l2) ? fmt::format(" is off: rel. L2 {:.2g}", part.rel_l2) : " is off";
    }
    if (part.run == 0) line += " (first run)";
    lines.push_back(std::move(line));
  }
  if (others > 0) lines.push_back(fmt::format("... and {}", plural(others, "more part")));
  return lines;
}

std::string layout_note_in_words(const DiffNote& note) {
  if (note.kind == DiffNote::Kind::OtherLayout)
    return fmt::format("the runs are laid out differently, {} against {}: tensors were put together of their parts",
                       note.a, note.b);
  if (note.kind == DiffNote::Kind::OnlyByRanks)
    return fmt::format(
        "ranks were compared one by one, and no whole tensors, as is done for up to {} ranks: work that the ranks "
        "share in another way (gradients averaged at another moment) differs as well",
        note.count);
  return fmt::format("the parts of {}{} could not be put together: this says nothing of them", note.subject,
                     note.count > 1 ? fmt::format(" and {}", plural(note.count - 1, "more tensor")) : "");
}

}  // namespace tenscope::report
