#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/terminal.hpp"
#include "compare/operation.hpp"
#include "core/json_writer.hpp"
#include "kernels/summarize.hpp"
#include "report/array_text.hpp"
#include "report/curve.hpp"
#include "report/histogram.hpp"
#include "report/series.hpp"
#include "report/slice.hpp"
#include "report/table.hpp"
#include "report/values.hpp"
#include "store/shards.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

using namespace report;

constexpr int kBins = 16;
constexpr std::size_t kMostLines = 40;  // of a series of numbers; the middle is left out

struct ShowOptions {
  std::string run, name, slice;
  std::string source;  // a file; empty: all are listed
  std::optional<std::int64_t> step, call;
  std::optional<int> rank;
};

std::vector<EventId> find_events(const Reader& reader, const ShowOptions& options, const std::string& name) {
  std::vector<EventId> ids;
  for (const EventId id : reader.find({.step = options.step, .call = options.call, .rank = options.rank})) {
    const bool is_value = reader.kind(id) == EventKind::Value || reader.kind(id) == EventKind::Change;
    if (is_value && reader.name(id) == name) ids.push_back(id);
  }
  if (!ids.empty()) return ids;
  const auto steps = reader.steps(name);
  throw Error(ErrorCode::NotFound,
              fmt::format("there is no '{}' with that step, call or rank; it has steps {} to {}: {}{}", name,
                          steps.front(), steps.back(), reader.path().string(), losses_hint(reader)));
}

// They are in the order of ranks.
EventId last_of_lowest_rank(const Reader& reader, const std::vector<EventId>& ids) {
  EventId last = ids.front();
  for (const EventId id : ids)
    if (reader.writer_index(id) == reader.writer_index(ids.front())) last = id;
  return last;
}

void write_event_head(JsonWriter& json, const Reader& reader, EventId id, const Event& event) {
  json.key("run").text(reader.path().string()).key("name").text(event.name).key("step").number(event.step);
  json.key("call").number(event.call).key("writer").text(reader.writers()[reader.writer_index(id)].folder);
  json.key("time_ns").number(event.time_ns).key("site").text(event.site);
  json.key("meta").raw(event.meta.empty() ? "{}" : event.meta);
}

std::string statistics_text(const TensorRecord& tensor, bool color) {
  const Stats& stats = tensor.stats;
  std::string text;
  if (!std::isnan(stats.min))
    text = fmt::format("min {}  max {}  mean {}  std {}  l2 {}  absmax {}\n", extreme_text(tensor, false),
                       extreme_text(tensor, true), number_text(stats.mean), number_text(stats.std),
                       number_text(stats.l2), number_text(stats.abs_max));
  text += fmt::format("elements {}  zero {}  subnormal {}", stats.count, stats.zero, stats.subnormal);
  if (stats.nan > 0) text += "  " + toned(fmt::format("NaN {}", stats.nan), Tone::Red, color);
  if (stats.pos_inf > 0) text += "  " + toned(fmt::format("+Inf {}", stats.pos_inf), Tone::Red, color);
  if (stats.neg_inf > 0) text += "  " + toned(fmt::format("-Inf {}", stats.neg_inf), Tone::Red, color);
  return text + "\n";
}

void write_histogram(JsonWriter& json, const Histogram& histogram) {
  json.key("histogram").begin_object().key("edges").begin_array();
  for (const double edge : histogram.edges) json.number(edge);
  json.end_array().key("counts");
  write_shape(json, histogram.counts);
  json.end_object();
}

void print_elements(const TensorView& view, const Histogram& histogram, const Output& output) {
  print("{}\n", Lines{array_text(view)});
  if (element_count(view.shape) < 2) return;
  const bool is_constant = histogram.counts.empty() ||
                           std::ranges::count_if(histogram.counts, [](std::int64_t count) { return count > 0; }) < 2;
  if (is_constant) return;  // one bar tells nothing that the statistics do not
  const std::size_t width = std::min<std::size_t>(output.width, 100);
  print("\n{}", Lines{histogram_text(histogram, width, is_utf8_terminal(), output.color)});
}

