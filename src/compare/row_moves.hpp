#pragma once

#include <string>
#include <vector>

#include "compare/row_words.hpp"

namespace tenscope::compare {

// Where rows of b that differ from a's have the numbers of other rows of a: "b at position n is a at position n + 1",
// "the rows of request 3 and request 8 are exchanged". Empty where they have not. Both must be compared by the same
// rows; `names` are those of the keys.
std::string moved_rows(const RowMatch& match, RowTensorId a, RowTensorId b, const std::vector<std::string>& names);

// "request 2, position 5".
std::string row_in_words(const RowKey& key, const std::vector<std::string>& names);

}  // namespace tenscope::compare
