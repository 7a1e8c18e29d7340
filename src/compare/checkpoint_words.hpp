#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compare/layout.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {

// Where each head's two halves of a rotary embedding became neighbours, or neighbours halves: the size of a head.
// Else 0. `rows`: of the first axis.
std::int64_t rotary_head(const Layout& layout, std::int64_t rows);

// "attn_q" of "blk.0.attn_q.weight"
std::string_view owner_word(std::string_view name);

// "rows [0, 64) of b, transposed"; empty where the order is the same.
std::string layout_in_words(const Layout& layout, const Shape& shape_a, const Shape& shape_b);

}  // namespace tenscope::compare
