#include "viewer/history.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "report/values.hpp"
#include "tenscope/error.hpp"
#include "viewer/json.hpp"
#include "viewer/listing.hpp"

namespace tenscope::viewer {
namespace {

struct Site {
  std::string file;
  std::int64_t line = 0;
};

// "file.py:12"
Site parse_site(const std::string& text) {
  Site site;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, 0};
  site.file = text.substr(0, colon);
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), site.line);
  return site;
}

std::string call_name(const Event& event) {
  const std::string& name = event.name.empty() ? event.scope : event.name;
  if (!name.empty()) return name;
  return !event.root.empty() ? event.root : event.cls;
}

// The calls of one process as they nest, per thread and task.
class CallWriter {
 public:
  CallWriter(JsonWriter& json, const Side& side) : json_(json), side_(side) {}

  void pass(EventId id, const Event& event) {
    std::vector<std::size_t>& stack = stacks_[{event.thread, event.task}];
    if (event.kind == EventKind::Enter) {
      stack.push_back(calls_.size());
      calls_.push_back({.event = id,
                        .depth = stack.size() - 1,
                        .name = call_name(event),
                        .cls = event.cls,
                        .key = event.name + "\n" + event.scope,
                        .start_ns = event.time_ns});
      return;
    }
    if (event.kind == EventKind::Exit) {
      const std::string key = event.name + "\n" + event.scope;
      const auto match =
          std::find_if(stack.rbegin(), stack.rend(), [&](std::size_t i) { return calls_[i].key == key; });
      if (match == stack.rend()) return;
      Call& call = calls_[*match];
      call.end_ns = event.time_ns;
      call.exception = report::meta_text(parser_, event.meta, "exception");
      stack.resize(static_cast<std::size_t>(stack.rend() - match) - 1);
      return;
    }
    const auto* tensor = std::get_if<TensorRecord>(&event.value);
    if (tensor == nullptr || stack.empty()) return;
    calls_[stack.back()].bad += tensor->stats.nan + tensor->stats.pos_inf + tensor->stats.neg_inf;
  }

  void write() const {
    constexpr std::size_t kMostCalls = 20'000;
    const std::size_t count = std::min(calls_.size(), kMostCalls);
    json_.key("calls").begin_array();
    for (std::size_t i = 0; i < count; ++i) {
      const Call& call = calls_[i];
      json_.begin_object().key("depth").number(static_cast<std::uint64_t>(call.depth)).key("name").text(call.name);
      json_.key("class").text(call.cls);
      json_.key("start").number(static_cast<double>(call.start_ns - side_.first_time_ns()) / 1e9).key("duration");
      if (call.end_ns > 0)
        json_.number(static_cast<double>(call.end_ns - call.start_ns) / 1e9);
      else
        json_.null();
      json_.key("event").number(side_.number_of(call.event)).key("exception");
      call.exception.empty() ? json_.null() : json_.text(call.exception);
      json_.key("bad").number(call.bad).end_object();
    }
    json_.end_array().key("left_out").number(static_cast<std::uint64_t>(calls_.size() - count));
  }

 private:
  struct Call {
    EventId event = 0;
    std::size_t depth = 0;
    std::string name, cls, key, exception;
    std::int64_t start_ns = 0, end_ns = 0, bad = 0;
  };

  JsonWriter& json_;
  const Side& side_;
  std::vector<Call> calls_;
  std::map<std::pair<std::uint64_t, std::string>, std::vector<std::size_t>> stacks_;
  simdjson::dom::parser parser_;
};

// The text as the run keeps it: what was run, whatever has become of the file since.
std::optional<std::string> kept_source(const Side& side, const std::string& file, EventId at) {
  if (side.reader() == nullptr) return std::nullopt;
  std::string fingerprint;
  for (const SourceFile& source : side.reader()->sources()) {
    const bool is_it = source.file == file || source.path == file ||
                       (!source.path.empty() && std::filesystem::path(source.path).filename() == file);
    if (is_it && !source.fingerprint.empty() && (fingerprint.empty() || source.event < at))
      fingerprint = source.fingerprint;
  }
  if (fingerprint.empty()) return std::nullopt;
  try {
    return side.reader()->source_text(fingerprint);
  } catch (const Error&) {  // it is gone, or damaged
    return std::nullopt;
  }
}

// Only a file that the recording names, and only Python: a recording may come from anywhere.
std::optional<std::string> source_on_disk(const std::string& file) {
  constexpr std::uintmax_t kMostBytes = 8 << 20;
  const std::filesystem::path path(file);
  std::error_code error;
  const bool is_python = path.extension() == ".py" && std::filesystem::is_regular_file(path, error) &&
                         std::filesystem::file_size(path, error) <= kMostBytes;
  if (!is_python) return std::nullopt;
  std::ifstream stream(path);
  if (!stream) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

}  // namespace

