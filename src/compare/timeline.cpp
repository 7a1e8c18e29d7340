#include "compare/timeline.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "compare/event_item.hpp"
#include "compare/thresholds.hpp"
#include "kernels/parallel.hpp"
#include "store/read_file.hpp"
#include "store/shards.hpp"

namespace tenscope::compare {
namespace {

// Bools, integers, all zero, or nothing but 0 and very negative numbers, as masks are that are added to scores.
bool is_neutral(const TensorRecord& tensor) {
  const Stats& stats = tensor.stats;
  if (kind_of(tensor.dtype) != DTypeKind::Float) return true;
  if (stats.zero == stats.count) return true;
  return stats.nan == 0 && stats.pos_inf == 0 && (stats.neg_inf > 0 || stats.min <= thresholds::kMasked) &&
         !(stats.max > 0);
}

void set_value(Item& item, const EventValue& value, Interner& interner) {
  if (const auto* tensor = std::get_if<TensorRecord>(&value)) {
    set_tensor(item, *tensor, interner);
  } else if (const auto* number = std::get_if<double>(&value)) {
    item.value = ValueKind::Float;
    item.number = *number;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    item.value = ValueKind::Integer;
    item.integer = *integer;
  } else if (const auto* truth = std::get_if<bool>(&value)) {
    item.value = ValueKind::Bool;
    item.integer = *truth ? 1 : 0;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    item.value = ValueKind::Text;
    item.text = interner.text(*text);
  } else if (const auto* big = std::get_if<BigInt>(&value)) {
    item.value = ValueKind::BigInteger;
    item.text = interner.text(big->digits);
  } else if (std::holds_alternative<std::nullptr_t>(value)) {
    item.value = ValueKind::Null;
  }
}

// A value that is not in the journal: an empty dict, list or tuple, and what record() describes by a text.
void set_value_from_meta(Item& item, const std::string& meta, Interner& interner) {
  if (item.value == ValueKind::Text) item.is_description = meta.find("\"unsupported\"") != std::string::npos;
  if (item.value != ValueKind::None || meta.find("\"empty\"") == std::string::npos) return;
  simdjson::dom::parser parser;
  std::string_view what;
  if (parser.parse(meta)["empty"].get(what) != simdjson::SUCCESS) return;
  item.value = ValueKind::Text;
  item.text = interner.text("an empty " + std::string(what));
}

// What a module call raised, from the meta of its exit.
std::string raised_by(const std::string& meta) {
  if (meta.find("\"raised\"") == std::string::npos) return {};
  simdjson::dom::parser parser;
  std::string_view raised;
  if (parser.parse(meta)["raised"].get(raised) != simdjson::SUCCESS) return {};
  return std::string(raised);
}

// What the first call of a module says of it; of a later one what has changed since, if anything.
std::string_view description_in(const std::string& meta) {
  for (const char* const word : {"\"arguments\"", "\"changed\"", "\"gone\""})
    if (meta.find(word) != std::string::npos) return meta;
  return {};
}

int training_in(const std::string& meta) {
  constexpr std::string_view kTraining = "\"training\":";
  const std::size_t at = meta.find(kTraining);
  if (at == std::string::npos) return -1;
  const std::size_t word = meta.find_first_not_of(' ', at + kTraining.size());
  return word == std::string::npos ? -1 : meta.compare(word, 4, "true") == 0 ? 1 : 0;
}

// Which part of a tensor this is: its coordinate along each axis of the mesh along which it is not replicated.
std::string part_in(const std::string& meta) {
  const auto shard = store::parse_shard(meta);
  std::string part;
  for (std::size_t i = 0; shard && i < shard->placements.size(); ++i) {
    if (shard->placements[i] == "R") continue;
    if (!part.empty()) part += ' ';
    part.append(shard->placements[i]).append("@").append(std::to_string(shard->coordinate[i]));
  }
  return part;
}

}  // namespace

Item make_item(const Event& event, EventId id, Interner& interner) {
  Item item;
  item.event = id;
  item.kind = event.kind;
  item.io = event.io;
  item.phase = event.phase;
  item.name = interner.text(event.name);
  item.scope = interner.text(event.scope);
  item.root = interner.text(event.root);
  item.cls = interner.text(event.cls);
  item.site = interner.text(event.site);
  const std::string_view tail = name_in_scope(event.name, event.scope);
  item.tail = interner.text(tail);
  item.parameter = item.io == Io::Grad ? interner.text(parameter_of_gradient(tail)) : item.tail;
  item.step = event.step;
  item.call = event.call;
  item.thread = event.thread;
  set_value(item, event.value, interner);
  if (item.is_tensor()) item.part = interner.text(part_in(event.meta));
  if (item.kind == EventKind::Value || item.kind == EventKind::Change) set_value_from_meta(item, event.meta, interner);
  if (event.kind == EventKind::Note && item.text == 0) item.text = interner.text(event.meta);
  if (event.kind == EventKind::Enter) {
    item.text = interner.text(description_in(event.meta));
    item.integer = training_in(event.meta);
  }
  if (event.kind == EventKind::Exit) item.text = interner.text(raised_by(event.meta));
  return item;
}

void set_tensor(Item& item, const TensorRecord& tensor, Interner& interner) {
  item.value = ValueKind::Tensor;
  item.has_bytes = tensor.has_bytes();
  item.dtype = tensor.dtype;
  item.fingerprint = tensor.fingerprint;
  item.abs_max = tensor.stats.abs_max;
  item.is_neutral = is_neutral(tensor);
  std::string shape;
  for (const std::int64_t size : tensor.shape) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  item.shape = interner.text(shape);
}

TextId Interner::text(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const auto id = static_cast<TextId>(texts_.size());
  ids_.emplace(texts_.emplace_back(text), id);
  return id;
}

std::string type_name(const Item& item) {
  constexpr std::array<std::string_view, 8> kNames = {"nothing", "None", "bool", "int", "float", "int", "text", ""};
  return std::string(item.is_tensor() ? to_string(item.dtype) : kNames[static_cast<std::size_t>(item.value)]);
}

bool is_same_value(const Item& x, const Item& y) noexcept {
  if (x.value != y.value) return false;
  switch (x.value) {
    case ValueKind::None:
    case ValueKind::Null:
      return true;
    case ValueKind::Bool:
    case ValueKind::Integer:
      return x.integer == y.integer;
    case ValueKind::Float:  // the journal knows one NaN
      return std::bit_cast<std::uint64_t>(x.number) == std::bit_cast<std::uint64_t>(y.number) ||
             (std::isnan(x.number) && std::isnan(y.number));
    case ValueKind::BigInteger:
    case ValueKind::Text:
      return x.text == y.text;
    case ValueKind::Tensor:
      return x.fingerprint == y.fingerprint && x.dtype == y.dtype && x.shape == y.shape;
  }
  return false;
}

namespace {

struct ReadLane {
  Lane lane;
  Interner interner;
};

Lane read_lane(const Reader& reader, std::size_t writer, Interner& interner) {
  const WriterInfo& info = reader.writers()[writer];
  Lane lane{.rank = info.rank, .ordinal = 0, .items = {}};
  lane.items.reserve(info.event_count);
  const EventId first = reader.first_event(writer);
  for (EventId id = first; id < first + info.event_count; ++id) {
    const Event event = reader.event(id);
    if (is_beside(event)) continue;
    Item& item = lane.items.emplace_back(make_item(event, id, interner));
    if (item.is_tensor()) item.has_bytes = reader.has_bytes(id, std::get<TensorRecord>(event.value));
  }
  return lane;
}

bool has_content(const Lane& lane) {
  return std::any_of(lane.items.begin(), lane.items.end(), [](const Item& item) {
    return item.kind == EventKind::Value || item.kind == EventKind::Change || item.kind == EventKind::Enter;
  });
}

// Writers come by rank.
void add(Lane lane, Timeline& timeline) {
  if (!has_content(lane)) return;
  const bool is_another = !timeline.lanes.empty() && timeline.lanes.back().rank == lane.rank;
  lane.ordinal = is_another ? timeline.lanes.back().ordinal + 1 : 0;
  timeline.lanes.push_back(std::move(lane));
}

// The number that `into` has for each text of `from`.
std::vector<TextId> numbers_in(Interner& into, const Interner& from) {
  std::vector<TextId> ids(from.size());
  for (TextId id = 0; id < ids.size(); ++id) ids[id] = into.text(from.text(id));
  return ids;
}

void renumber(Lane& lane, const std::vector<TextId>& ids) {
  for (Item& item : lane.items)
    for (TextId* id : {&item.name, &item.scope, &item.root, &item.cls, &item.site, &item.tail, &item.parameter,
                       &item.shape, &item.part, &item.text})
      *id = ids[*id];
}

}  // namespace

// Writers are read on several threads, each with an interner of its own; in their order, the texts get the numbers that
// one thread would give them.
Timeline read_timeline(const Reader& reader, Interner& interner) {
  const std::size_t writers = reader.writers().size();
  Timeline timeline;
  kernels::make_in_order(
      writers, kernels::worker_count(writers, store::most_open_files()),
      [&](std::size_t writer) {
        ReadLane read;
        read.lane = read_lane(reader, writer, read.interner);
        return read;
      },
      [&](ReadLane read) {
        renumber(read.lane, numbers_in(interner, read.interner));
        add(std::move(read.lane), timeline);
      });
  return timeline;
}

Timeline read_timeline(const Reader& reader, int rank, Interner& interner) {
  const auto writers = reader.writers();
  const auto [begin, end] = std::ranges::equal_range(writers, rank, {}, &WriterInfo::rank);
  Timeline timeline;
  for (auto writer = begin; writer != end; ++writer)
    add(read_lane(reader, static_cast<std::size_t>(writer - writers.begin()), interner), timeline);
  return timeline;
}

void translate(Timeline& timeline, const Interner& from, Interner& into) {
  const std::vector<TextId> ids = numbers_in(into, from);
  for (Lane& lane : timeline.lanes) renumber(lane, ids);
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
