#pragma once

#include "compare/content_pairs.hpp"

namespace tenscope::compare {

// Pairs tensors that have the values of another one by mistake with those that names say.
void match_doubles(ContentPairs& pairs, const Interner& interner);

}  // namespace tenscope::compare
