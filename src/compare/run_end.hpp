#pragma once

#include <optional>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// The place where one run goes on and the other does not, with the exception that ended it where there was one. Nothing
// where both end together. Asked after the walk, since it stands behind all else.
std::optional<Origin> find_end(const LaneState& state);

// The exception that ended a lane: "ValueError: ..."; empty where it ended in order.
TextId exception_of(const Lane& lane, const Interner& interner);

}  // namespace tenscope::compare
