#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::store {

// verify(), telling now and then how many of all bytes of the run's tensors have been read.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
std::vector<Problem> verify(const std::filesystem::path& run, const Progress& progress);

}  // namespace tenscope::store
