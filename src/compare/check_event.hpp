#pragma once

#include <string>

#include "compare/timeline.hpp"
#include "tenscope/check.hpp"
#include "tenscope/reader.hpp"

// How `check` sees an event. Everything it needs to know of Event's words for io and phase is here.
namespace tenscope::compare {

inline Io io_of(const Event& event) noexcept { return parse_io(event.io); }
inline Phase phase_of(const Event& event) noexcept { return parse_phase(event.phase); }

inline bool is_gradient(Io io) noexcept { return io == Io::Grad || io == Io::GradOutput || io == Io::GradInput; }

inline DiffPlace place_of(const Reader& reader, EventId id, const Event& event) {
  return {.root = event.root,
          .module = event.scope,
          .name = event.name,
          .io = event.io,
          .phase = event.phase,
          .cls = event.cls,
          .site = event.site,
          .step = event.step,
          .call = event.call,
          .rank = reader.writers()[reader.writer_index(id)].rank};
}

// "fc.weight" of "fc.weight.grad".
inline std::string parameter_name(std::string name) {
  if (name.ends_with(".grad")) name.resize(name.size() - 5);
  return name;
}

}  // namespace tenscope::compare
