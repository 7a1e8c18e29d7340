#pragma once

#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// What the requests of these names are answered with (docs/viewer.md).
Answer names_answer(const State& state);
Answer events_answer(const State& state, const Parameters& parameters);
Answer event_answer(const State& state, const Parameters& parameters);
Answer series_answer(const State& state, const Parameters& parameters);

// The side that a request is about, 0 or 1. Throws NotFound where there is no second.
std::size_t side_of(const State& state, const Parameters& parameters);
// The event that a request is about, on that side.
EventId event_of(const State& state, std::size_t side, const Parameters& parameters);

// The same tensor at every step that has it: of the same name, rank and role, and of as many calls in its step the one
// in the same place. (The number of a call goes on over steps.)
std::vector<EventId> over_steps(const Side& side, const Catalog& catalog, EventId id);

// The names of both sides, in the order of names_answer.
struct ListedName {
  std::string_view name;
  const std::vector<EventId>* a = nullptr;  // events of each side; null: it has none
  const std::vector<EventId>* b = nullptr;
};
std::vector<ListedName> list_names(const State& state);

}  // namespace tenscope::viewer
