#pragma once

#include <vector>

#include "compare/timeline.hpp"

namespace tenscope::compare {

// One lane that has all modules of a run, made of the lanes of its ranks: that of `first`, and what other ranks alone
// have, stages of a pipeline or experts, say. In each step the forwards of the ranks stand in their order, each pass in
// that of the first, and the backwards in the reverse order.
// A stage that calls its modules by the names that another stage has for its own gets a root of its own.
Lane merge_lanes(const std::vector<Timeline>& lanes, std::size_t first, Interner& interner);

}  // namespace tenscope::compare
