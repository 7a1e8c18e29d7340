#include "store/shards.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "core/json_writer.hpp"
#include "kernels/element.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

using Numbers = std::vector<std::int64_t>;

template <class T>
bool read_array(const simdjson::dom::object& object, std::string_view key, std::vector<T>& into) {
  simdjson::dom::array array;
  if (object[key].get(array) != simdjson::SUCCESS) return false;
  for (const auto element : array) {
    if constexpr (std::is_same_v<T, std::string>) {
      std::string_view text;
      if (element.get(text) != simdjson::SUCCESS) return false;
      into.emplace_back(text);
    } else {
      T number{};
      if (element.get(number) != simdjson::SUCCESS || number < 0) return false;
      into.push_back(number);
    }
  }
  return true;
}

bool has_size(const Numbers& numbers) {
  std::int64_t product = 1;
  return std::none_of(numbers.begin(), numbers.end(),
                      [&](std::int64_t number) { return __builtin_mul_overflow(product, number, &product); });
}

bool fits_together(const Shard& shard) {
  const std::size_t axes = shard.mesh.size();
  Numbers all = shard.mesh;
  all.insert(all.end(), shard.shape.begin(), shard.shape.end());
  if (!has_size(all)) return false;
  if (shard.placements.size() != axes || shard.coordinate.size() != axes) return false;
  if (shard.offset.size() != shard.shape.size()) return false;
  for (std::size_t i = 0; i < axes; ++i)
    if (shard.coordinate[i] >= shard.mesh[i]) return false;
  return true;
}

// "P(sum)": "sum"; empty for others.
std::string_view operation_of(std::string_view placement) {
  return placement.size() > 3 && placement.starts_with("P(") ? placement.substr(2, placement.size() - 3)
                                                             : std::string_view();
}

bool is_replicated(std::string_view placement) { return placement == "R"; }

// What torch calls the result of an embedding with a sharded vocabulary: rows of other ranks' ids are anything.
bool is_masked(std::string_view placement) { return placement.starts_with("MaskP("); }

// How many parts each element is the sum of.
std::int64_t summands_of(const Shard& shard) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < shard.mesh.size(); ++i)
    if (!operation_of(shard.placements[i]).empty()) count *= shard.mesh[i];
  return count;
}

// One rank's part, and what it is a part of.
struct Part {
  EventId id;
  Shard shard;
  TensorRecord record;
  TensorData data;  // once it was loaded
};

class Assembler {
 public:
  Assembler(const Reader& reader, std::span<const EventId> ids) : reader_(reader), name_(reader.name(ids.front())) {
    std::set<Numbers> seen;
    for (const EventId id : ids) {
      const Event event = reader.event(id);
      auto shard = parse_shard(event.meta);
      if (!shard) throw Error(ErrorCode::Corrupt, told("has an event that does not say which part it is"));
      Numbers place = shard->coordinate;  // without the axes along which all have the same
      for (std::size_t i = 0; i < place.size(); ++i)
        if (is_replicated(shard->placements[i])) place[i] = 0;
      if (!seen.insert(std::move(place)).second) continue;
      if (std::ranges::any_of(shard->placements, is_masked))
        throw Error(
            ErrorCode::Unsupported,
            told("is a masked partial sum over ranks, and the masks were not recorded: its parts do not add up; "
                 "`rank` gives those of one rank"));
      parts_.push_back({id, std::move(*shard), std::get<TensorRecord>(event.value), {}});
    }
    check();
  }

  WholeParts parts() const {
    WholeParts result{
        .shape = parts_.front().shard.shape, .operation = std::string(operation_of_parts()), .events = {}};
    for (const Part& part : parts_) result.events.push_back(part.id);
    return result;
  }

  TensorData assemble() {
    for (Part& part : parts_) part.data = reader_.tensor(part.id);
    const std::string_view operation = operation_of_parts();
    auto whole = std::make_shared<Whole>();
    whole->shape = parts_.front().shard.shape;
    whole->dtype = operation.empty() ? parts_.front().record.dtype : dtype_of_result();
    const auto count = static_cast<std::size_t>(element_count(whole->shape));
    whole->bytes.resize(count * item_size(whole->dtype));
    if (operation.empty()) {
      for (const Part& part : parts_) copy(part, *whole);
    } else {
      reduce(operation, count, *whole);
    }
    TensorView view{.data = whole->bytes.data(), .dtype = whole->dtype, .shape = whole->shape};
    return {view, std::move(whole)};
  }

