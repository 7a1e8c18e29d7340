// Overview: events become cells of a table, steps against modules. A cell tells the worst that was said of what the
// module gives at that step, how large its error is, and how much of it the module has added to what it was given.
#include "viewer/overview.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "report/graph.hpp"
#include "viewer/json.hpp"

namespace tenscope::viewer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kStarts = static_cast<int>(PairVerdict::Starts);

enum class Way : std::uint8_t { Forward, Backward, Kept };  // Kept: parameters and buffers

struct Module {
  std::string root, path, cls;
  std::size_t side = 0;    // whose name it is; 1: the first side has no such module
  bool is_shared = false;  // the other side has it, too
};

// The worst of some events.
struct Worst {
  int verdict = -1;
  double error = kNan;
  std::optional<EventId> event;
  std::size_t side = 0;  // whose event it is

  void add(int other_verdict, double other_error, EventId other, std::size_t other_side) {
    const bool is_worse = other_verdict > verdict || (other_verdict == verdict && other_error > error) || !event;
    if (is_worse) {
      event = other;
      side = other_side;
    }
    verdict = std::max(verdict, other_verdict);
    if (!std::isnan(other_error) && !(error >= other_error)) error = other_error;
  }
  void add(const Worst& other) { add(other.verdict, other.error, *other.event, other.side); }
};

struct Cell {
  Worst given, received;
  double size = std::numeric_limits<double>::quiet_NaN();  // of the largest finite value, NaN where there is none
  std::uint64_t bad = 0;

  bool has_given() const { return given.event.has_value(); }
  const Worst& shown() const { return has_given() ? given : received; }
  double adds(Way way) const {
    if (!has_given() || given.verdict <= 0) return 0;
    if (given.verdict == kStarts) return 1;
    if (way == Way::Kept || std::isnan(given.error) || given.error <= 0) return 0;
    const double before = std::isnan(received.error) ? 0 : received.error;
    return std::clamp(1 - before / given.error, 0.0, 1.0);
  }
};

Way way_of(const EventRow& row) {
  switch (row.io) {
    case Io::GradOutput:
    case Io::GradInput:
    case Io::Grad:
      return Way::Backward;
    case Io::Param:
    case Io::Buffer:
      return Way::Kept;
    default:
      return Way::Forward;
  }
}

// Operations happen inside of a module: what it gives is told by other events, and a mask is made of infinities.
bool is_inside(const EventRow& row) { return row.io == Io::Op || row.io == Io::Oracle; }

bool is_received(const EventRow& row) { return row.io == Io::Input || row.io == Io::GradOutput; }

class CellTable {
 public:
  explicit CellTable(const State& state) : state_(state) {
    steps_ = state.catalogs[0]->steps();
    if (state.is_pair()) {
      const std::vector<std::int64_t>& other = state.catalogs[1]->steps();
      steps_.insert(steps_.end(), other.begin(), other.end());
      std::ranges::sort(steps_);
      steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
    }
    for (std::size_t side = 0; side < (state.is_pair() ? 2 : 1); ++side) add_side(side);
    add_modules();
    name_groups();
    add_starts();
  }

  const std::vector<std::int64_t>& steps() const { return steps_; }
  std::size_t steps_together() const { return together_; }
  const std::vector<Module>& modules() const { return modules_; }
  using Key = std::tuple<std::size_t, std::size_t, Way>;  // module, step, way
  const std::map<Key, Cell>& cells() const { return cells_; }

