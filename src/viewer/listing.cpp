#include "viewer/listing.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "report/values.hpp"
#include "tenscope/error.hpp"
#include "viewer/json.hpp"

namespace tenscope::viewer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string_view kind_of_row(const EventRow& row) {
  if (row.kind == EventKind::Change) return "change";
  return row.shown == Shown::Tensor ? "tensor" : row.shown == Shown::Number ? "number" : "text";
}

// The worst that was said of a name's events.
struct Worst {
  int verdict = -1;
  double error = kNan;
  void add(const Pairs::One& pair) {
    verdict = std::max(verdict, pair.verdict);
    if (!std::isnan(pair.error) && !(error >= pair.error)) error = pair.error;
  }
};

// One column of a table: a list with one value for each name.
template <class Write>
void column(JsonWriter& json, std::string_view title, const std::vector<ListedName>& names, Write write) {
  json.key(title).begin_array();
  for (const ListedName& name : names) write(name);
  json.end_array();
}

double statistic(const Stats& stats, std::string_view name) {
  if (name == "count") return static_cast<double>(stats.count);
  if (name == "min") return stats.min;
  if (name == "max") return stats.max;
  if (name == "mean") return stats.mean;
  if (name == "std") return stats.std;
  if (name == "l2") return stats.l2;
  if (name == "abs_max") return stats.abs_max;
  if (name == "nan") return static_cast<double>(stats.nan);
  if (name == "pos_inf") return static_cast<double>(stats.pos_inf);
  if (name == "neg_inf") return static_cast<double>(stats.neg_inf);
  if (name == "zero") return static_cast<double>(stats.zero);
  if (name == "subnormal") return static_cast<double>(stats.subnormal);
  throw Error(ErrorCode::InvalidArgument, fmt::format("there is no statistic '{}'", name));
}

struct Point {
  std::int64_t step;
  double value;
};

// Of each stretch of points the least and the largest stay, so that a spike is never lost.
std::vector<Point> thinned(std::vector<Point> all, std::size_t points) {
  if (all.size() <= points) return all;
  std::vector<Point> kept;
  const std::size_t stretches = std::max<std::size_t>(1, points / 2);
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * all.size() / stretches, end = (i + 1) * all.size() / stretches;
    std::size_t least = begin, largest = begin;
    for (std::size_t at = begin; at < end; ++at) {  // a NaN stays only where there is nothing else
      if (!(all[least].value <= all[at].value) && !std::isnan(all[at].value)) least = at;
      if (!(all[largest].value >= all[at].value) && !std::isnan(all[at].value)) largest = at;
    }
    kept.push_back(all[std::min(least, largest)]);
    if (least != largest) kept.push_back(all[std::max(least, largest)]);
  }
  return kept;
}

std::vector<Point> series_of(const State& state, std::size_t side, const std::vector<EventId>& events,
                             std::string_view stat, std::size_t points) {
  const Catalog& catalog = *state.catalogs[side];
  const auto error = [&](EventId id) { return state.pairs != nullptr ? state.pairs->of(side, id).error : kNan; };
  // Statistics stand in the journal. Where reading all of them would take long, some are, and all with NaN or Inf.
  constexpr std::size_t kMostRead = 10'000;
  const std::size_t every = std::max<std::size_t>(1, events.size() / kMostRead);
  std::vector<Point> series;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const EventId id = events[i];
    const EventRow& row = catalog[id];
    if (i % every != 0 && row.bad == 0 && row.shown == Shown::Tensor) continue;
    double value = kNan;
    if (stat == "error")
      value = error(id);
    else if (row.shown == Shown::Number || (row.shown == Shown::Tensor && stat == "abs_max"))
      value = row.size;
    else if (row.shown == Shown::Tensor)
      value = statistic(std::get<TensorRecord>(state.sides[side]->event(id).value).stats, stat);
    series.push_back({row.step, value});
  }
  return thinned(std::move(series), points);
}

void put_series(JsonWriter& json, const std::vector<Point>& series) {
  json.begin_array();
  for (const Point& point : series) {
    json.begin_array().number(point.step);
    write_number(json, point.value);
    json.end_array();
  }
  json.end_array();
}

