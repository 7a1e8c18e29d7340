#include "store/event_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "store/sketch_text.hpp"
#include "tenscope/error.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::store {
namespace {

using namespace simdjson::ondemand;  // NOLINT: object, array, value, field

[[noreturn]] void refuse(std::string_view why) { throw Error(ErrorCode::Corrupt, std::string(why)); }

template <class T>
T unwrap(simdjson::simdjson_result<T> result, std::string_view key) {
  T value;
  if (const auto error = std::move(result).get(value))
    refuse(fmt::format("{}: {}", key, simdjson::error_message(error)));
  return value;
}

std::int64_t get_int(value json, std::string_view key) { return unwrap(json.get_int64(), key); }
std::string_view get_text(value json, std::string_view key) { return unwrap(json.get_string(), key); }

std::int64_t get_count(value json, std::string_view key) {
  const std::int64_t count = get_int(json, key);
  if (count < 0) refuse(fmt::format("{}: negative", key));
  return count;
}

EventKind get_kind(value json) {
  const std::string_view text = get_text(json, "kind");
  const auto kind = parse_event_kind(text);
  if (!kind) refuse(fmt::format("kind: unknown: '{}'", text.substr(0, 40)));
  return *kind;
}

double parse_special(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  refuse(fmt::format("float: unknown: '{}'", text.substr(0, 40)));
}

bool is_integer(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// {"float":"nan"}, {"int":"123456789012345678901234567890"}
EventValue get_special(object json) {
  EventValue result;
  for (auto member : json) {
    field entry = unwrap(std::move(member), "value");
    const std::string_view key = unwrap(entry.unescaped_key(), "value");
    const std::string_view text = get_text(entry.value(), "value");
    if (key == "float") {
      result = parse_special(text);
    } else if (key == "int" && is_integer(text)) {
      result = BigInt{std::string(text)};
    } else {
      refuse("value: an object that is neither a float nor an integer");
    }
  }
  if (std::holds_alternative<std::monostate>(result)) refuse("value: an empty object");
  return result;
}

EventValue get_number(value json) {
  const number number = unwrap(json.get_number(), "value");
  switch (number.get_number_type()) {
    case number_type::floating_point_number:
      return number.get_double();
    case number_type::signed_integer:
      return number.get_int64();
    case number_type::unsigned_integer:
      return BigInt{std::to_string(number.get_uint64())};
  }
  refuse("value: a number of an unknown type");
}

EventValue get_value(value json) {
  switch (unwrap(json.type(), "value")) {
    case json_type::null:
      return unwrap(json.is_null(), "value") ? EventValue(nullptr) : EventValue();
    case json_type::boolean:
      return unwrap(json.get_bool(), "value");
    case json_type::string:
      return std::string(get_text(json, "value"));
    case json_type::number:
      return get_number(json);
    case json_type::object:
      return get_special(unwrap(json.get_object(), "value"));
    case json_type::array:
      break;
  }
  refuse("value: a list");
}

double get_statistic(value json, std::string_view key) {
  const json_type type = unwrap(json.type(), key);
  if (type == json_type::null && unwrap(json.is_null(), key)) return std::numeric_limits<double>::quiet_NaN();
  if (type == json_type::number) return unwrap(json.get_double(), key);
  if (type == json_type::object) {
    const EventValue special = get_special(unwrap(json.get_object(), key));
    if (const double* number = std::get_if<double>(&special)) return *number;
  }
  refuse(fmt::format("{}: not a number", key));
}

// min and max: of int64 and uint64 exact, so the bits are kept too.
void get_extreme(value json, std::string_view key, double& approximate, std::int64_t& exact) {
  if (unwrap(json.type(), key) != json_type::number) {
    approximate = get_statistic(json, key);
    return;
  }
  const number number = unwrap(json.get_number(), key);
  switch (number.get_number_type()) {
    case number_type::signed_integer:
      exact = number.get_int64();
      break;
    case number_type::unsigned_integer:
      exact = static_cast<std::int64_t>(number.get_uint64());
      break;
    case number_type::floating_point_number:
      break;
  }
  approximate = number.as_double();
}

void get_stats(object json, Stats& stats) {
  for (auto member : json) {
    field entry = unwrap(std::move(member), "stats");
    const std::string_view key = unwrap(entry.unescaped_key(), "stats");
    value& json_value = entry.value();
    if (key == "min")
      get_extreme(json_value, key, stats.min, stats.exact_min);
    else if (key == "max")
      get_extreme(json_value, key, stats.max, stats.exact_max);
    else if (key == "mean")
      stats.mean = get_statistic(json_value, key);
    else if (key == "std")
      stats.std = get_statistic(json_value, key);
    else if (key == "l2")
      stats.l2 = get_statistic(json_value, key);
    else if (key == "absmax")
      stats.abs_max = get_statistic(json_value, key);
    else if (key == "nan")
      stats.nan = get_count(json_value, key);
    else if (key == "posinf")
      stats.pos_inf = get_count(json_value, key);
    else if (key == "neginf")
      stats.neg_inf = get_count(json_value, key);
    else if (key == "zero")
      stats.zero = get_count(json_value, key);
    else if (key == "subnormal")
      stats.subnormal = get_count(json_value, key);
  }
}

std::vector<std::int64_t> get_shape(value json) {
  std::vector<std::int64_t> shape;
  for (auto item : unwrap(json.get_array(), "shape")) {
    if (shape.size() == kMaxRank) refuse(fmt::format("shape: more than {} axes", kMaxRank));
    shape.push_back(get_count(unwrap(std::move(item), "shape"), "shape"));
  }
  return shape;
}

BlobRef get_blob(value json) {
  std::int64_t numbers[3];
  std::size_t count = 0;
  for (auto item : unwrap(json.get_array(), "at")) {
    if (count == 3) refuse("at: more than three numbers");
    numbers[count++] = get_count(unwrap(std::move(item), "at"), "at");
  }
  if (count != 3) refuse("at: fewer than three numbers");
  return {numbers[0], static_cast<std::uint64_t>(numbers[1]), static_cast<std::uint64_t>(numbers[2])};
}

// The size in bytes that dtype and shape ask for. Refuses what overflows.
std::uint64_t required_bytes(const TensorRecord& tensor) {
  std::int64_t bytes = static_cast<std::int64_t>(item_size(tensor.dtype));
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) refuse("shape: its size overflows 63 bits");
  }
  return static_cast<std::uint64_t>(bytes);
}

