#include "cli/cmake_dir.hpp"

#include <filesystem>
#include <vector>

#include "cli/python.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {

std::string cmake_dir() {
  namespace fs = std::filesystem;
  for (const fs::path& folder : folders_above_program()) {
    std::vector<fs::path> candidates = {folder / TENSCOPE_LIBDIR, folder / "tenscope" / "lib"};
    for (const fs::path& packages : site_packages(folder)) candidates.push_back(packages / "tenscope" / "lib");
    for (const fs::path& candidate : candidates) {
      const fs::path found = candidate / "cmake" / "tenscope";
      std::error_code failed;
      if (fs::exists(found / "tenscopeConfig.cmake", failed)) return found.string();
    }
  }
  throw Error(ErrorCode::NotFound,
              "the C++ library is not installed beside this program: install tenscope's wheel, or its sources with "
              "cmake --install");
}

}  // namespace tenscope::cli