std::string show_command(const State& state, std::size_t side, EventId id, const Event& event) {
  const Side& own = *state.sides[side];
  if (own.reader() == nullptr)
    return fmt::format("tenscope diff {} {}", report::shell_word(state.sides[0]->shown_path()),
                       state.is_pair() ? report::shell_word(state.sides[1]->shown_path()) : "OTHER");
  std::string command = fmt::format("tenscope show {} {} --step {} --call {}", report::shell_word(own.shown_path()),
                                    report::shell_word(event.name), event.step, event.call);
  if (own.writer_count() > 1) command += fmt::format(" --rank {}", own.rank_of(id));
  return command;
}

std::string python_expression(const State& state, std::size_t side, EventId id, const Event& event) {
  const Side& own = *state.sides[side];
  if (own.reader() == nullptr) return fmt::format("tenscope.load({})", python_text(own.shown_path()));
  const std::string run = fmt::format("tenscope.open({})", python_text(own.shown_path()));
  const std::string rank = own.writer_count() > 1 ? fmt::format(".rank({})", own.rank_of(id)) : "";
  return fmt::format("{}{}[{}, {}, {}]", run, rank, python_text(event.name), event.step, event.call);
}

// What the program itself has said that the value was made of: of each name the last event before it.
void add_named_inputs(const Side& side, const Catalog& catalog, EventId id, const Event& event,
                      std::vector<EventId>& inputs) {
  simdjson::dom::parser parser;
  simdjson::dom::array names;
  if (event.meta.empty() || parser.parse(event.meta)["inputs"].get_array().get(names)) return;
  for (const simdjson::dom::element one : names) {
    std::string_view name;
    if (one.get_string().get(name)) continue;
    const std::vector<EventId>* all = catalog.find(name);
    if (all == nullptr) continue;
    for (auto at = std::ranges::lower_bound(*all, id); at != all->begin();) {
      if (side.writer_of(*--at) != side.writer_of(id)) break;
      if (std::ranges::find(inputs, *at) == inputs.end()) inputs.push_back(*at);
      break;
    }
  }
}

// "0,5,7": numbers below `end`.
std::vector<std::size_t> read_numbers(std::string_view list, std::size_t end) {
  std::vector<std::size_t> numbers;
  for (const char *at = list.data(), *last = at + list.size(); at < last;) {
    const auto read = std::from_chars(at, last, numbers.emplace_back());
    const bool is_followed = read.ptr < last && (*read.ptr != ',' || read.ptr + 1 == last);
    if (read.ec != std::errc() || numbers.back() >= end || is_followed)
      throw Error(ErrorCode::InvalidArgument, "names are numbers of /api/names, with commas between them");
    at = read.ptr + (read.ptr < last ? 1 : 0);
  }
  return numbers;
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

}  // namespace

std::size_t side_of(const State& state, const Parameters& parameters) {
  const std::string side = parameters.text("side", "a");
  if (side == "a") return 0;
  if (side != "b") throw Error(ErrorCode::InvalidArgument, fmt::format("there is no side '{}': it is a or b", side));
  if (!state.is_pair()) throw Error(ErrorCode::NotFound, "there is one side only");
  return 1;
}

EventId event_of(const State& state, std::size_t side, const Parameters& parameters) {
  const std::int64_t number = parameters.integer("event");
  if (number < 0) throw Error(ErrorCode::InvalidArgument, "an event's number is 0 or more");
  return state.sides[side]->id_of(static_cast<EventNumber>(number));
}

std::vector<EventId> over_steps(const Side& side, const Catalog& catalog, EventId id) {
  const EventRow& row = catalog[id];
  const std::vector<EventId>* all = catalog.find(catalog.text(row.name));
  if (all == nullptr) return {id};
  std::map<std::int64_t, std::vector<EventId>> by_step;
  for (const EventId other : *all)
    if (side.rank_of(other) == side.rank_of(id) && catalog[other].io == row.io && catalog[other].phase == row.phase)
      by_step[catalog[other].step].push_back(other);
  const std::vector<EventId>& own = by_step[row.step];
  const auto place = static_cast<std::size_t>(std::ranges::find(own, id) - own.begin());
  std::vector<EventId> events;
  for (const auto& [step, calls] : by_step)
    if (place < calls.size()) events.push_back(calls[place]);
  return events;
}

std::vector<ListedName> list_names(const State& state) {
  std::vector<ListedName> names;
  const Catalog& a = *state.catalogs[0];
  for (const TextId name : a.names()) {
    const std::string_view text = a.text(name);
    names.push_back({text, &a.events_of(name), state.is_pair() ? state.catalogs[1]->find(text) : nullptr});
  }
  if (!state.is_pair()) return names;
  const Catalog& b = *state.catalogs[1];
  for (const TextId name : b.names())
    if (a.find(b.text(name)) == nullptr) names.push_back({b.text(name), nullptr, &b.events_of(name)});
  return names;
}