// Of a tensor that is spread over ranks, all parts together.
int show_whole(const Reader& reader, const std::vector<EventId>& parts, const ShowOptions& options,
               const Output& output) {
  const TensorData data = store::assemble(reader, parts);
  const Slice slice(data.view, options.slice);
  const Event event = reader.event(parts.front());
  const Shard shard = *store::parse_shard(event.meta);
  TensorRecord record{.dtype = data.view.dtype, .shape = {data.view.shape.begin(), data.view.shape.end()}};
  record.fingerprint = kernels::fingerprint(data.view);
  record.stats = kernels::statistics(slice.view());
  const Histogram histogram = make_histogram(slice.view(), kBins);
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    write_event_head(json, reader, parts.front(), event);
    json.key("parts").number(static_cast<std::uint64_t>(parts.size())).key("tensor");
    write_tensor(json, record);
    json.key("slice").text(options.slice).key("values");
    write_elements(json, slice.view());
    write_histogram(json, histogram);
    json.end_object();
    print_json(text);
    return kFine;
  }
  print("{}  step {}  call {}  {}\n", toned(event.name, Tone::Bold, output.color), event.step, event.call, event.site);
  print("{} {}, of {} parts (mesh {}, {}); --rank shows one of them\n", to_string(record.dtype),
        shape_text(record.shape), parts.size(), shape_text(shard.mesh), fmt::join(shard.placements, " "));
  if (!options.slice.empty()) print("slice [{}] {}\n", options.slice, shape_text(slice.view().shape));
  print("{}\n", Lines{statistics_text(record, output.color)});
  print_elements(slice.view(), histogram, output);
  return kFine;
}

// Which operation made a tensor, on which line, and of what: the events that have the bytes that went in.
void print_operation(const Reader& reader, EventId id, const Event& event, const Output& output) {
  const compare::Operation operation = compare::read_operation(event);
  if (operation.full_name.empty()) {
    print("{}\n", toned("goes into an operation, and no recorded one has made it", Tone::Dim, output.color));
    return;
  }
  print("{}({}){}\n", operation.full_name, operation.args,
        event.phase == Phase::Backward ? ", in the backward of" : "");
  if (!operation.text.empty()) print("    {}   in {}\n", operation.text, operation.function);
  for (const std::string& input : operation.inputs) {
    std::string made_by = "a tensor without plain bytes";
    for (EventId before = id; !input.empty() && before-- > 0;) {
      if (!reader.is_tensor(before)) continue;
      const Event other = reader.event(before);
      if (std::get<TensorRecord>(other.value).fingerprint.hex() != input) continue;
      made_by = fmt::format("{}  step {}  call {}", other.name, other.step, other.call);
      break;
    }
    print("made of {}\n", made_by);
  }
}

int show_tensor(const Reader& reader, EventId id, const ShowOptions& options, const Output& output) {
  const Event event = reader.event(id);
  TensorRecord record = std::get<TensorRecord>(event.value);
  std::optional<TensorData> data;
  std::optional<Slice> slice;
  const bool is_missing = record.has_bytes() && !reader.has_bytes(id, record);
  const std::string why = is_missing && record.blob ? fmt::format(": segment {} is missing", record.blob->segment)
                          : is_missing              ? fmt::format(": {} is missing", record.file)
                          : record.is_cut           ? ": the budget of the run was used up"
                                                    : "";
  if ((record.has_bytes() && !is_missing) || element_count(record.shape) == 0) {
    data = reader.tensor(id);
    slice.emplace(data->view, options.slice);
    if (!options.slice.empty()) record.stats = kernels::statistics(slice->view());
  } else if (!options.slice.empty()) {
    throw Error(ErrorCode::NotFound, fmt::format("the bytes of '{}' {}, only its statistics{}", event.name,
                                                 is_missing ? "are not there" : "were not kept", why));
  }
  const Histogram histogram = slice ? make_histogram(slice->view(), kBins) : Histogram{};
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    write_event_head(json, reader, id, event);
    json.key("tensor");
    write_tensor(json, record);
    json.key("slice").text(options.slice).key("values");
    if (slice)
      write_elements(json, slice->view());
    else
      json.null();
    write_histogram(json, histogram);
    json.end_object();
    print_json(text);
    return is_missing ? kTrouble : kFine;
  }
  print("{}  step {}  call {}  {}{}\n", toned(event.name, Tone::Bold, output.color), event.step, event.call,
        reader.writers()[reader.writer_index(id)].folder, event.site.empty() ? "" : "  " + event.site);
  print("{} {}  {}  {}  {}\n", to_string(record.dtype), shape_text(record.shape), record.device,
        bytes_text(static_cast<std::uint64_t>(element_count(record.shape)) * item_size(record.dtype)),
        toned(record.fingerprint.hex(), Tone::Dim, output.color));
  if (event.io == Io::Op) print_operation(reader, id, event, output);
  if (!options.slice.empty()) print("slice [{}] {}\n", options.slice, shape_text(slice->view().shape));
  print("{}\n", Lines{statistics_text(record, output.color)});
  if (!slice) {
    print("its bytes {}{}\n", is_missing ? "are not there" : "were not kept", why);
    return is_missing ? kTrouble : kFine;
  }
  print_elements(slice->view(), histogram, output);
  return kFine;
}