 private:
  struct Whole {
    Numbers shape;
    DType dtype = DType::F32;
    std::vector<std::byte> bytes;
  };

  std::string told(std::string_view what) const {
    return fmt::format("'{}' {}: {}", name_, what, reader_.path().string());
  }

  std::string_view operation_of_parts() const {
    for (const std::string& placement : parts_.front().shard.placements)
      if (const auto operation = operation_of(placement); !operation.empty()) return operation;
    return {};
  }

  // All parts of one tensor, and none missing.
  void check() const {
    const Shard& first = parts_.front().shard;
    std::int64_t expected = 1, elements = 0;
    for (std::size_t i = 0; i < first.mesh.size(); ++i)
      if (!is_replicated(first.placements[i])) expected *= first.mesh[i];
    for (const Part& part : parts_) {
      const Shard& shard = part.shard;
      const bool is_same = shard.shape == first.shape && shard.placements == first.placements &&
                           shard.mesh == first.mesh && part.record.dtype == parts_.front().record.dtype;
      if (!is_same) throw Error(ErrorCode::Corrupt, told("has parts that are not of one tensor"));
      if (part.record.shape.size() != shard.shape.size())
        throw Error(ErrorCode::Corrupt, told("has a part of another rank than the whole"));
      for (std::size_t axis = 0; axis < shard.shape.size(); ++axis)
        if (part.record.shape[axis] > 0 && part.record.shape[axis] > shard.shape[axis] - shard.offset[axis])
          throw Error(ErrorCode::Corrupt, told("has a part that lies outside of the whole"));
      elements += element_count(part.record.shape);
    }
    if (std::ssize(parts_) != expected || elements != element_count(first.shape) * summands_of(first))
      throw Error(ErrorCode::NotFound,
                  told(fmt::format("is spread over ranks, and {} of {} parts are there; `rank` gives those of one rank",
                                   parts_.size(), expected)));
    const std::string_view operation = operation_of_parts();
    constexpr std::array<std::string_view, 6> kKnown = {"", "sum", "avg", "min", "max", "product"};
    if (std::ranges::find(kKnown, operation) == kKnown.end())
      throw Error(ErrorCode::Unsupported, told(fmt::format("is made of parts by '{}', which is not known", operation)));
    if (!operation.empty() && kind_of(parts_.front().record.dtype) == DTypeKind::Complex)
      throw Error(ErrorCode::Unsupported, told("is a sum of complex parts, which are not added up here"));
  }

  // f(offset in the whole, offset in the part, how many elements lie behind each other in both), in elements.
  template <class F>
  static void for_each_run(const Part& part, F&& f) {
    const Numbers &shape = part.record.shape, &whole = part.shard.shape;
    if (element_count(shape) == 0) return;
    if (shape.empty()) return f(std::int64_t{0}, std::int64_t{0}, std::int64_t{1});
    Numbers strides(whole.size(), 1);
    for (std::size_t axis = whole.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * whole[axis + 1];
    const std::int64_t run = shape.back(), runs = element_count(shape) / run;
    for (std::int64_t i = 0; i < runs; ++i) {
      std::int64_t place = part.shard.offset.back(), rest = i;
      for (std::size_t axis = shape.size() - 1; axis-- > 0; rest /= shape[axis])
        place += (rest % shape[axis] + part.shard.offset[axis]) * strides[axis];
      f(place, i * run, run);
    }
  }

  static void copy(const Part& part, Whole& whole) {
    const std::size_t size = item_size(whole.dtype);
    const auto* source = static_cast<const std::byte*>(part.data.view.data);
    for_each_run(part, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      std::memcpy(whole.bytes.data() + static_cast<std::size_t>(to) * size,
                  source + static_cast<std::size_t>(from) * size, static_cast<std::size_t>(count) * size);
    });
  }

