#include "cli/python.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

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

// `python -m <module> <words...>` as the system wants it.
class Command {
 public:
  Command(const std::string& python, std::string_view module, const std::vector<std::string>& words)
      : words_{python, "-m", std::string(module)} {
    words_.insert(words_.end(), words.begin(), words.end());
    for (std::string& word : words_) argv_.push_back(word.data());
    argv_.push_back(nullptr);
  }
  char** argv() { return argv_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> argv_;
};

// Starts it; each pair is a file of ours and the number that it has there. Returns the process id.
pid_t start(Command& command, const std::vector<std::pair<int, int>>& files) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const auto& [ours, theirs] : files) ::posix_spawn_file_actions_adddup2(&actions, ours, theirs);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, command.argv()[0], &actions, nullptr, command.argv(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return child;
  throw Error(ErrorCode::NotFound,
              fmt::format("cannot start Python: {}: {}", std::strerror(failed), command.argv()[0]));
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
  Command command(interpreter.empty() ? find_python() : interpreter, module, words);
  ::execvp(command.argv()[0], command.argv());
  throw Error(ErrorCode::NotFound, fmt::format("cannot start Python: {}: {}", std::strerror(errno), command.argv()[0]));
}

std::string output_of_python(std::string_view module, const std::vector<std::string>& words) {
  Command command(find_python(), module, words);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::Io, fmt::format("cannot start Python: {}", std::strerror(errno)));
  const pid_t child = start(command, {{ends[1], STDOUT_FILENO}});
  ::close(ends[1]);
  std::string output;
  std::array<char, 1 << 16> buffer;
  for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) != 0;) {
    if (size > 0)
      output.append(buffer.data(), static_cast<std::size_t>(size));
    else if (errno != EINTR)
      break;
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  if (output.empty())
    output = WIFEXITED(status) ? fmt::format("Python ended with exit code {}", WEXITSTATUS(status))
                               : fmt::format("Python was ended by signal {}", WTERMSIG(status));
  throw Error(ErrorCode::Unsupported, output);
}

pid_t start_python(std::string_view module, const std::vector<std::string>& words, const std::vector<int>& files) {
  Command command(find_python(), module, words);
  std::vector<std::pair<int, int>> handed = {{STDERR_FILENO, STDOUT_FILENO}};
  for (const int file : files) handed.emplace_back(file, file);  // which also keeps it open there
  return start(command, handed);
}

}  // namespace tenscope::cli
