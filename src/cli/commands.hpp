#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenscope::cli {

inline constexpr int kFine = 0;       // same, or healthy
inline constexpr int kDifferent = 1;  // different, or unhealthy
inline constexpr int kTrouble = 2;    // wrong use, or an error

// How the user wants to be answered; the answer goes to stdout, everything else to stderr.
struct Output {
  bool json = false;       // one JSON document instead of text
  bool color = false;      // stdout is a terminal and NO_COLOR is not set
  bool progress = false;   // stderr is a terminal: progress may be shown there
  std::size_t width = 80;  // of the terminal, in columns; a guess where there is none
  bool is_fitted = false;  // what is wider is shortened: stdout is a terminal, or COLUMNS is set
  std::vector<std::pair<std::string, std::string>> mirrors;  // folders of the cache, and the URLs that they stand for

  std::size_t fitting() const noexcept { return is_fitted ? width : 0; }  // 0: any width
  // The URL that a mirror stands for; empty of any other path.
  std::string url_of(const std::string& path) const;
};

// Runs a verb whose options have been parsed; returns the exit code. What it throws is told by main.
using Action = std::function<int(const Output&)>;

// One verb. `prepare` adds its options to `app` (--json is there already) and returns the action that uses them.
struct Command {
  std::string_view name;
  std::string_view group;     // the heading that help lists it under
  std::string_view summary;   // one line, no full stop
  std::string_view examples;  // help begins with them, a line each
  Action (*prepare)(CLI::App& app);
  bool reads_urls = false;               // its runs may lie at URLs
  std::string_view python_options = {};  // those that only Python knows, for completion
};

// A new verb: write src/cli/<verb>.cpp with its prepare function, declare it here, add a line to the table in
// commands.cpp.
Action prepare_check(CLI::App& app);
Action prepare_completion(CLI::App& app);
Action prepare_diff(CLI::App& app);
Action prepare_explain(CLI::App& app);
Action prepare_export(CLI::App& app);
Action prepare_graph(CLI::App& app);
Action prepare_ls(CLI::App& app);
Action prepare_map(CLI::App& app);
Action prepare_plot(CLI::App& app);
Action prepare_push(CLI::App& app);
Action prepare_repair(CLI::App& app);
Action prepare_show(CLI::App& app);
Action prepare_tree(CLI::App& app);
Action prepare_verify(CLI::App& app);
Action prepare_view(CLI::App& app);
Action prepare_zoom(CLI::App& app);
Action prepare_noise(CLI::App& app);
Action prepare_repro(CLI::App& app);
Action prepare_run(CLI::App& app);

// All verbs, in the order in which help lists them.
std::span<const Command> commands();

}  // namespace tenscope::cli
