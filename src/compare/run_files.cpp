// diff_runs: the comparison on run folders.
#include <future>
#include <optional>

#include "compare/rows.hpp"
#include "compare/run_diff.hpp"
#include "compare/run_values.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;
using compare::Item;

void note_state(const Reader& reader, int side, RunDiff& diff) {
  for (const Problem& problem : reader.problems())
    if (problem.kind != ProblemKind::Loss)
      diff.notes.push_back({.kind = DiffNote::Kind::Damage,
                            .side = side,
                            .subject = problem.file.string(),
                            .a = problem.reason,
                            .count = problem.offset});
  for (const Loss& loss : reader.losses())
    diff.notes.push_back({.kind = DiffNote::Kind::Lost, .side = side, .a = to_string(loss)});
  for (const WriterInfo& writer : reader.writers())
    if (!writer.closed && !writer.repaired)
      diff.notes.push_back({.kind = DiffNote::Kind::NotClosed, .side = side, .subject = writer.folder});
}

}  // namespace

namespace compare {

bool is_run_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !list_runs(path).empty();
}

}  // namespace compare

RunDiff diff_runs(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  if (!options.rows.empty()) return compare::diff_by_rows(a, b, options);
  // The second run is read by another thread, with an interner of its own.
  compare::Interner interner, interner_b;
  std::optional<Reader> opened_b;
  compare::Timeline timeline_b;
  std::future<void> reading_b = std::async(std::launch::async, [&] {
    opened_b.emplace(b);
    timeline_b = compare::read_timeline(*opened_b, interner_b);
  });
  const Reader reader_a(a);
  const compare::Timeline timeline_a = compare::read_timeline(reader_a, interner);
  reading_b.get();
  const Reader& reader_b = *opened_b;
  compare::translate(timeline_b, interner_b, interner);
  compare::RunValues values(reader_a, reader_b, interner);
  const compare::ContentSource content = values.content_source();
  RunDiff diff = compare::diff_timelines(
      timeline_a, timeline_b, interner,
      {.pair = [&](const Item& x, const Item& y) { return values.measure(x, y); },
       .update = [&](const auto& x, const auto& y) { return values.measure_update(x, y); },
       .distribution = [&](const Item& x, const Item& y) { return values.measure_distribution(x, y); },
       .is_same_mask = [&](const Item& x, const Item& y) { return values.is_same_mask(x, y); }},
      {.pair = [&](const Item& x, const Item& y) { return values.describe(x, y); },
       .update = [&](const auto& x, const auto& y) { return values.describe_update(x, y); }},
      options, &content);
  diff.a = reader_a.path().string();
  diff.b = reader_b.path().string();
  note_state(reader_a, 0, diff);
  note_state(reader_b, 1, diff);
  return diff;
}

}  // namespace tenscope