 private:
  // Where modules are recorded, values belong to them; other values stand for themselves.
  void add_side(std::size_t side) {
    const Catalog& catalog = *state_.catalogs[side];
    std::map<std::pair<TextId, TextId>, std::size_t> own;  // by root and path, or 0 and the name
    const Rows& rows = catalog.rows();
    // In the order of the calls, which is not that of the parameters at the start.
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const EventRow& row = rows[i];
      if (row.root != 0 && row.is_value() && row.phase != Phase::Init &&
          !is_told_before(side, static_cast<EventId>(i)) && !own.contains({row.root, row.scope}))
        own.emplace(std::pair(row.root, row.scope), module_of(catalog, row, side));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const EventRow& row = rows[i];
      if (row.is_unreadable || !row.is_value() || row.shown == Shown::Text || row.shown == Shown::Nothing) continue;
      const auto id = static_cast<EventId>(i);
      Pairs::One pair{.error = kNan};
      if (state_.pairs != nullptr) pair = state_.pairs->of(side, id);
      if (is_told_before(side, id) || is_inside(row)) continue;
      const bool is_module = row.root != 0;
      const std::pair<TextId, TextId> key{is_module ? row.root : 0, is_module ? row.scope : row.name};
      const auto known = own.find(key);
      const std::size_t module =
          known != own.end() ? known->second : own.emplace(key, module_of(catalog, row, side)).first->second;
      if (pair.partner) modules_[module].is_shared = true;
      const auto step = static_cast<std::size_t>(std::ranges::lower_bound(steps_, row.step) - steps_.begin());
      if (cells_.size() >= kMostCells) group_steps();
      Cell& cell = cells_[{module, step / together_, way_of(row)}];
      if (is_received(row)) {
        cell.received.add(pair.verdict, pair.error, id, side);
        continue;
      }
      cell.given.add(pair.verdict, pair.error, id, side);
      if (std::isfinite(row.size)) cell.size = std::fmax(cell.size, std::abs(row.size));
      cell.bad += row.bad;
    }
  }

  // An event of the second side is told with its partner.
  bool is_told_before(std::size_t side, EventId id) const {
    return side == 1 && state_.pairs != nullptr && state_.pairs->of(side, id).partner.has_value();
  }

  std::size_t module_of(const Catalog& catalog, const EventRow& row, std::size_t side) {
    const bool is_module = row.root != 0;
    Module module{.root = catalog.text(row.root),
                  .path = catalog.text(is_module ? row.scope : row.name),
                  .cls = is_module ? catalog.text(row.cls) : std::string(),
                  .side = side};
    const auto [place, is_new] = by_path_.try_emplace({module.root, module.path}, modules_.size());
    if (is_new)
      modules_.push_back(std::move(module));
    else if (modules_[place->second].side != side)
      modules_[place->second].is_shared = true;
    return place->second;
  }

  // Runs that are laid out differently are compared by whole tensors, which no event has: then what is known of each
  // module is what was said of all of it.
  void add_modules() {
    const RunDiff* diff = state_.finding != nullptr ? std::get_if<RunDiff>(state_.finding.get()) : nullptr;
    const auto is_judged = [](const auto& cell) { return cell.second.shown().verdict >= 0; };
    if (diff == nullptr || std::ranges::any_of(cells_, is_judged)) return;
    const auto verdict = [](PairVerdict of) { return static_cast<int>(of); };
    for (const DiffModule& one : diff->modules) {
      const auto module = by_path_.find({one.root, one.module});
      if (module == by_path_.end()) continue;
      const Way way = one.phase == "backward"                           ? Way::Backward
                      : one.phase == "optimizer" || one.phase == "init" ? Way::Kept
                                                                        : Way::Forward;
      const auto step =
          static_cast<std::size_t>(std::ranges::lower_bound(steps_, one.step) - steps_.begin()) / together_;
      for (auto it = cells_.lower_bound({module->second, 0, Way::Forward});
           it != cells_.end() && std::get<0>(it->first) == module->second; ++it) {
        const bool is_before = std::pair(std::get<1>(it->first), std::get<2>(it->first)) < std::pair(step, way);
        Worst& shown = it->second.has_given() ? it->second.given : it->second.received;
        if (one.is_unknown)
          shown.verdict = verdict(PairVerdict::Unknown);
        else if (one.is_bit_equal)
          shown.verdict = verdict(PairVerdict::Equal);
        else
          shown.verdict = verdict(one.is_within_tolerance || is_before ? PairVerdict::Noise : PairVerdict::Follows);
      }
    }
  }

  // So many steps that nobody can look at each of them are put together, twice as many as before.
  void group_steps() {
    if (together_ >= steps_.size()) return;
    together_ *= 2;
    std::map<Key, Cell> grouped;
    while (!cells_.empty()) {
      const auto node = cells_.extract(cells_.begin());
      const auto& [module, step, way] = node.key();
      const Cell& cell = node.mapped();
      Cell& into = grouped[{module, step / 2, way}];
      if (cell.given.event) into.given.add(cell.given);
      if (cell.received.event) into.received.add(cell.received);
      into.size = std::fmax(into.size, cell.size);
      into.bad += cell.bad;
    }
    cells_ = std::move(grouped);
  }

  void name_groups() {
    std::vector<std::int64_t> steps;
    for (std::size_t i = 0; i < steps_.size(); i += together_) steps.push_back(steps_[i]);
    steps_ = std::move(steps);
  }

  // A module may be blamed for what it gives to one inside it: the difference starts in the module that is blamed.
  void add_starts() {
    const RunDiff* diff = state_.finding != nullptr ? std::get_if<RunDiff>(state_.finding.get()) : nullptr;
    if (diff == nullptr) return;
    for (const DiffOrigin& origin : diff->origins) {
      const auto module = by_path_.find({origin.place.root, origin.place.module});
      if (module == by_path_.end() || !origin.event_a) continue;
      const auto step = static_cast<std::size_t>(std::ranges::upper_bound(steps_, origin.place.step) - steps_.begin());
      if (step == 0) continue;
      const std::optional<EventId> event = find_event(*state_.sides[0], *state_.catalogs[0], origin.event_a->name,
                                                      origin.event_a->step, origin.event_a->call, origin.place.rank);
      if (!event) continue;
      Cell& cell = cells_[{module->second, step - 1, way_of((*state_.catalogs[0])[*event])}];
      cell.given.verdict = kStarts;
      cell.given.event = event;
      cell.given.side = 0;
      if (std::isnan(cell.given.error)) cell.given.error = origin.metrics.rel_l2;
    }
  }

  static constexpr std::size_t kMostCells = 200'000;

  const State& state_;
  std::vector<std::int64_t> steps_;
  std::size_t together_ = 1;
  std::vector<Module> modules_;
  std::map<std::pair<std::string, std::string>, std::size_t> by_path_;
  std::map<Key, Cell> cells_;
};

