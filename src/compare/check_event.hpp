#pragma once

#include <string>

#include "compare/timeline.hpp"
#include "tenscope/check.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

inline bool is_gradient(Io io) noexcept { return io == Io::Grad || io == Io::GradOutput || io == Io::GradInput; }

inline DiffPlace place_of(const Reader& reader, EventId id, const Event& event) {
  return {.root = event.root,
          .module = event.scope,
          .name = event.name,
          .io = std::string(event.io_word()),
          .phase = std::string(event.phase_word()),
          .cls = event.cls,
          .site = event.site,
          .step = event.step,
          .call = event.call,
          .rank = reader.writers()[reader.writer_index(id)].rank};
}

}  // namespace tenscope::compare
