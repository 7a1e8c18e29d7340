#include "compare/check_missing.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compare/not_seen.hpp"
#include "core/printable.hpp"
#include "store/writer_groups.hpp"

namespace tenscope::compare {
namespace {

// Programs that did not end well. An exit code is no failure: many programs answer by it.
void find_failures(const Reader& reader, CheckReport& report) {
  std::map<std::string, std::vector<std::string>> writers;  // by what ended them
  for (const WriterInfo& writer : reader.writers())
    if (writer.failed())
      writers[writer.exception + (writer.exception_message.empty() ? "" : ": " + writer.exception_message)].push_back(
          writer.folder);
  for (const auto& [exception, folders] : writers) {
    const bool is_all = folders.size() == reader.writers().size();
    report.failures.push_back(
        fmt::format("{} failed: {}", is_all ? "the program" : store::writers_text(folders, reader), exception));
  }
  std::set<std::int64_t> codes;
  for (const EventId id : reader.find({.name = std::string(kExitNote), .kind = EventKind::Note})) {
    const Event event = reader.event(id);
    if (const auto* code = std::get_if<std::int64_t>(&event.value)) codes.insert(*code);
  }
  for (const std::int64_t code : codes)
    report.notes.push_back(fmt::format("the program ended with exit code {}", code));
}

}  // namespace

void find_missing(const Reader& reader, CheckReport& report) {
  std::vector<std::string> running, crashed, repaired;
  for (const WriterInfo& writer : reader.writers())
    if (writer.running || !writer.closed)
      (writer.running ? running : writer.repaired ? repaired : crashed).push_back(writer.folder);
  if (!running.empty())
    report.notes.push_back(fmt::format("{} {} still being written", store::writers_text(running, reader),
                                       running.size() == 1 ? "is" : "are"));
  for (const auto* group : {&crashed, &repaired})
    if (!group->empty()) {
      const bool is_one = group->size() == 1;
      report.missing.push_back(fmt::format("{} {} cut off by a crash{}: what came after {} is unknown",
                                           store::writers_text(*group, reader), is_one ? "was" : "were",
                                           group == &repaired ? " and repaired since" : "",
                                           is_one ? "its last event" : "their last events"));
    }
  std::vector<Problem> damage;
  for (const Problem& problem : reader.problems())
    if (problem.kind != ProblemKind::Loss) damage.push_back(problem);
  if (!damage.empty())
    report.missing.push_back(fmt::format("{} damaged place{} in the recording; the first: {} at offset {}: {}",
                                         damage.size(), damage.size() == 1 ? "" : "s", damage.front().reason,
                                         damage.front().offset, damage.front().file.string()));
  for (const Loss& loss : store::folded_losses(reader))
    (loss.is_limit ? report.notes : report.missing).push_back(to_string(loss));
  find_failures(reader, report);
  std::set<std::string> unseen;
  for (const EventId id : reader.find({.name = std::string(kNotSeenNote), .kind = EventKind::Note})) {
    const Event event = reader.event(id);
    unseen.insert(fmt::format("not seen{}: {}", event.scope.empty() ? "" : " in " + printable(event.scope),
                              not_seen_in_words(event.meta)));
  }
  constexpr std::size_t kMost = 5;
  std::size_t said = 0;
  for (const std::string& note : unseen)
    if (said++ < kMost) report.notes.push_back(note);
  if (unseen.size() > kMost) report.notes.push_back(fmt::format("{} more were not seen", unseen.size() - kMost));
}

}  // namespace tenscope::compare
