#include "cli/cmake_dir.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

#include "cli/python.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

// The folder of `file`, which lies in `where` of the folder of libraries.
std::string installed_folder(std::string_view where, std::string_view file) {
  namespace fs = std::filesystem;
  for (const fs::path& folder : folders_above_program()) {
    std::vector<fs::path> candidates = {folder / TENSCOPE_LIBDIR, folder / "tenscope" / "lib"};
    for (const fs::path& packages : site_packages(folder)) candidates.push_back(packages / "tenscope" / "lib");
    for (const fs::path& candidate : candidates) {
      const fs::path found = candidate / where;
      std::error_code failed;
      if (fs::exists(found / file, failed)) return found.string();
    }
  }
  throw Error(ErrorCode::NotFound,
              "the C++ library is not installed beside this program: install tenscope's wheel, or its sources with "
              "cmake --install");
}

}  // namespace

std::string cmake_dir() { return installed_folder("cmake/tenscope", "tenscopeConfig.cmake"); }
std::string pkgconfig_dir() { return installed_folder("pkgconfig", "tenscope.pc"); }

}  // namespace tenscope::cli
