#pragma once

#include "compare/timeline.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// An operation inside a module call (docs/zoom.md). Operations have a comparison of their own, op_diff.hpp: no other
// looks at them.
inline bool is_operation(const Event& event) { return event.io == Io::Op; }

// An event as an item of a timeline.
Item make_item(const Event& event, EventId id, Interner& interner);

}  // namespace tenscope::compare