Answer names_answer(const State& state) {
  std::string body;
  JsonWriter json(body);
  const std::vector<ListedName> names = list_names(state);
  const auto side_of_name = [](const ListedName& name) -> std::size_t { return name.a != nullptr ? 0 : 1; };
  const auto events = [](const ListedName& name) -> const std::vector<EventId>& {
    return name.a != nullptr ? *name.a : *name.b;
  };
  const auto row = [&](const ListedName& name) -> const EventRow& {
    return (*state.catalogs[side_of_name(name)])[events(name).front()];
  };
  const auto text = [&](const ListedName& name, TextId id) -> const std::string& {
    return state.catalogs[side_of_name(name)]->text(id);
  };
  json.begin_object().key("state").text("ready").key("judged").boolean(state.pairs != nullptr);
  column(json, "name", names, [&](const ListedName& one) { json.text(one.name); });
  column(json, "module", names, [&](const ListedName& one) { json.text(text(one, row(one).scope)); });
  column(json, "io", names, [&](const ListedName& one) { json.text(to_string(row(one).io)); });
  column(json, "phase", names, [&](const ListedName& one) { json.text(to_string(row(one).phase)); });
  column(json, "kind", names, [&](const ListedName& one) { json.text(kind_of_row(row(one))); });
  column(json, "dtype", names, [&](const ListedName& one) {
    json.text(row(one).shown == Shown::Tensor ? to_string(row(one).dtype) : std::string_view());
  });
  column(json, "shape", names, [&](const ListedName& one) { json.text(text(one, row(one).shape)); });
  column(json, "events", names,
         [&](const ListedName& one) { json.number(static_cast<std::uint64_t>(events(one).size())); });
  column(json, "bad", names, [&](const ListedName& one) {
    std::uint64_t bad = 0;
    for (const EventId id : events(one)) bad += (*state.catalogs[side_of_name(one)])[id].bad;
    json.number(bad);
  });
  std::vector<Worst> worst(names.size());
  if (state.pairs != nullptr)
    for (std::size_t i = 0; i < names.size(); ++i)
      for (const EventId id : events(names[i])) worst[i].add(state.pairs->of(side_of_name(names[i]), id));
  std::size_t at = 0;
  column(json, "verdict", names, [&](const ListedName&) { json.number(worst[at++].verdict); });
  at = 0;
  column(json, "error", names, [&](const ListedName&) {
    const double error = worst[at++].error;
    if (std::isnan(error))
      json.null();
    else
      write_number(json, error);
  });
  const auto number = [&](std::size_t side, std::optional<EventId> id) {
    id ? json.number(state.sides[side]->number_of(*id)) : json.null();
  };
  const auto first_of = [](const std::vector<EventId>* ids) {
    return ids != nullptr ? std::optional(ids->front()) : std::nullopt;
  };
  column(json, "first", names, [&](const ListedName& one) { number(0, first_of(one.a)); });
  column(json, "last", names,
         [&](const ListedName& one) { number(0, one.a != nullptr ? std::optional(one.a->back()) : std::nullopt); });
  column(json, "first_b", names, [&](const ListedName& one) {
    std::optional<EventId> partner;
    if (one.a != nullptr && state.pairs != nullptr) partner = state.pairs->of(0, one.a->front()).partner;
    number(1, partner ? partner : first_of(one.b));
  });
  json.end_object();
  return json_answer(std::move(body));
}

