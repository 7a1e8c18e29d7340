#include "cli/python.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "tenscope/error.hpp"

// Overview: where Python is. Tenscope lies in the environment that it was installed into: its program in bin/, beside
// the interpreter, or, where a tool that bundles libraries has put a script in its place, below lib/. So the folders
// above the program are looked through first, then the active virtual environment. Both count only if tenscope's Python
// package is installed there too; where it is in neither, the first python3 on PATH has to have it.

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) {
  std::error_code failed;
  return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, failed);
}

// Whether the environment has the package, or what pip writes down of it.
bool has_package(const fs::path& environment) {
  for (const fs::path& packages : site_packages(environment)) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(packages, none)) {
      const std::string name = entry.path().filename().string();
      if (name == "tenscope" || (name.starts_with("tenscope-") && name.ends_with(".dist-info"))) return true;
    }
  }
  return false;
}

std::optional<fs::path> python_of(const fs::path& environment) {
  for (const char* name : {"python", "python3"})
    if (const fs::path python = environment / "bin" / name; is_executable(python) && has_package(environment))
      return python;
  return std::nullopt;
}

std::string find_python() {
  for (const fs::path& folder : folders_above_program())
    if (const auto python = python_of(folder)) return *python;
  if (const char* active = std::getenv("VIRTUAL_ENV"); active != nullptr && *active != '\0')
    if (const auto python = python_of(active)) return *python;
  return "python3";
}

}  // namespace

std::vector<fs::path> folders_above_program() {
  std::vector<fs::path> folders;
  std::error_code failed;
  fs::path folder = fs::read_symlink("/proc/self/exe", failed);
  while (!failed && (folder = folder.parent_path()).has_relative_path()) folders.push_back(folder);
  return folders;
}

std::vector<fs::path> site_packages(const fs::path& environment) {
  std::vector<fs::path> folders;
  std::error_code failed;
  for (const char* lib : {"lib", "lib64"}) {
    for (const auto& version : fs::directory_iterator(environment / lib, failed)) {
      if (!version.path().filename().string().starts_with("python")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) folders.push_back(version.path() / packages);
    }
  }
  return folders;
}

void become_python(std::string_view module, const std::vector<std::string>& words, const std::string& interpreter) {
  std::vector<std::string> command = {interpreter.empty() ? find_python() : interpreter, "-m", std::string(module)};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw Error(ErrorCode::NotFound, fmt::format("cannot start Python: {}: {}", std::strerror(errno), command[0]));
}

}  // namespace tenscope::cli
