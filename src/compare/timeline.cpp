#include "compare/timeline.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace tenscope::compare {
namespace {

constexpr std::array<std::string_view, 10> kIoNames = {"",     "input", "output", "grad_output", "grad_input",
                                                       "loss", "grad",  "param",  "buffer",      "local"};
constexpr std::array<std::string_view, 5> kPhaseNames = {"", "init", "forward", "backward", "optimizer"};

template <class Enum, std::size_t N>
Enum parse(const std::array<std::string_view, N>& names, std::string_view name) noexcept {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? Enum{} : static_cast<Enum>(found - names.begin());
}

std::string_view without_scope(std::string_view name, std::string_view scope) noexcept {
  if (scope.empty() || !name.starts_with(scope)) return name;
  if (name.size() == scope.size()) return {};
  return name[scope.size()] == '.' ? name.substr(scope.size() + 1) : name;
}

void set_value(Item& item, const EventValue& value, Interner& interner) {
  if (const auto* tensor = std::get_if<TensorRecord>(&value)) {
    item.is_tensor = true;
    item.has_bytes = tensor->has_bytes();
    item.dtype = tensor->dtype;
    item.fingerprint = tensor->fingerprint;
    item.abs_max = tensor->stats.abs_max;
    std::string shape;
    for (const std::int64_t size : tensor->shape) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    item.shape = interner.text(shape);
  } else if (const auto* number = std::get_if<double>(&value)) {
    item.number = *number;
    item.has_number = true;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    item.number = static_cast<double>(*integer);
    item.has_number = true;
  } else if (const auto* truth = std::get_if<bool>(&value)) {
    item.number = *truth ? 1 : 0;
    item.has_number = true;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    item.text = interner.text(*text);
  } else if (const auto* big = std::get_if<BigInt>(&value)) {
    item.text = interner.text(big->digits);
  }
}

Item make_item(const Event& event, EventId id, Interner& interner) {
  Item item;
  item.event = id;
  item.kind = event.kind;
  item.io = parse_io(event.io);
  item.phase = parse_phase(event.phase);
  item.name = interner.text(event.name);
  item.scope = interner.text(event.scope);
  item.root = interner.text(event.root);
  item.cls = interner.text(event.cls);
  item.site = interner.text(event.site);
  item.tail = interner.text(without_scope(event.name, event.scope));
  item.step = event.step;
  item.call = event.call;
  item.thread = event.thread;
  set_value(item, event.value, interner);
  if (event.kind == EventKind::Note) item.text = interner.text(event.meta);
  return item;
}

}  // namespace

TextId Interner::text(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const auto id = static_cast<TextId>(texts_.size());
  ids_.emplace(texts_.emplace_back(text), id);
  return id;
}

Io parse_io(std::string_view io) noexcept { return parse<Io>(kIoNames, io); }
Phase parse_phase(std::string_view phase) noexcept { return parse<Phase>(kPhaseNames, phase); }
std::string_view to_string(Io io) noexcept { return kIoNames[static_cast<std::size_t>(io)]; }
std::string_view to_string(Phase phase) noexcept { return kPhaseNames[static_cast<std::size_t>(phase)]; }

Timeline read_timeline(const Reader& reader, Interner& interner) {
  const auto writers = reader.writers();
  std::vector<Lane> lanes(writers.size());
  for (std::size_t i = 0; i < writers.size(); ++i) {
    lanes[i].rank = writers[i].rank;
    lanes[i].items.reserve(writers[i].event_count);
  }
  for (EventId id = 0; id < reader.event_count(); ++id)
    lanes[reader.writer_index(id)].items.push_back(make_item(reader.event(id), id, interner));

  Timeline timeline;
  std::map<int, std::size_t> seen;
  for (Lane& lane : lanes) {
    const bool has_content = std::any_of(lane.items.begin(), lane.items.end(), [](const Item& item) {
      return item.kind == EventKind::Value || item.kind == EventKind::Change || item.kind == EventKind::Enter;
    });
    if (!has_content) continue;
    lane.ordinal = seen[lane.rank]++;
    timeline.lanes.push_back(std::move(lane));
  }
  std::stable_sort(timeline.lanes.begin(), timeline.lanes.end(),
                   [](const Lane& x, const Lane& y) { return x.rank < y.rank; });
  return timeline;
}

void translate(Timeline& timeline, const Interner& from, Interner& into) {
  std::vector<TextId> ids(from.size());
  for (TextId id = 0; id < ids.size(); ++id) ids[id] = into.text(from.text(id));
  for (Lane& lane : timeline.lanes)
    for (Item& item : lane.items)
      for (TextId* id :
           {&item.name, &item.scope, &item.root, &item.cls, &item.site, &item.tail, &item.shape, &item.text})
        *id = ids[*id];
}

std::string_view parent_path(std::string_view path) noexcept {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view last_part(std::string_view path) noexcept {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string join_path(std::string_view parent, std::string_view part) {
  if (parent.empty()) return std::string(part);
  if (part.empty()) return std::string(parent);
  return std::string(parent) + "." + std::string(part);
}

}  // namespace tenscope::compare
