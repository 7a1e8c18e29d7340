#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "cli/commands.hpp"
#include "cli/names_table.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "core/json_writer.hpp"
#include "core/printable.hpp"
#include "core/suggest.hpp"
#include "report/table.hpp"
#include "report/values.hpp"
#include "store/run_folder.hpp"
#include "store/writer_groups.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

using namespace report;

constexpr std::size_t kMostRows = 500;  // on a terminal

struct LsOptions {
  std::string path;
  std::vector<std::string> patterns;
  bool all = false;
};

std::int64_t started_ns(const Reader& reader) {
  simdjson::dom::parser parser;
  std::int64_t started = 0;
  const std::string text(reader.run_json());
  if (parser.parse(text)["started_ns"].get_int64().get(started)) return 0;
  return started;
}

// "closed", "failed (ValueError)", "closed, 15 events lost".
Cell state_cell(const Reader& reader) {
  const Tone tone = tone_of(run_state(reader.writers()));
  return Cell(state_text(reader.writers()) + condition_of(reader), reader.problems().empty() ? tone : kBad);
}

std::string started_text(const Reader& reader) {
  const std::int64_t started = started_ns(reader);
  return started > 0 ? time_text(started) : "-";
}

void write_run(JsonWriter& json, const Reader& reader) {
  json.key("path").text(reader.path().string()).key("started_ns").number(started_ns(reader));
  json.key("events").number(static_cast<std::uint64_t>(reader.event_count()));
  json.key("size_bytes").number(size_on_disk(reader.path())).key("state");
  json.text(to_string(run_state(reader.writers()))).key("exception");
  const auto failed = std::find_if(reader.writers().begin(), reader.writers().end(),
                                   [](const WriterInfo& writer) { return writer.failed(); });
  failed == reader.writers().end() ? json.null() : json.text(failed->exception);
  write_losses(json, reader);
  json.key("problems").number(static_cast<std::uint64_t>(reader.problems().size()));
}

int list_all(const std::vector<std::filesystem::path>& runs, const Output& output) {
  Table table({{"run", Align::Left, Fit::Middle},
               {"started", Align::Left, Fit::Whole, 3},
               {"events", Align::Right, Fit::Whole, 2},
               {"size", Align::Right, Fit::Whole, 1},
               {"state", Align::Left, Fit::Words}});
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("runs").begin_array();
  std::optional<Progress> progress(std::in_place, output.progress, "reading runs");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    if (i > 0) progress->show(static_cast<double>(i) / static_cast<double>(runs.size()), run.string());
    try {
      const Reader reader(run);
      std::string described;
      JsonWriter one(described);
      one.begin_object();
      write_run(one, reader);
      one.end_object();
      table.add({run.string(), started_text(reader), grouped(static_cast<std::int64_t>(reader.event_count())),
                 bytes_text(size_on_disk(run)), state_cell(reader)});
      json.raw(described);
    } catch (const std::exception& error) {
      table.add({run.string(), "", "", "", Cell(fmt::format("cannot be read: {}", error.what()), kBad)});
      json.begin_object().key("path").text(run.string()).key("error").text(error.what()).end_object();
    }
  }
  progress.reset();
  json.end_array().end_object();
  if (output.json)
    print_json(text);
  else
    print_text(table.text(output.color, output.fitting()));
  return kFine;
}

void write_name(JsonWriter& json, const Reader& reader, const NameSummary& summary) {
  json.begin_object()
      .key("name")
      .text(summary.name)
      .key("events")
      .number(static_cast<std::uint64_t>(summary.events.size()));
  json.key("first_step").number(summary.first_step).key("last_step").number(summary.last_step);
  json.key("last").begin_object();
  const Event event = reader.event(summary.last());
  json.key("step").number(event.step).key("call").number(event.call);
  json.key(reader.is_tensor(summary.last()) ? "tensor" : "value");
  write_value(json, event.value);
  json.end_object().key("first_nonfinite");
  if (summary.nonfinite) {
    const Event bad = reader.event(*summary.nonfinite);
    const auto& stats = std::get<TensorRecord>(bad.value).stats;
    json.begin_object().key("step").number(bad.step).key("call").number(bad.call).key("nan").number(stats.nan);
    json.key("posinf").number(stats.pos_inf).key("neginf").number(stats.neg_inf).end_object();
  } else {
    json.null();
  }
  json.end_object();
}

