#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::store {

// Several folders of a run as a person says them: "rank-3", "rank-0 … rank-511", "ranks 3, 7 of 512". Short enough for
// half a line; what does not fit is counted.
std::string writers_text(const std::vector<std::string>& folders, const Reader& reader);

// "rank 3", "ranks 0-2, 5": ascending ranks, likewise short.
std::string ranks_text(const std::vector<int>& ranks);

// Writers by how they ended, the worst first: {"ranks 3, 7 of 512", "crashed"}.
std::vector<std::pair<std::string, std::string>> writers_by_state(const Reader& reader);

// Losses that differ in nothing but the writer, as one of all of them; in the order of the first of each kind.
std::vector<Loss> folded_losses(const Reader& reader);

}  // namespace tenscope::store