std::size_t depth_of(const std::string& path) {
  return path.empty() ? 0 : 1 + static_cast<std::size_t>(std::ranges::count(path, '.'));
}

// What a module of the first run is called in the second, where that is another name.
std::optional<std::string> other_name(const RunDiff* diff, const std::string& path) {
  if (diff == nullptr) return std::nullopt;
  for (const DiffRenamed& renamed : diff->renamed) {
    if (path == renamed.a) return renamed.b;
    if (path.size() > renamed.a.size() && path.starts_with(renamed.a) && path[renamed.a.size()] == '.')
      return renamed.b + path.substr(renamed.a.size());
  }
  return std::nullopt;
}

const RunDiff* diff_of(const State& state) {
  return state.finding != nullptr ? std::get_if<RunDiff>(state.finding.get()) : nullptr;
}

void put_or_null(JsonWriter& json, double value) {
  if (std::isnan(value))
    json.null();
  else
    write_number(json, value);
}

class ModuleWriter {
 public:
  ModuleWriter(JsonWriter& json, const State& state) : json_(json), state_(state) {
    const CellTable table(state);
    for (const auto& [key, cell] : table.cells()) {
      const auto& [module, step, way] = key;
      const Module& of = table.modules()[module];
      Sum& sum = sums_[{of.root, of.path}];
      sum.bad += cell.bad;
      if (way != Way::Forward) continue;
      if (!(sum.error >= cell.shown().error) && !std::isnan(cell.shown().error)) sum.error = cell.shown().error;
      sum.adds = std::max(sum.adds, cell.adds(way));
    }
  }

  void write(const report::ModuleForest& forest) { write_siblings(forest, -1); }

  // A module that is in the second run only.
  void write_alone(const DiffUnmatched& one) {
    json_.begin_object().key("id").number(next_++).key("parent").number(-1);
    json_.key("name").text(one.module).key("root").text(one.root).key("path").text(one.module);
    json_.key("class").text(one.cls).key("calls").null().key("duration_s").null().key("own_s").null();
    json_.key("inputs").begin_array().end_array().key("outputs").begin_array().end_array();
    json_.key("nonfinite").text("none").key("diff").text("alone").key("error").null().key("adds").number(0.0);
    json_.key("renamed").null().key("fold").null().key("side").text("b").end_object();
  }

 private:
  struct Sum {
    double error = kNan, adds = 0;
    std::uint64_t bad = 0;
  };
  using Node = report::ModuleTreeNode;