Answer events_answer(const State& state, const Parameters& parameters) {
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const Catalog& catalog = *state.catalogs[side];
  const std::string name = parameters.text("name");
  const std::vector<EventId>* all = catalog.find(name);
  if (all == nullptr) throw Error(ErrorCode::NotFound, fmt::format("there is no value '{}'", name));
  std::vector<EventId> wanted;
  for (const EventId id : *all) {
    const bool is_wanted = (!parameters.has("step") || catalog[id].step == parameters.integer("step")) &&
                           (!parameters.has("call") || catalog[id].call == parameters.integer("call")) &&
                           (!parameters.has("rank") || own.rank_of(id) == parameters.integer("rank"));
    if (is_wanted) wanted.push_back(id);
  }
  const auto size = static_cast<std::int64_t>(wanted.size());
  const std::int64_t begin = std::clamp<std::int64_t>(parameters.integer("offset", 0), 0, size);
  const std::int64_t count = std::clamp<std::int64_t>(parameters.integer("count", 1000), 0, size - begin);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("total").number(size).key("events").begin_array();
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const EventId id = wanted[static_cast<std::size_t>(i)];
    json.begin_object();
    put_event(json, state, side, id, own.event(id));
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

Answer event_answer(const State& state, const Parameters& parameters) {
  constexpr std::size_t kMostBeside = 400;
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const EventId id = event_of(state, side, parameters);
  const Event event = own.event(id);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("side").text(side == 0 ? "a" : "b").key("name").text(event.name);
  put_event(json, state, side, id, event);
  json.key("meta");
  event.meta.empty() ? json.null() : json.text(event.meta);
  json.key("python").text(python_expression(state, side, id, event));
  json.key("command").text(show_command(state, side, id, event));
  std::optional<EventId> previous, next;
  std::vector<EventId> beside, of_module, inputs;
  if (state.catalogs[side] != nullptr && id < state.catalogs[side]->rows().size()) {
    const Catalog& catalog = *state.catalogs[side];
    const EventRow& row = catalog[id];
    if (const std::vector<EventId>* all = catalog.find(event.name)) {
      for (const EventId other : *all)
        if (catalog[other].step == row.step && beside.size() < kMostBeside) beside.push_back(other);
      for (const EventId other : over_steps(own, catalog, id)) {
        if (catalog[other].step < row.step) previous = other;
        if (catalog[other].step > row.step && !next) next = other;
      }
    }
    // What the same call of the module has besides: events near this one.
    if (row.scope != 0 || row.root != 0) {
      constexpr EventId kNear = 2000;
      const std::size_t writer = own.writer_of(id);
      const EventId first = own.first_event(writer), end = static_cast<EventId>(first + own.event_count(writer));
      std::set<TextId> seen;
      for (EventId other = id - std::min(id - first, kNear); other < std::min<EventId>(end, id + kNear); ++other) {
        if (other >= catalog.rows().size()) break;
        const EventRow& near = catalog[other];
        const bool is_of_it = near.is_value() && near.scope == row.scope && near.root == row.root &&
                              near.step == row.step && near.call == row.call;
        if (!is_of_it || other == id || !seen.insert(near.name).second || of_module.size() == kMostBeside) continue;
        of_module.push_back(other);
        if (near.io == Io::Input && row.io == Io::Output) inputs.push_back(other);
      }
    }
    add_named_inputs(own, catalog, id, event, inputs);
  }
  json.key("previous");
  put_event_number(json, own, previous);
  json.key("next");
  put_event_number(json, own, next);
  for (const bool is_of_ranks : {false, true}) {
    json.key(is_of_ranks ? "ranks" : "calls").begin_array();
    for (const EventId other : beside) {
      const bool is_same_rank = own.rank_of(other) == own.rank_of(id);
      const bool is_same_call = state.catalogs[side]->rows()[other].call == event.call;
      if (is_of_ranks ? !is_same_call : !is_same_rank) continue;
      json.begin_object().key("id").number(own.number_of(other)).key("rank").number(own.rank_of(other));
      json.key("call").number(state.catalogs[side]->rows()[other].call).end_object();
    }
    json.end_array();
  }
  for (const auto& [title, list] : {std::pair{"inputs", &inputs}, {"same_module", &of_module}}) {
    json.key(title).begin_array();
    for (const EventId other : *list) {
      const EventRow& row = (*state.catalogs[side])[other];
      json.begin_object().key("id").number(own.number_of(other)).key("name");
      json.text(state.catalogs[side]->text(row.name)).end_object();
    }
    json.end_array();
  }
  json.end_object();
  return json_answer(std::move(body));
}

Answer series_answer(const State& state, const Parameters& parameters) {
  const std::string stat = parameters.text("stat", "abs_max"), list = parameters.text("names", "");
  const auto points = static_cast<std::size_t>(std::clamp<std::int64_t>(parameters.integer("points", 200), 2, 10000));
  if (stat != "error") statistic({}, stat);  // throws where there is no such statistic
  const std::vector<ListedName> names = list_names(state);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("series").begin_array();
  for (const std::size_t number : parameters.has("names") ? read_numbers(list, names.size()) : all_of(names.size())) {
    json.begin_object();
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const std::vector<EventId>* events = side == 0 ? names[number].a : names[number].b;
      json.key(side == 0 ? "a" : "b");
      put_series(json, events != nullptr ? series_of(state, side, *events, stat, points) : std::vector<Point>());
    }
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
