#pragma once

#include <string_view>

#include "compare/checkpoint_diff.hpp"
#include "compare/checkpoint_match.hpp"

namespace tenscope::compare {

// Says how wholes are made of their parts (diff.joined), and which parts lie elsewhere than they should: than in the
// others of their kind, than their numbers say, or than the whole's name does (query_key_value has q, k and v of each
// head together). diff.pairs are those of the match.
void judge_parts(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff);

// What a weight is by the word that names it ("q_proj", "attn_k", "ffn_gate"): 'q', 'k', 'v', 'g' (gate), 'u' (up), or
// 0.
char role_of(std::string_view label);

}  // namespace tenscope::compare
