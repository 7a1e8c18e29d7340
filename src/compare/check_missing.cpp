#include "compare/check_missing.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "compare/not_seen.hpp"
#include "core/printable.hpp"
#include "store/writer_groups.hpp"

namespace tenscope::compare {

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
  std::set<std::string> exceptions;
  for (const EventId id : reader.find({.name = std::string(kExceptionNote), .kind = EventKind::Note})) {
    const Event event = reader.event(id);
    if (const auto* text = std::get_if<std::string>(&event.value)) exceptions.insert(*text);
  }
  for (const std::string& exception : exceptions)
    report.notes.push_back(fmt::format("the program ended by {}", exception));
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