  // "blocks" of "blocks.3": the name before a number at its end.
  static std::optional<std::string> numbered(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    const std::string_view last = std::string_view(name).substr(dot == std::string::npos ? 0 : dot + 1);
    if (last.empty() || !std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
  }

  static std::string structure(const Node& node) {
    std::string text = node.facts.cls + "(";
    for (const auto& child : node.children) text += child->name + ":" + structure(*child) + ",";
    return text + ")";
  }

  void write_siblings(const report::ModuleForest& siblings, std::int64_t parent) {
    std::map<std::string, std::size_t> alike;
    std::vector<std::string> keys;
    for (const auto& node : siblings) {
      const auto name = numbered(node->name);
      keys.push_back(name ? *name + "|" + structure(*node) : "");
      if (name) ++alike[keys.back()];
    }
    for (std::size_t i = 0; i < siblings.size(); ++i) {
      const std::size_t count = keys[i].empty() ? 0 : alike[keys[i]];
      std::string fold;
      if (count > 1) {
        const std::string name = keys[i].substr(0, keys[i].find('|'));
        fold = fmt::format("{} × {}", name.empty() ? siblings[i]->facts.cls : name, count);
      }
      write_node(*siblings[i], parent, fold);
    }
  }

  void write_node(const Node& node, std::int64_t parent, const std::string& fold) {
    const report::ModuleFacts& facts = node.facts;
    const std::string path = facts.paths.empty() ? std::string() : facts.paths.front();
    const std::int64_t id = next_++;
    const Sum sum = sums_.contains({facts.root, path}) ? sums_.at({facts.root, path}) : Sum();
    const auto shapes = [&](std::string_view name, const std::vector<std::vector<std::int64_t>>& list) {
      json_.key(name).begin_array();
      for (const std::vector<std::int64_t>& shape : list) {
        std::string text;
        for (const std::int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : "×", size);
        json_.text(text);
      }
      json_.end_array();
    };
    json_.begin_object().key("id").number(id).key("parent").number(parent).key("name").text(node.name);
    json_.key("root").text(facts.root).key("path").text(path).key("class").text(facts.cls);
    json_.key("calls").number(facts.calls);
    json_.key("duration_s").number(static_cast<double>(facts.duration_ns) / 1e9);
    json_.key("own_s").number(static_cast<double>(facts.own_ns) / 1e9);
    shapes("inputs", facts.inputs);
    shapes("outputs", facts.outputs);
    json_.key("nonfinite").text(to_string(facts.nonfinite)).key("diff").text(to_string(facts.diff)).key("error");
    put_or_null(json_, sum.error);
    json_.key("adds").number(sum.adds).key("renamed");
    const auto renamed = other_name(diff_of(state_), path);
    renamed ? json_.text(*renamed) : json_.null();
    json_.key("fold");
    fold.empty() ? json_.null() : json_.text(fold);
    json_.key("side").text(facts.diff == report::DiffState::Alone ? "a" : "both").end_object();
    write_siblings(node.children, id);
  }

  JsonWriter& json_;
  const State& state_;
  std::map<std::pair<std::string, std::string>, Sum> sums_;
  std::int64_t next_ = 0;
};

}  // namespace

Answer timeline_answer(const State& state) {
  const CellTable table(state);
  const RunDiff* diff = diff_of(state);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("state").text("ready").key("judged").boolean(state.pairs != nullptr);
  json.key("steps").begin_array();
  for (const std::int64_t step : table.steps()) json.number(step);
  json.end_array().key("steps_together").number(static_cast<std::uint64_t>(table.steps_together()));
  json.key("modules").begin_array();
  for (const Module& module : table.modules()) {
    json.begin_object().key("root").text(module.root).key("path").text(module.path).key("class").text(module.cls);
    json.key("depth").number(static_cast<std::uint64_t>(depth_of(module.path))).key("renamed");
    const auto renamed = other_name(diff, module.path);
    renamed ? json.text(*renamed) : json.null();
    const bool is_alone = state.is_pair() && state.pairs != nullptr && !module.is_shared;
    json.key("side").text(!is_alone ? "both" : module.side == 1 ? "b" : "a").end_object();
  }
  json.end_array().key("cells").begin_object();
  const auto column = [&](std::string_view title, auto write) {
    json.key(title).begin_array();
    for (const auto& [key, cell] : table.cells()) write(key, cell);
    json.end_array();
  };
  column("module", [&](const auto& key, const Cell&) { json.number(static_cast<std::uint64_t>(std::get<0>(key))); });
  column("step", [&](const auto& key, const Cell&) { json.number(static_cast<std::uint64_t>(std::get<1>(key))); });
  column("phase", [&](const auto& key, const Cell&) { json.number(static_cast<int>(std::get<2>(key))); });
  column("verdict", [&](const auto&, const Cell& cell) { json.number(cell.shown().verdict); });
  column("error", [&](const auto&, const Cell& cell) { put_or_null(json, cell.shown().error); });
  column("adds", [&](const auto& key, const Cell& cell) { json.number(cell.adds(std::get<2>(key))); });
  column("size", [&](const auto&, const Cell& cell) { write_number(json, cell.size); });
  column("bad", [&](const auto&, const Cell& cell) { json.number(cell.bad); });
  column("side", [&](const auto&, const Cell& cell) { json.text(cell.shown().side == 0 ? "a" : "b"); });
  column("event", [&](const auto&, const Cell& cell) {
    put_event_number(json, *state.sides[cell.shown().side], cell.shown().event);
  });
  json.end_object().key("left_out").number(0).end_object();
  return json_answer(std::move(body));
}

Answer modules_answer(const State& state) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("state").text("ready").key("judged").boolean(state.pairs != nullptr).key("nodes");
  json.begin_array();
  if (const Reader* reader = state.sides[0]->reader()) {
    report::ModuleForest forest = report::read_modules(*reader);
    const RunDiff* diff = diff_of(state);
    if (diff != nullptr) report::add_diff(forest, *diff);
    ModuleWriter writer(json, state);
    writer.write(forest);
    if (diff != nullptr)
      for (const DiffUnmatched& one : diff->unmatched)
        if (one.side == 1 && one.name.empty()) writer.write_alone(one);
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
