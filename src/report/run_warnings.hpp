#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::report {

std::size_t count_damage(const Reader& reader);

// What is to be said of damage, losses and a crash, so that a listing with gaps is not taken for the whole: a sentence
// each.
std::vector<std::string> run_warnings(const Reader& reader);

}  // namespace tenscope::report
