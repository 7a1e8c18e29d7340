#pragma once

#include "compare/checkpoint_diff.hpp"
#include "compare/checkpoint_match.hpp"

namespace tenscope::compare {

// Says how wholes are made of their parts (diff.joined), and which parts lie elsewhere than they should: than in the
// others of their kind, than their numbers say, or than the whole's name does (query_key_value has q, k and v of each
// head together). diff.pairs are those of the match.
void judge_parts(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff);

}  // namespace tenscope::compare
