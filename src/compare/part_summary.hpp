#pragma once

#include <optional>
#include <span>
#include <vector>

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

// Of each part of a set, rank by rank, pass by pass; nothing where its own parts cannot be added up.
using PartSummaries = std::vector<std::optional<TensorRecord>>;
PartSummaries part_summaries(const Reader& reader, const PartSet& set);

// The whole that parts make together.
std::optional<TensorRecord> summary_of(const PartSet& set, const PartSummaries& parts, const Arrangement& how);
TensorRecord summary_of(const HostTensor& whole);

}  // namespace tenscope::compare
