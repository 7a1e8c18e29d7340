#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::cli {

// `diff` on run folders: the options that only runs have, and the comparison.
struct RunDiffFlags {
  std::vector<std::string> map;
  std::string map_file, write_map;
  std::optional<std::string> rows;
  std::optional<double> tolerance;
  std::string noise;  // a profile
  bool ignores_noise = false;
  std::string html;
  std::string dask;  // the address of a cluster's scheduler
  std::size_t top = 10;
  bool strict = false;
  bool prefix = false;
  bool ranks = false;
  bool zoom = false;
  bool budget = false;
};

// What --map and --map-file say.
std::vector<std::string> read_map(const RunDiffFlags& options);
// What --noise and --no-noise say, as RunDiffOptions has it.
std::optional<std::filesystem::path> noise_of(const RunDiffFlags& options);
inline bool has_map(const RunDiffFlags& options) { return !options.map.empty() || !options.map_file.empty(); }

// Writes a map that --map-file reads, each pair of names once. Of runs: without parts, which a map cannot say.
void write_map(const std::vector<std::pair<std::string, std::string>>& names, const std::string& path);
void write_map(const RunDiff& diff, const std::string& path);

void add_run_diff_options(CLI::App& app, RunDiffFlags& options);
int diff_run_folders(const std::string& a, const std::string& b, const RunDiffFlags& options, const Output& output);
int diff_run_ranks(const std::string& run, const RunDiffFlags& options, const Output& output);

}  // namespace tenscope::cli
