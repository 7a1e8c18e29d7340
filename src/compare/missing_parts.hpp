#pragma once

#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Does a note say that parts of a run are missing, so that nobody knows what was in them? Of a Lost one `count` is how
// many events that are, without what a limit that the user set left out.
inline bool tells_of_missing_parts(const DiffNote& note) noexcept {
  return note.kind == DiffNote::Kind::Damage || (note.kind == DiffNote::Kind::Lost && note.count > 0);
}

}  // namespace tenscope::compare