// The head of a list of values; of numbers, how they went over steps.
void print_curve(const Reader& reader, const std::vector<EventId>& ids, const Output& output) {
  std::vector<EventId> of_one;  // writer
  for (const EventId id : ids)
    if (reader.writer_index(id) == reader.writer_index(ids.front())) of_one.push_back(id);
  const Series series = read_series(reader, of_one);
  const Extent extent = extent_of(series);
  const std::string name = toned(reader.name(ids.front()), kHeading, output.color);
  if (series.points.size() < 2 || extent.is_empty) return print("{}\n", name);
  const auto bad = std::ranges::count_if(series.points, [](const auto& point) { return !std::isfinite(point.value); });
  const auto least = std::ranges::find(series.points, extent.least, &Series::Point::value);
  const auto most = std::ranges::find(series.points, extent.most, &Series::Point::value);
  print("{}  last {}  min {} (step {})  max {} (step {}){}{}\n\n", name,
        number_in_words(reader.event(of_one.back()).value).value_or("-"), number_text(extent.least), least->step,
        number_text(extent.most), most->step,
        bad > 0 ? "  " + toned(fmt::format("NaN or Inf {}", bad), kBad, output.color) : "",
        of_one.size() < ids.size()
            ? fmt::format("  (drawn is {})", reader.writers()[reader.writer_index(ids.front())].folder)
            : "");
  print_text(curve_text({{&series, kName}}, {.width = std::min<std::size_t>(output.width, 100),
                                             .height = 10,
                                             .is_utf8 = is_utf8_terminal(),
                                             .color = output.color}));
  print_text("\n");
}

Cell shown_value(const EventValue& value, const Output& output) {
  const auto number = number_of(value);
  if (const auto words = number_in_words(value)) return Cell(*words, std::isfinite(*number) ? Tone::Plain : kBad);
  return value_text(value, output.is_fitted ? 400 : 2000);
}

int show_values(const Reader& reader, const std::vector<EventId>& ids, const Output& output) {
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("run").text(reader.path().string()).key("name").text(reader.name(ids.front()));
    json.key("values").begin_array();
    for (const EventId id : ids) {
      const Event event = reader.event(id);
      json.begin_object().key("step").number(event.step).key("call").number(event.call);
      json.key("writer").text(reader.writers()[reader.writer_index(id)].folder).key("time_ns").number(event.time_ns);
      json.key("site").text(event.site).key(reader.is_tensor(id) ? "tensor" : "value");
      write_value(json, event.value);
      json.end_object();
    }
    json.end_array().end_object();
    print_json(text);
    return kFine;
  }
  print_curve(reader, ids, output);
  Table table({{"step", Align::Right},
               {"call", Align::Right, Fit::Whole, 2},
               {"writer", Align::Left, Fit::Whole, 3},
               {"value", Align::Left, Fit::Words},
               {"site", Align::Left, Fit::Middle, 1}});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids.size() > kMostLines && i == kMostLines / 2) {
      table.add({"...", "", "", fmt::format("{} more", ids.size() - kMostLines), ""});
      i = ids.size() - kMostLines / 2;
    }
    const Event event = reader.event(ids[i]);
    table.add({std::to_string(event.step), std::to_string(event.call),
               reader.writers()[reader.writer_index(ids[i])].folder, shown_value(event.value, output), event.site});
  }
  print_text(table.text(output.color, output.fitting()));
  return kFine;
}

void write_source(JsonWriter& json, const SourceFile& source) {
  json.key("file").text(source.file).key("path").text(source.path).key("fingerprint");
  source.fingerprint.empty() ? json.null() : json.text(source.fingerprint);
  json.key("bytes").number(source.size_bytes).key("lines").number(source.line_count).key("left_out");
  source.left_out.empty() ? json.null() : json.text(source.left_out);
}

