#pragma once

#include <optional>
#include <string>

#include "core/json_writer.hpp"
#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// The members of an event in a list, in an open object.
void put_event(JsonWriter& json, const State& state, std::size_t side, EventId id, const Event& event);

// "value" or "tensor" of an event, in an open object.
void put_value(JsonWriter& json, const Side& side, EventId id, const Event& event);

// An event's number, or null.
void put_event_number(JsonWriter& json, const Side& side, std::optional<EventId> id);

// The event of that name at that place; nothing where there is none.
std::optional<EventId> find_event(const Side& side, const Catalog& catalog, std::string_view name, std::int64_t step,
                                  std::int64_t call, int rank);

// A text as Python has it in its source.
std::string python_text(std::string_view text);

}  // namespace tenscope::viewer