int list_one(const Reader& reader, const LsOptions& options, const Output& output) {
  const std::vector<NameSummary> summaries = summarize(reader, options.patterns);
  for (const std::string& pattern : options.patterns) {
    const auto fits = [&](const NameSummary& one) { return matches_glob(one.name, pattern); };
    if (std::ranges::none_of(summaries, fits)) find_name(reader, pattern);  // throws, with a suggestion
  }
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    write_run(json, reader);
    json.key("writers").begin_array();
    for (const WriterInfo& writer : reader.writers()) {
      json.begin_object()
          .key("folder")
          .text(writer.folder)
          .key("rank")
          .number(writer.rank)
          .key("events")
          .number(writer.event_count);
      json.key("closed")
          .boolean(writer.closed)
          .key("repaired")
          .boolean(writer.repaired)
          .key("running")
          .boolean(writer.running)
          .key("dropped")
          .number(writer.dropped)
          .key("exception");
      writer.failed() ? json.text(writer.exception) : json.null();
      json.end_object();
    }
    json.end_array().key("names").begin_array();
    for (const NameSummary& summary : summaries) write_name(json, reader, summary);
    json.end_array().end_object();
    print_json(text);
    return kFine;
  }
  warn_of_problems(reader);
  const Cell state = state_cell(reader);
  print("{}  {}  {} events from {} writer{}  {}  {}\n", toned(reader.path().string(), kHeading, output.color),
        started_text(reader), grouped(static_cast<std::int64_t>(reader.event_count())), reader.writers().size(),
        reader.writers().size() == 1 ? "" : "s", bytes_text(size_on_disk(reader.path())),
        toned(state.text, state.tone, output.color));
  if (reader.writers().size() > 1)
    for (const auto& [writers, ending] : store::writers_by_state(reader)) print("  {}: {}\n", writers, ending);
  print_text("\n");
  if (summaries.empty()) {
    print_text("no values were recorded\n");
    return kFine;
  }
  std::vector<NameRow> rows = name_rows(summaries, reader, !options.all);
  const std::size_t count = rows.size();
  if (!options.all && output.is_fitted && count > kMostRows)
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(kMostRows), rows.end());
  print_text(names_table(rows, reader, output.fitting()).text(output.color, output.fitting()));
  const std::string shown = rows.size() < count ? fmt::format(", the first {} are shown", rows.size()) : "";
  if (rows.size() < summaries.size())
    print("{}\n", toned(fmt::format("{} names in {} rows{}; --all lists each", summaries.size(), count, shown), kFaint,
                        output.color));
  return kFine;
}

}  // namespace

Action prepare_ls(CLI::App& app) {
  auto options = std::make_shared<LsOptions>();
  app.add_option("path", options->path, "A run, or a folder of runs (default: runs/, else this folder)");
  app.add_option("names", options->patterns, "Only names that match one of these patterns: * and ? stand for anything");
  app.add_flag("--all", options->all,
               "A row for each name: layers that repeat are not folded into one, and none are left out");
  return [options](const Output& output) {
    const auto path = find_run_folder(options->path.empty() ? default_runs() : options->path);
    const auto runs = list_runs(path);
    if (runs.empty())
      throw Error(ErrorCode::NotFound,
                  fmt::format("there is no run in '{}'{}", path.string(), store::part_of_run(path)));
    const bool is_one = runs.size() == 1 && (runs.front() == path || !options->patterns.empty());
    return is_one ? list_one(Reader(runs.front()), *options, output) : list_all(runs, output);
  };
}

}  // namespace tenscope::cli
