#pragma once

#include <vector>

#include "compare/content_match.hpp"
#include "compare/timeline.hpp"

namespace tenscope::compare {

// Parameters of equal values whose layers have other numbers than those of nearly all other parameters: they were
// most likely exchanged when the model was converted.
std::vector<Contradiction> find_exchanged_layers(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                                 const Interner& interner);

// The same of parameters whose owners are the partners of others: biases of two modules.
std::vector<Contradiction> find_exchanged_owners(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                                 const Interner& interner);

// Parameters that lie otherwise in the second run than their namesakes in other layers, or than most of the same
// shapes: a square matrix that was not transposed, parts of a joined tensor in another order.
std::vector<OddLayout> find_odd_layouts(const std::vector<ContentPair>& pairs, const Lane& a, const Lane& b,
                                        const Interner& interner);

}  // namespace tenscope::compare
