#pragma once

#include "compare/timeline.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// An operation inside a module call (docs/zoom.md). Operations have a comparison of their own, op_diff.hpp: no other
// looks at them.
inline bool is_operation(const Event& event) { return event.io == Io::Op; }

// A not_seen note of this `what`: operations of code that torch.compile has made were not seen.
inline constexpr std::string_view kOperationsNotSeen = "operations";
// Settings of an optimizer: of the beginning (phase init), or where operations are recorded of the step.
inline constexpr std::string_view kOptimizerNote = "optimizer";

// An event as an item of a timeline.
Item make_item(const Event& event, EventId id, Interner& interner);

}  // namespace tenscope::compare
