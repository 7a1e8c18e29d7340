#include "viewer/viewer.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>

#include "compare/run_diff.hpp"
#include "report/run_diff.hpp"
#include "report/values.hpp"
#include "tenscope/error.hpp"
#include "viewer/finding.hpp"
#include "viewer/history.hpp"
#include "viewer/json.hpp"
#include "viewer/listing.hpp"
#include "viewer/memory.hpp"
#include "viewer/overview.hpp"
#include "viewer/session.hpp"
#include "viewer/tensor_requests.hpp"

namespace tenscope::viewer {
namespace fs = std::filesystem;
namespace {

Answer working(double done) {
  std::string body;
  JsonWriter(body).begin_object().key("state").text("working").key("done").number(done).end_object();
  return json_answer(std::move(body));
}

std::string command_of(std::string_view run_json) {
  simdjson::dom::parser parser;
  simdjson::dom::array words;
  const std::string text(run_json);
  if (parser.parse(text)["command"].get_array().get(words)) return "";
  std::string command;
  for (const simdjson::dom::element word : words) {
    std::string_view part;
    if (word.get_string().get(part)) continue;
    if (!command.empty()) command += ' ';
    command += report::shell_word(part);
  }
  return command;
}

double started_of(std::string_view run_json) {
  simdjson::dom::parser parser;
  std::int64_t started = 0;
  const std::string text(run_json);
  if (parser.parse(text)["started_ns"].get_int64().get(started)) return 0;
  return static_cast<double>(started) / 1e9;
}

std::string_view state_word(const WriterInfo& writer) {
  return to_string(run_state(Span<const WriterInfo>(&writer, 1)));
}

void put_side(JsonWriter& json, const Side& side, const Catalog* catalog) {
  const Reader* reader = side.reader();
  json.begin_object().key("path").text(side.shown_path()).key("label").text(side.label());
  json.key("kind").text(reader != nullptr ? "run" : "file");
  json.key("state").text(reader != nullptr ? to_string(run_state(reader->writers())) : "closed");
  json.key("state_text").text(reader != nullptr ? state_text(reader->writers()) : "");
  json.key("events").number(static_cast<std::uint64_t>(side.event_count())).key("steps").begin_array();
  const std::vector<std::int64_t> steps = catalog != nullptr  ? catalog->steps()
                                          : reader != nullptr ? reader->steps()
                                                              : std::vector<std::int64_t>{0};
  for (const std::int64_t step : steps) json.number(step);
  json.end_array().key("ranks").begin_array();
  std::set<int> ranks;
  if (reader != nullptr)
    for (const WriterInfo& writer : reader->writers()) ranks.insert(writer.rank);
  for (const int rank : ranks) json.number(rank);
  json.end_array().key("problems").begin_array();
  if (reader != nullptr)
    for (const Problem& problem : reader->problems()) json.text(problem.reason);
  json.end_array().key("writers").begin_array();
  if (reader != nullptr)
    for (const WriterInfo& writer : reader->writers()) {
      json.begin_object().key("folder").text(writer.folder).key("rank").number(writer.rank);
      json.key("state").text(state_word(writer)).key("events").number(writer.event_count).key("exception");
      writer.exception.empty() ? json.null() : json.text(writer.exception);
      json.end_object();
    }
  json.end_array().key("command").text(reader != nullptr ? command_of(reader->run_json()) : "").end_object();
}

bool has_kind(const State& state, EventKind kind) {
  for (const auto& side : state.sides) {
    if (side == nullptr || side->reader() == nullptr) continue;
    const Reader& reader = *side->reader();
    for (EventId id = 0; id < reader.event_count(); ++id)
      if (reader.kind(id) == kind) return true;
  }
  return false;
}

bool has_modules(const State& state) {
  for (const auto& catalog : state.catalogs)
    for (std::size_t i = 0; catalog != nullptr && i < catalog->rows().size(); ++i)
      if (catalog->rows()[i].root != 0) return true;
  return false;
}

Answer session_answer(const State& state, std::string_view version, bool is_of_list) {
  std::string body;
  JsonWriter json(body);
  const Side& a = *state.sides[0];
  const bool is_files = a.reader() == nullptr && (!state.is_pair() || state.sides[1]->reader() == nullptr);
  json.begin_object().key("version").text(version).key("kind");
  json.text(is_of_list ? "list" : is_files ? "files" : "runs");
  json.key("title").text(state.is_pair() ? a.label() + " → " + state.sides[1]->label() : a.label());
  json.key("sides").begin_array();
  put_side(json, a, state.catalogs[0].get());
  if (state.is_pair()) put_side(json, *state.sides[1], state.catalogs[1].get());
  json.end_array().key("revision").number(state.revision);
  json.key("is_ready").boolean(state.has_catalogs());
  json.key("has_modules").boolean(has_modules(state));
  json.key("has_changes").boolean(has_kind(state, EventKind::Change));
  json.key("has_calls").boolean(has_kind(state, EventKind::Enter)).end_object();
  return json_answer(std::move(body));
}

// Tensors with NaN or Inf that have come since the events that the page knows.
Answer live_answer(const State& state, const Parameters& parameters) {
  constexpr std::size_t kMostTold = 20;
  const auto known = static_cast<std::uint64_t>(std::max<std::int64_t>(0, parameters.integer("revision", 0)));
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("revision").number(state.revision).key("sides").begin_array();
  for (std::size_t i = 0; i < (state.is_pair() ? 2 : 1); ++i) {
    const Reader* reader = state.sides[i]->reader();
    json.begin_object().key("state").text(reader != nullptr ? to_string(run_state(reader->writers())) : "closed");
    json.key("state_text").text(reader != nullptr ? state_text(reader->writers()) : "");
    json.key("events").number(static_cast<std::uint64_t>(state.sides[i]->event_count())).key("steps");
    const Catalog* catalog = state.catalogs[i].get();
    json.number(static_cast<std::uint64_t>(catalog != nullptr ? catalog->steps().size() : 0)).key("last_step");
    catalog != nullptr && !catalog->steps().empty() ? json.number(catalog->steps().back()) : json.null();
    json.end_object();
  }
  json.end_array().key("bad").begin_array();
  if (known < state.revision) {
    std::size_t told = 0;
    for (std::size_t i = 0; i < (state.is_pair() ? 2 : 1); ++i) {
      const Catalog* catalog = state.catalogs[i].get();
      if (catalog == nullptr) continue;
      // The newest first: what the page has told already, it leaves out.
      for (std::size_t at = catalog->rows().size(); at-- > 0 && told < kMostTold;) {
        const EventRow& row = catalog->rows()[at];
        if (row.bad == 0 || !row.is_value() || row.io == Io::Op || row.io == Io::Oracle) continue;
        ++told;
        json.begin_object().key("side").text(i == 0 ? "a" : "b").key("name").text(catalog->text(row.name));
        json.key("step").number(row.step).key("event");
        json.number(state.sides[i]->number_of(static_cast<EventId>(at))).end_object();
      }
    }
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

int status_of(ErrorCode code) {
  if (code == ErrorCode::NotFound) return 404;
  return code == ErrorCode::InvalidArgument ? 400 : 500;
}

// Answers that take long to make and stay the same until something new is known.
class Cache {
 public:
  Answer get(const std::string& key, std::uint64_t revision, const std::function<Answer()>& make) {
    {
      const std::lock_guard lock(mutex_);
      if (revision != revision_) {
        answers_.clear();
        revision_ = revision;
      }
      if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
    }
    Answer answer = make();
    give_back_memory();
    const std::lock_guard lock(mutex_);
    if (revision == revision_) answers_.insert_or_assign(key, answer);
    return answer;
  }

 private:
  std::mutex mutex_;
  std::uint64_t revision_ = 0;
  std::map<std::string, Answer> answers_;
};

struct OpenSession {
  std::string a, b;  // names in the list; empty without one
  std::unique_ptr<Session> session;
  Cache cache;
};

}  // namespace

struct Viewer::Impl {
  fs::path folder;  // of a list
  std::array<std::string, 2> paths, shown_paths;
  std::mutex mutex;
  std::list<std::shared_ptr<OpenSession>> sessions;  // the last used first

  Answer route(std::string_view path, const Parameters& parameters);
  Answer route(OpenSession& open, std::string_view path, const Parameters& parameters);
  Answer runs();
  std::map<std::string, fs::path> listed() const;
  std::shared_ptr<OpenSession> session_of(const Parameters& parameters);
  void rename_paths(std::string& text) const;
};

// What the core says of a copy of a run that lies elsewhere names that copy.
void Viewer::Impl::rename_paths(std::string& text) const {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (shown_paths[i].empty()) continue;
    for (std::size_t at = 0; (at = text.find(paths[i], at)) != std::string::npos; at += shown_paths[i].size())
      text.replace(at, paths[i].size(), shown_paths[i]);
  }
}

std::map<std::string, fs::path> Viewer::Impl::listed() const {
  std::map<std::string, fs::path> runs;
  for (const fs::path& run : list_runs(folder)) {
    const fs::path below = run.lexically_relative(folder);
    runs.emplace(below.empty() || below == "." ? run.filename().string() : below.string(), run);
  }
  return runs;
}

Answer Viewer::Impl::runs() {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("runs").begin_array();
  std::vector<std::pair<double, std::string>> newest_first;
  for (const auto& [name, path] : listed()) {
    std::string text;
    JsonWriter one(text);
    double started = 0;
    try {
      const Reader reader(path);
      started = started_of(reader.run_json());
      one.begin_object().key("name").text(name).key("state").text(to_string(run_state(reader.writers())));
      one.key("state_text").text(state_text(reader.writers())).key("started").number(started);
      one.key("steps").number(static_cast<std::uint64_t>(reader.steps().size()));
      one.key("events").number(static_cast<std::uint64_t>(reader.event_count())).key("size_bytes");
      std::uint64_t size = 0;
      std::error_code error;
      for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
        std::error_code ignored;
        if (it->is_regular_file(ignored)) size += it->file_size(ignored);
      }
      one.number(size).key("command").text(command_of(reader.run_json())).end_object();
    } catch (const Error& error) {
      text.clear();
      JsonWriter(text)
          .begin_object()
          .key("name")
          .text(name)
          .key("state")
          .text("damaged")
          .key("state_text")
          .text(error.what())
          .key("started")
          .number(0.0)
          .key("steps")
          .number(0)
          .key("events")
          .number(0)
          .key("size_bytes")
          .number(0)
          .key("command")
          .text("")
          .end_object();
    }
    newest_first.emplace_back(-started, std::move(text));
  }
  std::ranges::sort(newest_first);
  for (const auto& [started, text] : newest_first) json.raw(text);
  json.end_array().end_object();
  return json_answer(std::move(body));
}

std::shared_ptr<OpenSession> Viewer::Impl::session_of(const Parameters& parameters) {
  constexpr std::size_t kMostOpen = 4;
  std::shared_ptr<OpenSession> closed;  // outlives the lock: what it is working out may take a while to leave
  const std::lock_guard lock(mutex);
  if (folder.empty()) return sessions.front();
  const std::string a = parameters.text("run"), b = parameters.text("against", "");
  const auto is_it = [&](const auto& open) { return open->a == a && open->b == b; };
  const auto found = std::ranges::find_if(sessions, is_it);
  if (found != sessions.end()) {
    sessions.splice(sessions.begin(), sessions, found);
    return sessions.front();
  }
  const std::map<std::string, fs::path> runs = listed();
  const auto path_of = [&](const std::string& name) {
    const auto run = runs.find(name);
    if (run == runs.end()) throw Error(ErrorCode::NotFound, fmt::format("there is no run '{}' in the list", name));
    return run->second;
  };
  auto open = std::make_shared<OpenSession>();
  open->a = a;
  open->b = b;
  SessionOptions options;
  if (const fs::path shown = shown_paths[0]; !shown.empty())
    options.shown_paths = {(shown / a).string(), (shown / b).string()};
  open->session = std::make_unique<Session>(path_of(a), b.empty() ? fs::path() : path_of(b), std::move(options));
  sessions.push_front(open);
  if (sessions.size() > kMostOpen) {
    closed = std::move(sessions.back());
    sessions.pop_back();
  }
  return open;
}

Answer Viewer::Impl::route(std::string_view path, const Parameters& parameters) {
  if (path == "/api/runs") return folder.empty() ? error_answer(404, "this is no list of runs") : runs();
  if (path == "/api/session" && !folder.empty() && !parameters.has("run")) {
    std::string body;
    JsonWriter json(body);
    json.begin_object().key("version").text(TENSCOPE_VERSION).key("kind").text("list").key("title");
    json.text((shown_paths[0].empty() ? folder : fs::path(shown_paths[0])).filename().string())
        .key("sides")
        .begin_array()
        .end_array()
        .key("revision")
        .number(0);
    for (const std::string_view key : {"has_modules", "has_changes", "has_calls"}) json.key(key).boolean(false);
    json.end_object();
    return json_answer(std::move(body));
  }
  return route(*session_of(parameters), path, parameters);
}

Answer Viewer::Impl::route(OpenSession& open, std::string_view path, const Parameters& parameters) {
  Session& session = *open.session;
  const State state = session.state();
  if (path == "/api/live") {
    if (!state.is_running()) return live_answer(state, parameters);
    session.look_again();
    return live_answer(session.state_after(state.revision), parameters);
  }
  if (path == "/api/answer") return finding_answer(state, session.progress());
  if (path == "/api/session")
    return open.cache.get("session", state.revision,
                          [&] { return session_answer(state, TENSCOPE_VERSION, !folder.empty()); });
  if (path == "/api/event") return event_answer(state, parameters);
  if (std::optional<Answer> answer = tensor_answer(state, path, parameters)) return std::move(*answer);
  if (path == "/api/source") return source_answer(state, parameters);
  // What follows needs every event's head.
  if (!state.has_catalogs()) return working(session.progress());
  if (path == "/api/timeline")
    return open.cache.get("timeline", state.revision, [&] { return timeline_answer(state); });
  if (path == "/api/modules") return open.cache.get("modules", state.revision, [&] { return modules_answer(state); });
  if (path == "/api/names") return open.cache.get("names", state.revision, [&] { return names_answer(state); });
  if (path == "/api/events") return events_answer(state, parameters);
  if (path == "/api/series") return series_answer(state, parameters);
  if (path == "/api/variables") return variables_answer(state, parameters);
  if (path == "/api/changes") return changes_answer(state, parameters);
  if (path == "/api/histograms") return histograms_of(state, parameters);
  if (path == "/api/calls") return calls_answer(state, parameters);
  return error_answer(404, "there is no such request");
}

Viewer::Viewer(const std::string& a, const std::string& b, ViewerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->paths = {a, b};
  impl_->shown_paths = options.shown_paths;
  std::error_code error;
  const bool is_folder_of_runs = b.empty() && fs::is_directory(a, error) &&
                                 !fs::exists(fs::path(a) / "run.json", error) && compare::is_run_folder(a);
  if (is_folder_of_runs) {
    impl_->folder = a;
    return;
  }
  auto open = std::make_shared<OpenSession>();
  open->session = std::make_unique<Session>(
      a, b, SessionOptions{.diff = std::move(options.diff), .shown_paths = std::move(options.shown_paths)});
  impl_->sessions.push_front(std::move(open));
}

Viewer::~Viewer() = default;

void Viewer::wait() const {
  if (!impl_->folder.empty())
    throw Error(ErrorCode::InvalidArgument, "a list of runs cannot be exported: name one run, or two");
  impl_->sessions.front()->session->wait();
}

std::shared_ptr<const RunDiff> Viewer::diff() const {
  wait();
  const State state = impl_->sessions.front()->session->state();
  if (state.finding == nullptr && !state.failure.empty()) throw Error(ErrorCode::Io, state.failure);
  const RunDiff* diff = state.finding != nullptr ? std::get_if<RunDiff>(state.finding.get()) : nullptr;
  return {state.finding, diff};
}

Answer Viewer::answer(std::string_view target) noexcept {
  const auto failed = [this](int status, const char* what) {
    try {
      std::string text = what;
      impl_->rename_paths(text);
      return error_answer(status, text);
    } catch (...) {
      return Answer{.status = 500, .type = "application/json", .body = "{}"};
    }
  };
  try {
    const std::size_t question = target.find('?');
    const std::string_view path = target.substr(0, question);
    const Parameters parameters(question == std::string_view::npos ? std::string_view() : target.substr(question + 1));
    Answer answer = impl_->route(path, parameters);
    if (path == "/api/answer") impl_->rename_paths(answer.body);
    return answer;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::exception& error) {
    return failed(500, error.what());
  } catch (...) {
    return failed(500, "something went wrong");
  }
}

}  // namespace tenscope::viewer
