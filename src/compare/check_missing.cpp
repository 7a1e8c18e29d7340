#include "compare/check_missing.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

namespace tenscope::compare {

void find_missing(const Reader& reader, CheckReport& report) {
  for (const WriterInfo& writer : reader.writers()) {
    if (writer.running)
      report.notes.push_back(fmt::format("{} is still being written", writer.folder));
    else if (!writer.closed)
      report.missing.push_back(fmt::format("{} was cut off by a crash{}: what came after its last event is unknown",
                                           writer.folder, writer.repaired ? " and repaired since" : ""));
  }
  if (const auto problems = reader.problems(); !problems.empty())
    report.missing.push_back(fmt::format("{} damaged place{} in the recording; the first: {} at offset {}: {}",
                                         problems.size(), problems.size() == 1 ? "" : "s", problems.front().reason,
                                         problems.front().offset, problems.front().file.string()));
  std::map<std::string, std::int64_t> dropped;
  for (const EventId id : reader.find({.kind = EventKind::Dropped})) {
    const Event event = reader.event(id);
    if (const auto* count = std::get_if<std::int64_t>(&event.value)) dropped[event.name] += *count;
  }
  for (const auto& [reason, count] : dropped)
    report.missing.push_back(fmt::format("{} events were not recorded: {}", count, reason));
  std::set<std::string> unseen;
  for (const EventId id : reader.find({.name = "not_seen", .kind = EventKind::Note})) {
    const Event event = reader.event(id);
    unseen.insert(fmt::format("not seen: {}{}{}", event.scope, event.scope.empty() ? "" : " ", event.meta));
  }
  constexpr std::size_t kMost = 5;
  std::size_t said = 0;
  for (const std::string& note : unseen)
    if (said++ < kMost) report.notes.push_back(note);
  if (unseen.size() > kMost) report.notes.push_back(fmt::format("{} more were not seen", unseen.size() - kMost));
}

}  // namespace tenscope::compare
