#pragma once

#include "compare/timeline.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// An operation inside a module call (docs/zoom.md). Operations have a comparison of their own, op_diff.hpp: no other
// looks at them.
inline bool is_operation(const Event& event) { return event.io == Io::Op; }

// What stands beside the program's own values: operations, and a call that was made once more in a wider type
// (oracle.hpp). Neither the comparison of runs nor the check of one looks at it.
inline bool is_beside(const Event& event) { return is_operation(event) || event.io == Io::Oracle; }

// A not_seen note of this `what`: operations of code that torch.compile has made were not seen.
inline constexpr std::string_view kOperationsNotSeen = "operations";
// Settings of an optimizer: of the beginning (phase init), or where operations are recorded of the step.
inline constexpr std::string_view kOptimizerNote = "optimizer";

// An event as an item of a timeline.
Item make_item(const Event& event, EventId id, Interner& interner);

}  // namespace tenscope::compare
