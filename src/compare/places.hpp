#pragma once

#include <span>
#include <string>
#include <vector>

#include "compare/tensor_diff.hpp"

namespace tenscope {

std::vector<AxisPlaces> find_places(const std::vector<kernels::AxisMismatches>& axes);

// Where the mismatches are, in words: "everywhere", "all in rows 3 and 7", "all of [:, 64:128]".
std::string describe_places(const std::vector<AxisPlaces>& places, std::int64_t mismatches, std::int64_t count);

}  // namespace tenscope