int list_sources(const Reader& reader, const std::vector<SourceFile>& sources, const Output& output) {
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("run").text(reader.path().string()).key("sources").begin_array();
    for (const SourceFile& source : sources) {
      json.begin_object();
      write_source(json, source);
      json.end_object();
    }
    json.end_array().end_object();
    print_json(text);
    return kFine;
  }
  if (sources.empty()) print("the run keeps no sources\n");
  Table table({{"lines", Align::Right}, {"size", Align::Right}, {"file", Align::Left, Fit::Middle}});
  for (const SourceFile& source : sources)
    table.add({source.left_out.empty() ? std::to_string(source.line_count) : "-",
               source.left_out.empty() ? bytes_text(source.size_bytes) : "-",
               source.left_out.empty() ? source.file : fmt::format("{} (not kept: {})", source.file, source.left_out)});
  if (!sources.empty()) print_text(table.text(output.color, output.fitting()));
  return kFine;
}

// By its name in the sites, its path, or the end of that: "linear.py", "modules/linear.py".
bool is_meant(const SourceFile& source, const std::string& file) {
  const auto ends_so = [&](const std::string& path) { return path == file || path.ends_with("/" + file); };
  return ends_so(source.file) || ends_so(source.path);
}

int show_source(const Reader& reader, const std::string& file, const Output& output) {
  std::vector<SourceFile> sources = reader.sources();
  if (file.empty()) return list_sources(reader, sources, output);
  std::erase_if(sources, [&](const SourceFile& source) { return !is_meant(source, file); });
  if (sources.empty())
    throw Error(ErrorCode::NotFound, fmt::format("the run keeps no source {}; --source alone lists what it has: {}",
                                                 file, reader.path().string()));
  const bool is_one =
      std::ranges::all_of(sources, [&](const SourceFile& one) { return one.file == sources.front().file; });
  if (!is_one)
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} may be {} or {}: say more of the path: {}", file,
                                                        sources[0].file, sources[1].file, reader.path().string()));
  const SourceFile& source = sources.back();  // of several texts, the one that ran last
  if (source.fingerprint.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{} was not kept: {}: {}", source.file, source.left_out, reader.path().string()));
  const std::string content = reader.source_text(source.fingerprint);
  if (!output.json) {
    print_file(content);
    return kFine;
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("run").text(reader.path().string());
  write_source(json, source);
  json.key("text").text(content).end_object();
  print_json(text);
  return kFine;
}

}  // namespace

Action prepare_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  app.add_option("run", options->run, "A run, or a folder of runs: then the newest")->required();
  CLI::Option* name = app.add_option("name", options->name, "A name, or a pattern that matches only one");
  app.add_option("--step", options->step, "The step (default: the last)");
  app.add_option("--call", options->call, "The call within the step (default: the last)");
  app.add_option("--rank", options->rank,
                 "The rank (default: the lowest that has it; all parts of a tensor that is spread over ranks)");
  app.add_option("--slice", options->slice, "A part of the tensor, as in NumPy: '0,:,3:7'");
  CLI::Option* source =
      app.add_option("--source", options->source, "The text of a source file that the run keeps; no file: lists them")
          ->expected(0, 1)
          ->excludes(name);
  return [options, source](const Output& output) {
    if (options->name.empty() && source->count() == 0)
      throw Error(ErrorCode::InvalidArgument, "show needs a name, or --source: tenscope ls lists the names");
    const Reader reader = open_run(options->run);
    warn_of_problems(reader);
    if (source->count() > 0) return show_source(reader, options->source, output);
    const std::vector<EventId> ids = find_events(reader, *options, find_name(reader, options->name));
    const EventId chosen = last_of_lowest_rank(reader, ids);
    const bool is_curve = !output.json && ids.size() > 1 && options->slice.empty() && !options->step &&
                          !options->call && number_of(reader.event(chosen).value);
    if (!reader.is_tensor(chosen) || is_curve) return show_values(reader, ids, output);
    const std::vector<EventId> parts = store::parts_of(reader, chosen);
    const bool is_whole = options->rank || parts.size() < 2;
    return is_whole ? show_tensor(reader, chosen, *options, output) : show_whole(reader, parts, *options, output);
  };
}

}  // namespace tenscope::cli
