#include "store/writer_account.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

constexpr std::string_view kRingReason = "the oldest were dropped to keep within the budget";

std::string meta_text(std::string_view meta, std::string_view key) {
  simdjson::dom::parser parser;
  std::string_view text;
  if (parser.parse(simdjson::padded_string(meta))[key].get_string().get(text)) return {};
  return std::string(text);
}

bool is_there(const fs::path& folder, std::int64_t number) {
  std::error_code error;  // an open segment may be sealed, and so renamed, at any moment
  return fs::exists(segment_path(folder, number, true), error) ||
         fs::exists(segment_path(folder, number, false), error);
}

}  // namespace

void WriterAccount::add(const EventHead& head, std::string_view name, std::string_view line, std::uint64_t offset,
                        EventParser& parser) {
  if (!std::exchange(has_events_, true)) first_seq_ = head.seq;
  is_closed_ = is_repaired_ = false;
  if (head.is_tensor) return add_tensor(head);
  if (head.kind == EventKind::Note) return add_note(name, line, parser);
  if (head.kind != EventKind::Dropped) return;
  const auto [found, is_new] = dropped_.try_emplace(std::string(name), Dropped{.offset = offset});
  std::int64_t count = 0;
  try {
    const Event event = parser.parse(line);
    if (const auto* number = std::get_if<std::int64_t>(&event.value)) count = *number;
  } catch (const Error&) {
    // That there is such an event says enough.
  }
  found->second.events += static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
}

void WriterAccount::add_tensor(const EventHead& head) {
  if (head.segment >= 0)
    ++tensors_in_[head.segment];
  else if (head.is_cut)
    ++cut_tensors_;
  else if (has_budget_note_ && !head.has_file)
    ++unmarked_cut_tensors_;
}

void WriterAccount::add_note(std::string_view name, std::string_view line, EventParser& parser) {
  is_closed_ = name == kClosedNote;
  is_repaired_ = name == kRepairedNote;
  has_budget_note_ |= name == kBudgetNote;
  if (name != kExceptionNote && name != kSignalNote) return;
  try {
    const Event event = parser.parse(line);
    const auto* value = std::get_if<std::string>(&event.value);
    const std::string_view text = value == nullptr ? std::string_view() : *value;  // "Class: message"
    const std::size_t colon = std::min(text.find(": "), text.size());
    exception_ = meta_text(event.meta, "class");
    exception_message_ = meta_text(event.meta, "message");
    if (exception_.empty()) exception_ = text.substr(0, colon);
    if (exception_message_.empty() && colon < text.size()) exception_message_ = text.substr(colon + 2);
  } catch (const Error&) {
    exception_.clear();
  }
  if (exception_.empty()) exception_ = name;
}

void WriterAccount::finish(const fs::path& folder, bool is_ring, WriterInfo& info, std::vector<Loss>& losses,
                           std::vector<Problem>& problems) const {
  info.closed = is_closed_;
  info.repaired = is_repaired_;
  info.exception = exception_;
  info.exception_message = exception_message_;
  for (const auto& [reason, dropped] : dropped_) {
    const bool is_limit = reason == kWatchLimit || reason == kBudgetNote;
    losses.push_back({.writer = info.folder,
                      .events = dropped.events,
                      .reason = reason,
                      .is_limit = is_limit,
                      .is_exact = info.closed});
    if (is_limit) continue;
    info.dropped += dropped.events;
    problems.push_back({folder / kJournalFile, dropped.offset, to_string(losses.back()), ProblemKind::Loss});
  }
  const std::uint64_t cut = cut_tensors_ > 0 ? cut_tensors_ : unmarked_cut_tensors_;
  if (cut > 0)
    losses.push_back({.writer = info.folder, .tensors = cut, .reason = std::string(kBudgetNote), .is_limit = true});
  if (is_ring && first_seq_ > 0)
    losses.push_back(
        {.writer = info.folder, .events = first_seq_, .reason = std::string(kRingReason), .is_limit = true});
  find_missing_segments(folder, is_ring, info, losses, problems);
}

void WriterAccount::find_missing_segments(const fs::path& folder, bool is_ring, const WriterInfo& info,
                                          std::vector<Loss>& losses, std::vector<Problem>& problems) const {
  std::map<std::int64_t, std::uint64_t> missing;
  for (const auto& [number, tensors] : tensors_in_)
    if (!is_there(folder, number)) missing.emplace(number, tensors);
  std::uint64_t dropped = 0;
  for (const auto& [number, tensors] : missing) {
    dropped += tensors;
    if (is_ring) continue;
    const fs::path path = segment_path(folder, number, false);
    losses.push_back(
        {.writer = info.folder, .tensors = tensors, .reason = fmt::format("{} is missing", path.filename().string())});
    problems.push_back({path, 0,
                        fmt::format("it is missing, with the bytes of {} tensor{}", tensors, tensors == 1 ? "" : "s"),
                        ProblemKind::Loss});
  }
  if (is_ring && dropped > 0)
    losses.push_back({.writer = info.folder, .tensors = dropped, .reason = std::string(kRingReason), .is_limit = true});
}

}  // namespace tenscope::store

namespace tenscope {

std::string to_string(const Loss& loss) {
  const auto count = [](std::uint64_t number, std::string_view what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  std::string what;
  if (loss.events > 0) what = (loss.is_exact ? "" : "at least ") + count(loss.events, "event");
  if (loss.tensors > 0)
    what += fmt::format("{}the bytes of {}", what.empty() ? "" : " and ", count(loss.tensors, "tensor"));
  const bool is_one = what.empty() || (loss.events == 1 && loss.tensors == 0);
  if (what.empty()) what = "everything";
  return fmt::format("{}: {} {} {}: {}", loss.writer, what, is_one ? "was" : "were",
                     loss.is_limit ? "left out" : "lost", loss.reason);
}

namespace {
RunState state_of(const WriterInfo& writer) noexcept {
  if (writer.running) return RunState::Running;
  if (!writer.closed && !writer.repaired) return RunState::Crashed;
  if (writer.failed()) return RunState::Failed;
  return writer.closed ? RunState::Closed : RunState::Repaired;
}
}  // namespace

RunState run_state(Span<const WriterInfo> writers) noexcept {
  RunState worst = RunState::Empty;
  for (const WriterInfo& writer : writers) {
    worst = std::max(worst, state_of(writer));
  }
  return worst;
}

std::string_view to_string(RunState state) noexcept {
  switch (state) {
    case RunState::Empty:
      return "empty";
    case RunState::Closed:
      return "closed";
    case RunState::Repaired:
      return "repaired";
    case RunState::Running:
      return "running";
    case RunState::Failed:
      return "failed";
    case RunState::Crashed:
      return "crashed";
  }
  return "";
}

std::string state_text(Span<const WriterInfo> writers) {
  const RunState state = run_state(writers);
  if (state != RunState::Failed) return std::string(to_string(state));
  for (const WriterInfo& writer : writers)
    if (state_of(writer) == RunState::Failed) return fmt::format("failed ({})", writer.exception);
  return "failed";
}

}  // namespace tenscope
