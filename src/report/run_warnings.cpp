#include "report/run_warnings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "store/writer_groups.hpp"

namespace tenscope::report {
namespace {

bool is_damage(const Problem& problem) { return problem.kind == ProblemKind::Damage; }

}  // namespace

std::size_t count_damage(const Reader& reader) {
  return static_cast<std::size_t>(std::count_if(reader.problems().begin(), reader.problems().end(), is_damage));
}

std::vector<std::string> run_warnings(const Reader& reader) {
  std::vector<std::string> warnings;
  if (const std::size_t damaged = count_damage(reader); damaged > 0) {
    const Problem& first = *std::find_if(reader.problems().begin(), reader.problems().end(), is_damage);
    warnings.push_back(
        fmt::format("the run is damaged in {} place{}, shown is what is whole; tenscope verify tells all: {}: {}",
                    damaged, damaged == 1 ? "" : "s", first.reason, first.file.string()));
  }
  for (const Loss& loss : store::folded_losses(reader))
    warnings.push_back(fmt::format("the run is not complete: {}", to_string(loss)));
  std::vector<std::string> running, crashed;
  for (const WriterInfo& writer : reader.writers()) {
    if (writer.running)
      running.push_back(writer.folder);
    else if (!writer.closed && !writer.repaired)
      crashed.push_back(writer.folder);
  }
  if (!running.empty())
    warnings.push_back(fmt::format("{} {} still being written: shown is what there is so far",
                                   store::writers_text(running, reader), running.size() == 1 ? "is" : "are"));
  if (!crashed.empty())
    warnings.push_back(fmt::format("{} {} in a crash: {} last events may be missing",
                                   store::writers_text(crashed, reader), crashed.size() == 1 ? "ends" : "end",
                                   crashed.size() == 1 ? "its" : "their"));
  if (reader.writers().empty()) warnings.emplace_back("the run is empty: no process recorded anything");
  return warnings;
}

}  // namespace tenscope::report
