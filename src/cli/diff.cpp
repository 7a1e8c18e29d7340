#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "cli/remote_runs.hpp"
#include "cli/run_diff.hpp"
#include "cli/zoom.hpp"
#include "compare/checkpoint_diff.hpp"
#include "compare/run_diff.hpp"
#include "compare/value_diff.hpp"
#include "core/json_writer.hpp"
#include "report/checkpoint_diff.hpp"
#include "report/value_diff.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

struct Options {
  std::string a, b;
  DiffOptions diff;
  RunDiffFlags run;
  int top = 10;
};

int diff_files(const Options& options, const Output& output) {
  ValueDiff diff;
  {
    Progress progress(output.progress, "comparing");
    diff = diff_paths(options.a, options.b, options.diff,
                      [&](std::string_view name, std::int64_t done, std::int64_t total) {
                        progress.show(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1, name);
                      });
  }
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    write_json(json, diff);
    print_json(text);
  } else {
    print_text(report::value_diff_report(diff, options.top).text(output.color, output.width));
  }
  if (diff.trouble > 0) return kTrouble;
  return diff.is_different() ? kDifferent : kFine;
}

int diff_weights(const Options& options, const Output& output) {
  compare::CheckpointDiffOptions settings{.map = read_map(options.run), .on_progress = {}};
  compare::CheckpointDiff diff;
  {
    Progress progress(output.progress, "comparing weights");
    settings.on_progress = [&](double done) { progress.show(done); };
    diff = compare::diff_checkpoints(options.a, options.b, settings);
  }
  if (output.json)
    print_json(report::checkpoint_diff_json(diff));
  else
    print_text(report::checkpoint_diff_report(diff, static_cast<std::size_t>(std::max(options.top, 0)))
                   .text(output.color, output.width));
  if (diff.verdict == DiffVerdict::Nothing) return kTrouble;
  return diff.is_different() ? kDifferent : kFine;
}

// Both are there, and one is not a run where the other is a file.
void require_both(const std::string& a, const std::string& b) {
  std::error_code error;
  for (const std::string& path : {a, b})
    if (!is_url(path) && !std::filesystem::exists(path, error)) {
      const bool is_file = std::filesystem::path(path).has_extension();
      if (!is_file) find_run(path);  // throws, with a suggestion
      throw Error(ErrorCode::NotFound, fmt::format("cannot compare: no such file or folder: {}", path));
    }
  const bool is_a_file = std::filesystem::is_regular_file(a, error),
             is_b_file = std::filesystem::is_regular_file(b, error);
  if ((is_a_file && compare::is_run_folder(b)) || (is_b_file && compare::is_run_folder(a)))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot compare a run with a file: {} is a run, {} is a file; tenscope export writes "
                            "tensors of a run to a file",
                            is_a_file ? b : a, is_a_file ? a : b));
}

const CLI::Validator not_negative(
    [](std::string& text) {
      double number = 0;
      const bool is_fine = CLI::detail::lexical_cast(text, number) && number >= 0;
      return is_fine ? std::string() : fmt::format("a number of 0 or more is needed, not {}", text);
    },
    ">= 0");

}  // namespace

Action prepare_diff(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("a", options->a,
                 "The reference: a run's folder, a file (.npy .npz .pt .safetensors .gguf .pkl) or a folder of files")
      ->required();
  app.add_option("b", options->b,
                 "What became of it: another one of the same kind, or another checkpoint of the model");
  app.add_option("--atol", options->diff.atol, "Absolute tolerance: |b - a| <= atol + rtol * |a|; default by dtype")
      ->check(not_negative);
  app.add_option("--rtol", options->diff.rtol, "Relative tolerance")->check(not_negative);
  app.add_option("--ulp", options->diff.ulps, "Pairs at most this many ULPs apart agree as well");
  app.add_flag("--equal-nan", options->diff.equal_nan, "NaN equals NaN");
  app.add_option("--top", options->top, "How many differences to show, the worst first; 0: all")->capture_default_str();
  add_run_diff_options(app, options->run);
  return [options](const Output& output) -> int {
    for (std::string* path : {&options->a, &options->b})
      if (!path->empty()) *path = place_of(*path);
    options->run.top = options->top > 0 ? static_cast<std::size_t>(options->top) : options->run.top;
    const auto is_run = [](const std::string& path) { return is_url(path) || compare::is_run_folder(path); };
    const bool are_runs = is_run(options->a) && is_run(options->b);
    if (!options->run.dask.empty() && (options->run.ranks || !are_runs))
      throw Error(ErrorCode::InvalidArgument, "--dask compares two runs");
    if (options->run.zoom && (options->run.ranks || !are_runs))
      throw Error(ErrorCode::InvalidArgument, "--zoom runs two recorded programs again: it needs two runs");
    if (options->run.zoom) become_zoom(options->a, options->b, options->run, output);
    if (options->run.ranks) return diff_run_ranks(options->a, options->run, output);
    if (options->b.empty())
      throw Error(ErrorCode::InvalidArgument, "diff needs two things to compare, or a run and --ranks");
    if (are_runs) return diff_run_folders(options->a, options->b, options->run, output);
    require_both(options->a, options->b);
    if (options->run.rows) throw Error(ErrorCode::InvalidArgument, "--rows compares two runs, and these are not");
    const bool has_tolerance =
        options->diff.atol || options->diff.rtol || options->diff.ulps || options->diff.equal_nan;
    if (!has_tolerance && (has_map(options->run) || compare::are_checkpoints(options->a, options->b)))
      return diff_weights(*options, output);
    if (compare::is_run_folder(options->a)) return diff_run_folders(options->a, options->b, options->run, output);
    return diff_files(*options, output);
  };
}

}  // namespace tenscope::cli
