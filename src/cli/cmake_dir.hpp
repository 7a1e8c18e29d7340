#pragma once

#include <string>

namespace tenscope::cli {

// The folder of tenscopeConfig.cmake, for CMAKE_PREFIX_PATH or tenscope_DIR: below the prefix that this program was
// installed in, or in the Python package that came with it. Throws NotFound.
std::string cmake_dir();

}  // namespace tenscope::cli