TensorRecord get_tensor(object json) {
  TensorRecord tensor;
  tensor.device = "cpu";
  bool has_dtype = false;
  bool has_shape = false;
  std::optional<std::string_view> sketch;
  for (auto member : json) {
    field entry = unwrap(std::move(member), "tensor");
    const std::string_view key = unwrap(entry.unescaped_key(), "tensor");
    value& json_value = entry.value();
    if (key == "dtype") {
      const std::string_view name = get_text(json_value, key);
      const auto dtype = parse_dtype(name);
      if (!dtype) refuse(fmt::format("dtype: unknown: '{}'", name.substr(0, 40)));
      tensor.dtype = *dtype;
      has_dtype = true;
    } else if (key == "shape") {
      tensor.shape = get_shape(json_value);
      has_shape = true;
    } else if (key == "device") {
      tensor.device = get_text(json_value, key);
    } else if (key == "fp") {
      const auto fingerprint = Fingerprint::parse(get_text(json_value, key));
      if (!fingerprint) refuse("fp: not 32 hexadecimal digits");
      tensor.fingerprint = *fingerprint;
    } else if (key == "stats") {
      get_stats(unwrap(json_value.get_object(), key), tensor.stats);
    } else if (key == "sketch") {
      if (unwrap(json_value.type(), key) == json_type::number)
        tensor.sketch_of = unwrap(json_value.get_uint64(), key);
      else
        sketch = get_text(json_value, key);
    } else if (key == "at") {
      tensor.blob = get_blob(json_value);
    } else if (key == "file") {
      tensor.file = get_text(json_value, key);
    } else if (key == "cut") {
      tensor.is_cut = true;
    }
  }
  if (!has_dtype || !has_shape) refuse("tensor: it has no dtype or no shape");
  if (sketch) {
    tensor.sketch = parse_sketch(*sketch, tensor.dtype);
    if (!tensor.sketch) refuse("sketch: not base64 of sums of this dtype");
  }
  const std::uint64_t bytes = required_bytes(tensor);
  if (tensor.blob && tensor.blob->size_bytes != bytes) {
    refuse(fmt::format("at: {} bytes, but dtype and shape ask for {}", tensor.blob->size_bytes, bytes));
  }
  const std::int64_t parts = kind_of(tensor.dtype) == DTypeKind::Complex ? 2 : 1;
  tensor.stats.count = static_cast<std::int64_t>(bytes / item_size(tensor.dtype)) * parts;
  return tensor;
}

