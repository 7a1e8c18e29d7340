#pragma once

#include <optional>
#include <span>

#include "compare/arrangement.hpp"
#include "compare/part_loader.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// What is known of a whole without its bytes: dtype, shape, statistics and, where it follows from those of the parts, a
// sketch. Statistics that do not follow from those of the parts are NaN, and the number of zeros is -1. A whole that is
// made of several parts has no fingerprint, Fingerprint().

// Parts that lie beside each other. Their sketches count the elements of each part from 0, so there is none.
TensorRecord join_summaries(std::span<const TensorRecord> parts, Shape shape);
// Parts that are added up; nothing where one has no sketch, or elements that are not finite.
std::optional<TensorRecord> add_summaries(std::span<const TensorRecord> parts);
TensorRecord scale_summary(TensorRecord summary, double factor);

// Gives both, of one tensor in two runs, what only the other knows, so that it proves nothing.
void complete_summaries(TensorRecord& a, TensorRecord& b);

// The whole that parts make together.
std::optional<TensorRecord> summary_of(const PartLoader& loader, int run, const PartSet& set, const Arrangement& how);

}  // namespace tenscope::compare
