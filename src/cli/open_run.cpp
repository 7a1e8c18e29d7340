#include "cli/open_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/print.hpp"
#include "core/json_writer.hpp"
#include "core/printable.hpp"
#include "core/suggest.hpp"
#include "report/run_warnings.hpp"
#include "store/run_folder.hpp"
#include "store/writer_groups.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace fs = std::filesystem;

std::string place_of(const std::string& path) {
  std::error_code error;
  const fs::path below = fs::path("runs") / path;
  return !fs::exists(path, error) && fs::is_directory(below, error) ? below.string() : path;
}

fs::path find_run(const std::string& path) {
  std::error_code error;
  if (const fs::path place = place_of(path); fs::exists(place, error)) return place;
  std::vector<std::string> candidates;
  fs::path parent = fs::path(path).parent_path();
  for (const fs::path& folder : {parent.empty() ? fs::path(".") : parent, fs::path("runs")}) {
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (it->is_directory(error)) candidates.push_back(it->path().filename().string());
    }
  }
  throw Error(ErrorCode::NotFound, fmt::format("there is no run '{}'{}", path,
                                               did_you_mean(fs::path(path).filename().string(), candidates)));
}

fs::path find_run_folder(const std::string& path) {
  fs::path found = find_run(path);
  std::error_code error;
  if (fs::is_regular_file(found, error))
    throw Error(ErrorCode::NotFound, fmt::format("{} is a file, not a run{}: view, diff and explain take files", path,
                                                 store::part_of_run(found)));
  return found;
}

Reader open_run(const std::string& path) { return Reader(find_run_folder(path)); }

std::vector<fs::path> find_runs(const std::string& path) {
  std::vector<fs::path> runs = list_runs(find_run_folder(path));
  if (runs.empty())
    throw Error(ErrorCode::NotFound, fmt::format("there is no run in '{}'{}", path, store::part_of_run(path)));
  return runs;
}

std::string default_runs() {
  std::error_code error;
  return fs::is_directory("runs", error) ? "runs" : ".";
}

std::string find_name(const Reader& reader, const std::string& pattern) {
  const std::vector<std::string> names = reader.names();
  if (std::find(names.begin(), names.end(), pattern) != names.end()) return pattern;
  std::vector<std::string> matches;
  for (const std::string& name : names) {
    if (matches_glob(name, pattern) || printable(name) == pattern) matches.push_back(name);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    throw Error(ErrorCode::NotFound, fmt::format("there is no '{}' in {}{}{}", pattern, reader.path().string(),
                                                 did_you_mean(pattern, names), losses_hint(reader)));
  }
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, matches.size()); ++i) list += (i > 0 ? ", " : "") + matches[i];
  throw Error(ErrorCode::InvalidArgument, fmt::format("'{}' matches {} names: {}{}", pattern, matches.size(), list,
                                                      matches.size() > 5 ? ", ..." : ""));
}

std::uint64_t size_on_disk(const fs::path& run) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(run, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) total += it->file_size(ignored);
  }
  return total;
}

std::string condition_of(const Reader& reader) {
  std::string text;
  if (report::count_damage(reader) > 0) text += ", damaged";
  std::uint64_t events = 0, tensors = 0;
  bool is_exact = true, is_limited = false, has_lost = false;
  for (const Loss& loss : reader.losses()) {
    is_limited |= loss.is_limit;
    if (loss.is_limit) continue;
    has_lost = true;
    events += loss.events;
    tensors += loss.tensors;
    is_exact &= loss.is_exact;
  }
  if (events > 0)
    text += fmt::format(", {}{} event{} lost", is_exact ? "" : "at least ", events, events == 1 ? "" : "s");
  if (tensors > 0) text += fmt::format(", bytes of {} tensor{} lost", tensors, tensors == 1 ? "" : "s");
  if (has_lost && events + tensors == 0) text += ", a rank is missing";
  if (is_limited) text += ", limited";
  return text;
}

void write_losses(JsonWriter& json, const Reader& reader) {
  json.key("losses").begin_array();
  for (const Loss& loss : reader.losses()) {
    json.begin_object().key("writer").text(loss.writer).key("events").number(loss.events);
    json.key("tensors").number(loss.tensors).key("reason").text(loss.reason);
    json.key("limit").boolean(loss.is_limit).key("exact").boolean(loss.is_exact).end_object();
  }
  json.end_array();
}

void warn_of_problems(const Reader& reader) {
  for (const std::string& warning : report::run_warnings(reader)) warn("{}", warning);
}

std::string losses_hint(const Reader& reader) {
  std::string text;
  for (const Loss& loss : store::folded_losses(reader))
    if (loss.events > 0 || loss.tensors == 0) text += "; " + to_string(loss);
  return text;
}

StepRange parse_step_range(const std::string& text) {
  const auto parse = [&](std::string_view part) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size()) {
      throw Error(ErrorCode::InvalidArgument, fmt::format("'{}' is no step and no range of steps like 2:5", text));
    }
    return value;
  };
  const std::string_view all = text;
  const std::size_t colon = all.find(':');
  if (colon == all.npos) return {parse(all), parse(all) + 1};
  StepRange range;
  if (colon > 0) range.begin = parse(all.substr(0, colon));
  if (colon + 1 < all.size()) range.end = parse(all.substr(colon + 1));
  return range;
}

}  // namespace tenscope::cli