Answer variables_answer(const State& state, const Parameters& parameters) {
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const Catalog& catalog = *state.catalogs[side];
  struct Variable {
    std::string file;
    std::size_t changes = 0;
    EventId first = 0;
    std::set<std::int64_t> lines;
  };
  std::map<std::pair<TextId, TextId>, Variable> variables;
  std::vector<std::pair<TextId, TextId>> order;
  for (std::size_t i = 0; i < catalog.rows().size(); ++i) {
    const EventRow& row = catalog.rows()[i];
    if (row.kind != EventKind::Change || row.is_unreadable) continue;
    const auto [place, is_new] = variables.try_emplace({row.scope, row.name});
    Variable& variable = place->second;
    const auto id = static_cast<EventId>(i);
    if (is_new) {
      order.push_back(place->first);
      variable.first = id;
    }
    ++variable.changes;
    constexpr std::size_t kLookedAt = 2000;  // by then a variable has been at its lines
    if (variable.changes > kLookedAt) continue;
    const Site site = parse_site(own.event(id).site);
    variable.file = site.file;
    variable.lines.insert(site.line);
  }
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("variables").begin_array();
  for (const auto& key : order) {
    const Variable& variable = variables.at(key);
    json.begin_object().key("scope").text(catalog.text(key.first)).key("name").text(catalog.text(key.second));
    json.key("file").text(variable.file).key("changes").number(static_cast<std::uint64_t>(variable.changes));
    json.key("first").number(own.number_of(variable.first)).key("lines").begin_array();
    for (const std::int64_t line : variable.lines) json.number(line);
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

Answer changes_answer(const State& state, const Parameters& parameters) {
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const Catalog& catalog = *state.catalogs[side];
  const std::string scope = parameters.text("scope"), name = parameters.text("name", "");
  std::vector<EventId> wanted;
  for (std::size_t i = 0; i < catalog.rows().size(); ++i) {
    const EventRow& row = catalog.rows()[i];
    const bool is_wanted = row.kind == EventKind::Change && !row.is_unreadable && catalog.text(row.scope) == scope &&
                           (name.empty() || catalog.text(row.name) == name);
    if (is_wanted) wanted.push_back(static_cast<EventId>(i));
  }
  const auto size = static_cast<std::int64_t>(wanted.size());
  const std::int64_t begin = std::clamp<std::int64_t>(parameters.integer("offset", 0), 0, size);
  const std::int64_t count = std::clamp<std::int64_t>(parameters.integer("count", 2000), 0, size - begin);
  simdjson::dom::parser parser;
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("total").number(size).key("changes").begin_array();
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const EventId id = wanted[static_cast<std::size_t>(i)];
    const Event event = own.event(id);
    const Site site = parse_site(event.site);
    json.begin_object().key("id").number(own.number_of(id)).key("name").text(event.name);
    json.key("line").number(site.line).key("file").text(site.file).key("scope").text(event.scope);
    json.key("call").text(report::meta_text(parser, event.meta, "call")).key("step").number(event.step);
    json.key("time").number(static_cast<double>(event.time_ns - own.first_time_ns()) / 1e9).key("old");
    const std::string old = report::meta_text(parser, event.meta, "old");
    old.empty() ? json.null() : json.text(old);
    put_value(json, own, id, event);
    json.key("text").text(report::value_text(event.value)).end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

Answer source_answer(const State& state, const Parameters& parameters) {
  constexpr std::int64_t kMostLines = 4000;
  const std::size_t side = side_of(state, parameters);
  const EventId id = event_of(state, side, parameters);
  const Side& own = *state.sides[side];
  const Site site = parse_site(own.event(id).site);
  std::optional<std::string> text = kept_source(own, site.file, id);
  const bool is_kept = text.has_value();
  if (!is_kept) text = source_on_disk(site.file);
  if (!text)
    throw Error(ErrorCode::NotFound,
                fmt::format("the run does not keep the source, and it is not on this machine: {}", site.file));
  const std::int64_t first = std::max<std::int64_t>(1, site.line - kMostLines / 2);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("file").text(site.file).key("is_kept").boolean(is_kept).key("first").number(first);
  json.key("lines").begin_array();
  std::istringstream lines(*text);
  std::int64_t number = 1;
  for (std::string line; number < first + kMostLines && std::getline(lines, line); ++number)
    if (number >= first) json.text(line);
  json.end_array().end_object();
  return json_answer(std::move(body));
}

Answer calls_answer(const State& state, const Parameters& parameters) {
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const Catalog& catalog = *state.catalogs[side];
  const std::int64_t rank = parameters.integer("rank", 0);
  const std::int64_t step = parameters.integer("step", catalog.steps().empty() ? 0 : catalog.steps().front());
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  CallWriter calls(json, own);
  for (std::size_t i = 0; i < catalog.rows().size(); ++i) {
    const EventRow& row = catalog.rows()[i];
    const auto id = static_cast<EventId>(i);
    if (row.is_unreadable || row.step != step || own.rank_of(id) != rank) continue;
    const bool is_call = row.kind == EventKind::Enter || row.kind == EventKind::Exit;
    if (is_call || row.bad > 0) calls.pass(id, own.event(id));
  }
  calls.write();
  json.end_object();
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
