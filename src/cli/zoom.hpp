#pragma once

#include <string>
#include <vector>

#include "cli/run_diff.hpp"

namespace tenscope::cli {

// `tenscope zoom A B`: becomes Python, with the options of diff and further words of zoom's own.
[[noreturn]] void become_zoom(const std::string& a, const std::string& b, const RunDiffFlags& diff,
                              const Output& output, std::vector<std::string> words = {});

}  // namespace tenscope::cli