// Whether there is a NaN or an Inf: the counts stand in the statistics where they are not zero.
bool tells_of_nonfinite(object stats) {
  bool result = false;
  for (auto statistic : stats) {
    field count = unwrap(std::move(statistic), "stats");
    const raw_json_string key = count.key();
    result |= key == "nan" || key == "posinf" || key == "neginf";
  }
  return result;
}

// The first number of `at`; -1 where it is no list of numbers, which get_blob tells of.
std::int64_t get_segment(value json) {
  array numbers;
  if (json.get_array().get(numbers)) return -1;
  for (auto item : numbers) {
    std::int64_t segment = -1;
    return item.get_int64().get(segment) ? -1 : segment;
  }
  return -1;
}

void get_tensor_head(object json, EventHead& head) {
  for (auto member : json) {
    field entry = unwrap(std::move(member), "tensor");
    const raw_json_string key = entry.key();
    if (key == "stats")
      head.has_nonfinite = tells_of_nonfinite(unwrap(entry.value().get_object(), "stats"));
    else if (key == "at")
      head.segment = get_segment(entry.value());
    else if (key == "file")
      head.has_file = true;
    else if (key == "cut")
      head.is_cut = true;
  }
}

// A word that is not known (of a later version, or a program's own) is kept as it stands.
void set_io(Event& event, std::string_view word) {
  event.io = parse_io(word);
  if (event.io == Io::Other) event.other_io = word;
}

void set_phase(Event& event, std::string_view word) {
  event.phase = parse_phase(word);
  if (event.phase == Phase::Other) event.other_phase = word;
}

}  // namespace

void EventParser::parse_head(std::string_view line, EventHead& head) {
  head = {};
  document json = unwrap(parser_.iterate(line, line.size() + simdjson::SIMDJSON_PADDING), "line");
  bool has_seq = false;
  for (auto member : unwrap(json.get_object(), "line")) {
    field entry = unwrap(std::move(member), "line");
    const raw_json_string key = entry.key();
    if (key == "seq") {
      head.seq = unwrap(entry.value().get_uint64(), "seq");
      has_seq = true;
    } else if (key == "kind") {
      head.kind = get_kind(entry.value());
    } else if (key == "name") {
      head.name = get_text(entry.value(), "name");
    } else if (key == "step") {
      head.step = get_int(entry.value(), "step");
    } else if (key == "call") {
      head.call = get_int(entry.value(), "call");
    } else if (key == "tensor") {
      head.is_tensor = true;
      get_tensor_head(unwrap(entry.value().get_object(), "tensor"), head);
    }
  }
  if (!has_seq) refuse("line: it has no seq");
}

Event EventParser::parse(std::string_view line) {
  Event event;
  document json = unwrap(parser_.iterate(line, line.size() + simdjson::SIMDJSON_PADDING), "line");
  for (auto member : unwrap(json.get_object(), "line")) {
    field entry = unwrap(std::move(member), "line");
    const std::string_view key = unwrap(entry.unescaped_key(), "line");
    value& json_value = entry.value();
    if (key == "seq")
      event.seq = unwrap(json_value.get_uint64(), key);
    else if (key == "t")
      event.time_ns = get_int(json_value, key);
    else if (key == "th")
      event.thread = unwrap(json_value.get_uint64(), key);
    else if (key == "kind")
      event.kind = get_kind(json_value);
    else if (key == "name")
      event.name = get_text(json_value, key);
    else if (key == "step")
      event.step = get_int(json_value, key);
    else if (key == "call")
      event.call = get_int(json_value, key);
    else if (key == "site")
      event.site = get_text(json_value, key);
    else if (key == "scope")
      event.scope = get_text(json_value, key);
    else if (key == "io")
      set_io(event, get_text(json_value, key));
    else if (key == "phase")
      set_phase(event, get_text(json_value, key));
    else if (key == "root")
      event.root = get_text(json_value, key);
    else if (key == "class")
      event.cls = get_text(json_value, key);
    else if (key == "task")
      event.task = get_text(json_value, key);
    else if (key == "meta")
      event.meta = unwrap(unwrap(json_value.get_object(), key).raw_json(), key);
    else if (key == "value")
      event.value = get_value(json_value);
    else if (key == "tensor")
      event.value = get_tensor(unwrap(json_value.get_object(), key));
  }
  return event;
}

}  // namespace tenscope::store
