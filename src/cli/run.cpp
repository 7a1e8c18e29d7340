#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "tenscope/error.hpp"

// Recording happens in the script's own Python: this verb finds it and becomes `python -m tenscope.run ...`.

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

// An active virtual environment's Python, else the one this program was installed with, else the first on PATH.
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

Action prepare_run(CLI::App& app) {
  app.prefix_command();  // what is not ours is passed on as it stands: tenscope.run parses it, and its --help answers
  app.set_help_flag();
  return [&app](const Output&) -> int {
    std::vector<std::string> words = {find_python(), "-m", "tenscope.run"};
    for (const std::string& word : app.remaining()) words.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    throw Error(ErrorCode::NotFound, fmt::format("cannot start Python: {}: {}", std::strerror(errno), words[0]));
  };
}

}  // namespace tenscope::cli
