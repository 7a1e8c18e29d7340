#include "viewer/json.hpp"

#include <fmt/format.h>

#include <cmath>

#include "report/values.hpp"
#include "store/shards.hpp"

namespace tenscope::viewer {

void put_event_number(JsonWriter& json, const Side& side, std::optional<EventId> id) {
  id ? json.number(side.number_of(*id)) : json.null();
}

namespace {

void put_stats(JsonWriter& json, const TensorRecord& tensor) {
  const Stats& stats = tensor.stats;
  json.begin_object().key("count").number(stats.count);
  for (const auto& [name, value] :
       {std::pair{"mean", stats.mean}, {"std", stats.std}, {"l2", stats.l2}, {"abs_max", stats.abs_max}}) {
    json.key(name);
    write_number(json, value);
  }
  for (const bool is_max : {false, true}) {
    json.key(is_max ? "max" : "min");
    const bool is_wide = tensor.dtype == DType::I64 || tensor.dtype == DType::U64;
    if (is_wide)
      json.text(report::extreme_text(tensor, is_max));
    else
      write_number(json, is_max ? stats.max : stats.min);
  }
  json.key("nan").number(stats.nan).key("pos_inf").number(stats.pos_inf).key("neg_inf").number(stats.neg_inf);
  json.key("zero").number(stats.zero).key("subnormal").number(stats.subnormal).end_object();
}

}  // namespace

void put_value(JsonWriter& json, const Side& side, EventId id, const Event& event) {
  if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
    json.key("tensor").begin_object().key("dtype").text(to_string(tensor->dtype)).key("shape");
    report::write_shape(json, tensor->shape);
    json.key("stats");
    put_stats(json, *tensor);
    json.key("has_bytes").boolean(side.has_bytes(id, *tensor)).key("fingerprint").text(tensor->fingerprint.hex());
    json.key("device").text(tensor->device).key("shard");
    const std::optional<Shard> shard = store::parse_shard(event.meta);
    shard ? json.raw(store::shard_json(*shard)) : json.null();
    json.end_object();
    return;
  }
  constexpr std::int64_t kPrecise = std::int64_t{1} << 53;  // a page's numbers are doubles
  json.key("value");
  if (const auto* real = std::get_if<double>(&event.value))
    write_number(json, *real);
  else if (const auto* integer = std::get_if<std::int64_t>(&event.value))
    *integer > -kPrecise && *integer < kPrecise ? json.number(*integer) : json.text(fmt::format("{}", *integer));
  else if (const auto* truth = std::get_if<bool>(&event.value))
    json.boolean(*truth);
  else if (const auto* text = std::get_if<std::string>(&event.value))
    json.text(*text);
  else if (const auto* big = std::get_if<BigInt>(&event.value))
    json.text(big->digits);
  else
    json.null();
}

void put_event(JsonWriter& json, const State& state, std::size_t side, EventId id, const Event& event) {
  const Side& own = *state.sides[side];
  json.key("id").number(own.number_of(id)).key("step").number(event.step).key("call").number(event.call);
  json.key("rank").number(own.rank_of(id)).key("kind").text(to_string(event.kind));
  json.key("io").text(event.io_word()).key("phase").text(event.phase_word());
  json.key("site");
  event.site.empty() ? json.null() : json.text(event.site);
  json.key("module").text(event.scope).key("class").text(event.cls).key("root").text(event.root);
  json.key("time").number(static_cast<double>(event.time_ns - own.first_time_ns()) / 1e9);
  put_value(json, own, id, event);
  json.key("partner");
  if (state.pairs == nullptr) {
    json.null().key("verdict").number(-1).key("error").null();
    return;
  }
  const Pairs::One& pair = state.pairs->of(side, id);
  put_event_number(json, *state.sides[1 - side], pair.partner);
  json.key("verdict").number(pair.verdict).key("error");
  if (std::isnan(pair.error))
    json.null();
  else
    write_number(json, pair.error);
}

std::optional<EventId> find_event(const Side& side, const Catalog& catalog, std::string_view name, std::int64_t step,
                                  std::int64_t call, int rank) {
  const std::vector<EventId>* events = catalog.find(name);
  if (events == nullptr) return std::nullopt;
  for (const EventId id : *events)
    if (catalog[id].step == step && catalog[id].call == call && side.rank_of(id) == rank) return id;
  return std::nullopt;
}

std::string python_text(std::string_view text) {
  std::string json;
  append_json_text(json, text);  // what JSON escapes, Python reads alike
  return json;
}

}  // namespace tenscope::viewer
