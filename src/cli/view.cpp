#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "core/json_writer.hpp"
#include "server/server.hpp"
#include "viewer/export.hpp"
#include "viewer/lost_pages.hpp"
#include "viewer/viewer.hpp"

extern char** environ;

namespace tenscope::cli {
namespace {

struct Options {
  std::string a, b, page, host = "127.0.0.1";
  int port = 0;
  bool is_browser_left_alone = false;
};

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The programs to open a page with, the best first; none where nobody would see it.
std::vector<std::string> browsers() {
  std::vector<std::string> programs;
  // An editor that is connected to this machine from another sets it, and opens the page there.
  if (const std::string own = from_environment("BROWSER"); !own.empty() && own.find_first_of(" :%") == own.npos)
    programs.push_back(own);
  if (!from_environment("SSH_CONNECTION").empty()) return programs;
  if (!from_environment("WSL_DISTRO_NAME").empty()) programs.emplace_back("wslview");
  if (!from_environment("DISPLAY").empty() || !from_environment("WAYLAND_DISPLAY").empty())
    programs.emplace_back("xdg-open");
  return programs;
}

// Starts a program that is in no way tied to this one; false where there is no such program.
bool start_apart(std::string program, std::string word) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
  const std::array<char*, 3> argv = {program.data(), word.data(), nullptr};
  pid_t child = -1;
  const bool has_started = ::posix_spawnp(&child, program.c_str(), &actions, &attributes, argv.data(), environ) == 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (has_started) std::thread([child] { ::waitpid(child, nullptr, 0); }).detach();
  return has_started;
}

// What to type on the machine in front of the user, who is connected to this one by SSH; empty where nobody is.
std::string tunnel_command(int port) {
  std::istringstream words(from_environment("SSH_CONNECTION"));
  std::string client, client_port, server, server_port;
  if (!(words >> client >> client_port >> server >> server_port)) return "";
  std::string user = from_environment("USER");
  if (!user.empty()) user += "@";
  const std::string at_port = server_port == "22" ? "" : fmt::format("-p {} ", server_port);
  return fmt::format("ssh -N -L {}:127.0.0.1:{} {}{}{}", port, port, at_port, user, server);
}

void tell(const server::Server& server, const Output& output) {
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("url").text(server.url()).key("port").number(server.port());
    json.key("token").text(server.token()).end_object();
    print_json(text);
  } else {
    print("tenscope view: {} (Ctrl-C ends it)\n", server.url());
    if (const std::string tunnel = tunnel_command(server.port()); server.is_loopback() && !tunnel.empty())
      print("from the machine in front of you: {}\n", tunnel);
  }
  flush_output();
  if (!server.is_loopback()) warn("others on the network who know the token can read this, and it is sent unencrypted");
}

int view(const Options& options, const Output& output) {
  std::signal(SIGPIPE, SIG_IGN);
  viewer::keep_going_without_lost_pages();
  const std::string a = find_run(options.a.empty() ? default_runs() : options.a).string();
  const std::string b = options.b.empty() ? "" : find_run(options.b).string();
  viewer::Viewer viewer(a, b, {.diff = {}, .shown_paths = {output.url_of(a), output.url_of(b)}});
  if (!options.page.empty()) {
    viewer::write_page(viewer, options.page);
    if (output.json) {
      std::string text;
      JsonWriter(text).begin_object().key("file").text(options.page).end_object();
      print_json(text);
    }
    return kFine;
  }
  server::Server server([&viewer](std::string_view target) { return viewer.answer(target); },
                        {.host = options.host, .port = options.port});
  tell(server, output);
  if (!options.is_browser_left_alone)
    for (const std::string& program : browsers())
      if (start_apart(program, server.one_time_url())) break;
  server.run();
  if (output.progress) fmt::print(stderr, "\n");  // behind the terminal's ^C
  // Answers may still be at work, for long, and have nothing to put in order.
  std::fflush(nullptr);
  std::_Exit(kFine);
}

}  // namespace

Action prepare_view(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("a", options->a, "A run, a folder of runs, or a file of tensors (default: runs/, else this folder)");
  app.add_option("b", options->b, "Another run or file: how it differs from the first");
  app.add_option("--port", options->port, "The port to listen on (default: 8765, or another that is free)")
      ->check(CLI::Range(1, 65535));
  app.add_option("--host", options->host, "The address or name to listen on (default: 127.0.0.1, this machine alone)");
  app.add_option("--export", options->page, "Write one page that needs nothing else to this file, and serve nothing");
  app.add_flag("--no-open", options->is_browser_left_alone, "Open no browser");
  return [options](const Output& output) { return view(*options, output); };
}

}  // namespace tenscope::cli
