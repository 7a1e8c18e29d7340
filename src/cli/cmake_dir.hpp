#pragma once

#include <string>

namespace tenscope::cli {

// Where the C++ library's descriptions lie: below the prefix that this program was installed in, or in the Python
// package that came with it. They throw NotFound.
std::string cmake_dir();      // the folder of tenscopeConfig.cmake, for CMAKE_PREFIX_PATH or tenscope_DIR
std::string pkgconfig_dir();  // the folder of tenscope.pc, for PKG_CONFIG_PATH

}  // namespace tenscope::cli
