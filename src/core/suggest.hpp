#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope {

// How many letters have to be inserted, removed, replaced or swapped with their neighbour to come from one to the
// other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidates most like `word`, best first, at most `limit`; none where nothing is near.
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates, std::size_t limit = 3);

// The end of an error message: "; did you mean 'q' or 'k'?", empty where nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace tenscope
