#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "compare/timeline.hpp"

namespace tenscope::compare {

using ParameterName = std::tuple<TextId, TextId, TextId>;  // root, module, name in it

// Of a parameter, and of its gradient.
inline ParameterName parameter_of(const Item& item) { return {item.root, item.scope, item.parameter}; }

// Which part of a parameter a lane has, by the lane's number and the parameter, where ranks have parts that nobody says
// to be some.
using HandMadeParts = std::map<std::pair<std::size_t, ParameterName>, std::size_t>;

HandMadeParts find_hand_made_parts(const Timeline& timeline);

}  // namespace tenscope::compare
