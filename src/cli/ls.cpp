#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "core/json_writer.hpp"
#include "core/suggest.hpp"
#include "report/table.hpp"
#include "report/values.hpp"
#include "store/writer_groups.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

using namespace report;

struct LsOptions {
  std::string path;
  std::string pattern;
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
  const RunState state = run_state(reader.writers());
  const bool is_bad = state == RunState::Crashed || state == RunState::Failed || !reader.problems().empty();
  return Cell(state_text(reader.writers()) + condition_of(reader), is_bad                       ? Tone::Red
                                                                   : state == RunState::Running ? Tone::Green
                                                                                                : Tone::Plain);
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
  Table table({{"run"}, {"started"}, {"events", Align::Right}, {"size", Align::Right}, {"state"}});
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("runs").begin_array();
  for (const auto& run : runs) {
    try {
      const Reader reader(run);
      table.add({run.string(), time_text(started_ns(reader)), std::to_string(reader.event_count()),
                 bytes_text(size_on_disk(run)), state_cell(reader)});
      json.begin_object();
      write_run(json, reader);
      json.end_object();
    } catch (const Error& error) {
      table.add({run.string(), "", "", "", Cell(error.what(), Tone::Red)});
      json.begin_object().key("path").text(run.string()).key("error").text(error.what()).end_object();
    }
  }
  json.end_array().end_object();
  fmt::print("{}", output.json ? text + "\n" : table.text(output.color));
  return kFine;
}

// All events of one name.
struct NameSummary {
  std::string name;
  std::uint64_t events = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  EventId last = 0;
  std::optional<EventId> nonfinite;  // the first with NaN or Inf
};

std::vector<NameSummary> summarize(const Reader& reader, const std::string& pattern) {
  std::vector<NameSummary> result;
  std::unordered_map<std::string_view, std::size_t> places;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    if (reader.kind(id) != EventKind::Value && reader.kind(id) != EventKind::Change) continue;
    const auto [place, is_new] = places.emplace(reader.name(id), result.size());
    const std::int64_t step = reader.step(id);
    if (is_new) result.push_back({.name = std::string(reader.name(id)), .first_step = step, .last_step = step});
    NameSummary& summary = result[place->second];
    ++summary.events;
    summary.first_step = std::min(summary.first_step, step);
    summary.last_step = std::max(summary.last_step, step);
    summary.last = id;
    if (!summary.nonfinite && reader.has_nonfinite(id)) summary.nonfinite = id;
  }
  if (!pattern.empty())
    std::erase_if(result, [&](const auto& summary) { return !matches_glob(summary.name, pattern); });
  return result;
}

std::string nonfinite_text(const Reader& reader, const NameSummary& summary) {
  if (!summary.nonfinite) return "";
  const Event event = reader.event(*summary.nonfinite);
  const auto& stats = std::get<TensorRecord>(event.value).stats;
  std::string text;
  if (stats.nan > 0) text += fmt::format("NaN {}", stats.nan);
  if (stats.pos_inf + stats.neg_inf > 0) {
    text += fmt::format("{}Inf {}", text.empty() ? "" : ", ", stats.pos_inf + stats.neg_inf);
  }
  return fmt::format("{} @ step {}", text, event.step);
}

std::vector<Cell> row_of(const Reader& reader, const NameSummary& summary) {
  const Event event = reader.event(summary.last);
  const std::string steps = summary.first_step == summary.last_step
                                ? std::to_string(summary.first_step)
                                : fmt::format("{}-{}", summary.first_step, summary.last_step);
  std::vector<Cell> row{Cell(summary.name, Tone::Bold)};
  if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
    const auto bytes = static_cast<std::uint64_t>(element_count(tensor->shape)) * item_size(tensor->dtype);
    for (const std::string& text :
         {std::string(to_string(tensor->dtype)), shape_text(tensor->shape), steps, std::to_string(summary.events),
          bytes_text(bytes), extreme_text(*tensor, false), extreme_text(*tensor, true), number_text(tensor->stats.mean),
          number_text(tensor->stats.std)}) {
      row.emplace_back(text);
    }
  } else {
    for (const std::string& text :
         {std::string(), value_text(event.value, 24), steps, std::to_string(summary.events)}) {
      row.emplace_back(text);
    }
    row.resize(10, Cell(""));
  }
  row.emplace_back(nonfinite_text(reader, summary), Tone::Red);
  return row;
}

void write_name(JsonWriter& json, const Reader& reader, const NameSummary& summary) {
  json.begin_object().key("name").text(summary.name).key("events").number(summary.events);
  json.key("first_step").number(summary.first_step).key("last_step").number(summary.last_step);
  json.key("last").begin_object();
  const Event event = reader.event(summary.last);
  json.key("step").number(event.step).key("call").number(event.call);
  json.key(reader.is_tensor(summary.last) ? "tensor" : "value");
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

int list_one(const Reader& reader, const std::string& pattern, const Output& output) {
  const std::vector<NameSummary> summaries = summarize(reader, pattern);
  if (!pattern.empty() && summaries.empty()) find_name(reader, pattern);  // throws, with a suggestion
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
    fmt::print("{}\n", text);
    return kFine;
  }
  warn_of_problems(reader);
  const Cell state = state_cell(reader);
  fmt::print("{}  {}  {} events from {} writer{}  {}  {}\n", toned(reader.path().string(), Tone::Bold, output.color),
             time_text(started_ns(reader)), reader.event_count(), reader.writers().size(),
             reader.writers().size() == 1 ? "" : "s", bytes_text(size_on_disk(reader.path())),
             toned(state.text, state.tone, output.color));
  if (reader.writers().size() > 1)
    for (const auto& [writers, ending] : store::writers_by_state(reader)) fmt::print("  {}: {}\n", writers, ending);
  fmt::print("\n");
  Table table({{"name"},
               {"dtype"},
               {"shape or value"},
               {"steps", Align::Right},
               {"events", Align::Right},
               {"size", Align::Right},
               {"min", Align::Right},
               {"max", Align::Right},
               {"mean", Align::Right},
               {"std", Align::Right},
               {""}});
  for (const NameSummary& summary : summaries) table.add(row_of(reader, summary));
  fmt::print("{}", table.empty() ? "no values were recorded\n" : table.text(output.color));
  return kFine;
}

}  // namespace

Action prepare_ls(CLI::App& app) {
  auto options = std::make_shared<LsOptions>();
  app.add_option("path", options->path, "A run, or a folder of runs (default: runs/, else this folder)");
  app.add_option("names", options->pattern, "Only names that match this pattern: * and ? stand for anything");
  return [options](const Output& output) {
    const auto path = find_run(options->path.empty() ? default_runs() : options->path);
    const auto runs = list_runs(path);
    if (runs.empty()) throw Error(ErrorCode::NotFound, fmt::format("there is no run in '{}'", path.string()));
    const bool is_one = runs.size() == 1 && (runs.front() == path || !options->pattern.empty());
    return is_one ? list_one(Reader(runs.front()), options->pattern, output) : list_all(runs, output);
  };
}

}  // namespace tenscope::cli
