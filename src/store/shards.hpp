#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/reader.hpp"
#include "tenscope/shard.hpp"

namespace tenscope::store {

// The member "shard" of an event's meta; nothing where it has none, or one that does not fit together.
std::optional<Shard> parse_shard(std::string_view meta);
std::string shard_json(const Shard& shard);

// The events of all ranks with the name, step and call of this one that are parts of the same tensor, in the order of
// ranks; this one alone where it is whole.
std::vector<EventId> parts_of(const Reader& reader, EventId id);

// The parts that a whole is made of: of replicas the first.
struct WholeParts {
  std::vector<std::int64_t> shape;  // of the whole
  std::string operation;  // "sum", say, where each element is made of several parts'; empty: parts lie side by side
  std::vector<EventId> events;
};

// Needs no bytes. Throws as assemble does where parts are missing or do not fit together.
WholeParts whole_parts(const Reader& reader, std::span<const EventId> parts);

// The whole tensor, of its parts (see parts_of). Of replicas the first is taken. What is left of sums is added up in
// double precision, and given as float64, or as float32 where the parts are smaller than that.
// Throws NotFound where parts or their bytes are missing, Corrupt where they do not fit together.
TensorData assemble(const Reader& reader, std::span<const EventId> parts);

}  // namespace tenscope::store