  DType dtype_of_result() const {
    const DType dtype = parts_.front().record.dtype;
    return item_size(dtype) < 4 ? DType::F32 : kind_of(dtype) == DTypeKind::Float ? dtype : DType::F64;
  }

  void reduce(std::string_view operation, std::size_t count, Whole& whole) const {
    const bool is_least = operation == "min", is_most = operation == "max", is_product = operation == "product";
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<double> total(count, is_least ? kInfinity : is_most ? -kInfinity : is_product ? 1 : 0);
    for (const Part& part : parts_)
      kernels::visit_dtype(part.record.dtype, [&](auto tag) {
        using T = decltype(tag);
        if constexpr (!kernels::kIsComplex<T>) {
          const auto* source = static_cast<const std::byte*>(part.data.view.data);
          for_each_run(part, [&](std::int64_t to, std::int64_t from, std::int64_t run) {
            for (std::int64_t i = 0; i < run; ++i) {
              const double x =
                  kernels::to_double(kernels::load<T>(source + static_cast<std::size_t>(from + i) * sizeof(T)));
              double& sum = total[static_cast<std::size_t>(to + i)];
              sum = is_least ? std::min(sum, x) : is_most ? std::max(sum, x) : is_product ? sum * x : sum + x;
            }
          });
        }
      });
    if (operation == "avg")
      for (double& sum : total) sum /= static_cast<double>(summands_of(parts_.front().shard));
    if (whole.dtype == DType::F64) {
      std::memcpy(whole.bytes.data(), total.data(), count * sizeof(double));
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(total[i]);
      std::memcpy(whole.bytes.data() + i * sizeof value, &value, sizeof value);
    }
  }

  const Reader& reader_;
  std::string name_;
  std::vector<Part> parts_;
};

}  // namespace

std::optional<Shard> parse_shard(std::string_view meta) {
  if (meta.find("\"shard\"") == std::string_view::npos) return std::nullopt;
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(simdjson::padded_string(meta))["shard"].get(object) != simdjson::SUCCESS) return std::nullopt;
  Shard shard;
  const bool is_whole = read_array(object, "mesh", shard.mesh) && read_array(object, "placements", shard.placements) &&
                        read_array(object, "coordinate", shard.coordinate) &&
                        read_array(object, "shape", shard.shape) && read_array(object, "offset", shard.offset);
  if (!is_whole || !fits_together(shard)) return std::nullopt;
  read_array(object, "names", shard.names);
  return shard;
}

std::string shard_json(const Shard& shard) {
  std::string text;
  JsonWriter json(text);
  const auto numbers = [&](std::string_view key, const Numbers& values) {
    json.key(key).begin_array();
    for (const std::int64_t value : values) json.number(value);
    json.end_array();
  };
  const auto texts = [&](std::string_view key, const std::vector<std::string>& values) {
    json.key(key).begin_array();
    for (const std::string& value : values) json.text(value);
    json.end_array();
  };
  json.begin_object();
  numbers("mesh", shard.mesh);
  if (!shard.names.empty()) texts("names", shard.names);
  texts("placements", shard.placements);
  numbers("coordinate", shard.coordinate);
  numbers("shape", shard.shape);
  numbers("offset", shard.offset);
  json.end_object();
  return text;
}

std::vector<EventId> parts_of(const Reader& reader, EventId id) {
  const Event event = reader.event(id);
  if (!parse_shard(event.meta)) return {id};
  std::vector<EventId> parts;
  std::optional<std::size_t> last_writer;
  for (const EventId other : reader.find({.step = event.step, .call = event.call})) {
    if (reader.kind(other) != event.kind || reader.name(other) != event.name || !reader.is_tensor(other)) continue;
    const std::size_t writer = reader.writer_index(other);
    if (writer == last_writer || !parse_shard(reader.event(other).meta)) continue;
    parts.push_back(other);
    last_writer = writer;
  }
  return parts;
}

WholeParts whole_parts(const Reader& reader, std::span<const EventId> parts) {
  return Assembler(reader, parts).parts();
}

TensorData assemble(const Reader& reader, std::span<const EventId> parts) {
  return Assembler(reader, parts).assemble();
}

}  // namespace tenscope::store
