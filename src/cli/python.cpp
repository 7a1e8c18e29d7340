#include "cli/python.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

std::string find_python() {
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr && *environment != '\0') {
    const fs::path python = fs::path(environment) / "bin" / "python";
    if (is_executable(python)) return python;
  }
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  if (!failed)
    for (const char* name : {"python", "python3"})
      if (const fs::path python = self.parent_path() / name; is_executable(python)) return python;
  return "python3";
}

}  // namespace

void become_python(std::string_view module, const std::vector<std::string>& words) {
  std::vector<std::string> command = {find_python(), "-m", std::string(module)};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw Error(ErrorCode::NotFound, fmt::format("cannot start Python: {}: {}", std::strerror(errno), command[0]));
}

}  // namespace tenscope::cli
