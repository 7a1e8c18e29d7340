#include "cli/dot_program.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "tenscope/error.hpp"

extern char** environ;

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

int run_dot(const std::string& kind, const fs::path& file, int input, DotLayout layout) {
  std::vector<std::string> words = {"dot", "-T" + kind, "-o", file.string()};
  if (layout == DotLayout::Given) words.insert(words.end(), {"-Kneato", "-n2"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, "dot", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    throw Error(ErrorCode::NotFound,
                fmt::format("cannot start Graphviz's dot: {}; install graphviz, or write a .dot or .json file",
                            std::strerror(failure)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

void draw_with_dot(const std::string& graph, const std::string& kind, const fs::path& file, DotLayout layout) {
  const std::unique_ptr<std::FILE, Closer> input(std::tmpfile());
  if (input == nullptr || std::fwrite(graph.data(), 1, graph.size(), input.get()) != graph.size() ||
      std::fflush(input.get()) != 0 || std::fseek(input.get(), 0, SEEK_SET) != 0)
    throw Error(ErrorCode::Io, fmt::format("cannot hand the graph to dot: {}", std::strerror(errno)));
  fs::path unfinished = file;
  unfinished += fmt::format(".{}.tmp", ::getpid());
  std::error_code failed;
  try {
    if (const int status = run_dot(kind, unfinished, ::fileno(input.get()), layout); status != 0)
      throw Error(
          ErrorCode::Io,
          fmt::format("cannot draw the graph: dot ended with {} {}: {}", WIFSIGNALED(status) ? "signal" : "exit code",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), file.string()));
    fs::rename(unfinished, file, failed);
    if (failed)
      throw Error(ErrorCode::Io, fmt::format("cannot write the graph: {}: {}", failed.message(), file.string()));
  } catch (...) {
    fs::remove(unfinished, failed);
    throw;
  }
}

}  // namespace tenscope::cli
