#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tenscope {

struct RunDiffOptions {
  // "blocks.*=layers.*": modules of the first run whose path matches the left side are those of the second run on the
  // right side; each * on the right stands for what the * at its place on the left matched. Overrules what is inferred.
  std::vector<std::string> map;
  // Largest harmless difference, as a part of the tensor's largest value; overrules the one of each dtype.
  std::optional<double> tolerance;
  std::size_t max_origins = 100;                 // origins beyond these are counted, not listed
  std::function<void(double done)> on_progress;  // 0 to 1, from the calling thread
};

// A tensor or number in a run.
struct DiffPlace {
  std::string root;    // label of the outermost module, "GPT#0"
  std::string module;  // path below the root; empty: the root itself
  std::string name;    // "blocks.0.attn.output", of a parameter, buffer or gradient the parameter's or buffer's name
  std::string io;      // input, output, loss, grad, param, buffer, value
  std::string phase;   // init, forward, backward, optimizer
  std::string cls;     // class of the module
  std::string site;    // source line, where known
  std::int64_t step = 0;
  std::int64_t call = 0;
  int rank = 0;
};

// How a tensor b differs from a tensor a. Values that do not apply (other shapes, only statistics kept) are NaN or
// empty.
struct DiffMetrics {
  std::string dtype_a, dtype_b;
  std::vector<std::int64_t> shape_a, shape_b;
  std::int64_t count = 0;      // elements
  std::int64_t differing = 0;  // elements that differ (NaN equals NaN)
  double max_abs = 0;          // largest |b - a|
  double rel_max = 0;          // max_abs as a part of the largest |a|
  double rel_l2 = 0;           // |b - a| as a part of |a|, Euclidean
  double correlation = 0;      // cosine between b - a and a: near 0 for rounding noise
  std::int64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;
  std::vector<std::int64_t> worst_index;
  double worst_a = 0, worst_b = 0;
  std::vector<std::array<std::int64_t, 2>> ranges;  // per axis: the half-open range of slices in which anything differs
  std::string relation;                             // "b = 4 a", "b is a, flipped along axis 1"; empty: none was found
  std::string remark;                               // "shapes differ", "missing in the second run"
};

// A place that starts a difference: what it depends on agrees.
struct DiffOrigin {
  DiffPlace place;      // place.module is the innermost module to blame
  std::string seen_in;  // module in which the tensor was seen: a submodule's input blames the module around it
  std::string seen_as;  // the name under which it was recorded
  DiffMetrics metrics;
  std::optional<DiffPlace> last_agreeing;
  std::string reason;       // a sentence
  std::size_t tensors = 1;  // tensors of the same kind, step and phase that begin to differ together with it
};

struct DiffUnmatched {
  int side = 0;  // 0: only in the first run, 1: only in the second
  std::string root;
  std::string module;
  std::string cls;
  std::string name;  // of a single tensor in a module that both runs have; empty: the whole module
  std::size_t events = 0;
};

struct DiffRenamed {
  std::string root, a, b;  // module paths; what lies below them is renamed alike
};

// How a module's tensors compare, over all steps and ranks.
struct DiffModule {
  std::string root, module;  // in the first run's names
  bool is_bit_equal = true;
  bool is_within_tolerance = true;
  std::int64_t step = 0;  // where the first of them differs beyond tolerance
  std::string phase;
};

struct RunDiff {
  std::string a, b;              // the runs' folders
  bool equal = true;             // every tensor of the modules that both have is on both sides, equal bit for bit
  bool within_tolerance = true;  // no place starts a difference beyond rounding noise
  std::optional<DiffOrigin> first_divergence;
  std::optional<DiffOrigin> first_bit_difference;  // the first tensor that differs at all
  std::vector<DiffOrigin> origins;                 // the first divergence first
  std::size_t origin_count = 0;
  std::vector<DiffUnmatched> unmatched;
  std::vector<DiffRenamed> renamed;
  std::vector<DiffModule> modules;    // those of which anything could be compared
  std::vector<std::string> settings;  // seeds and determinism settings that differ, a sentence each
  std::vector<std::string> notes;     // what was not seen or could not be compared

  std::size_t compared = 0;  // tensors and numbers on both sides
  std::size_t bit_equal = 0;
  std::size_t noise = 0;         // differ by rounding noise only
  std::size_t consequences = 0;  // differ beyond tolerance because of an origin
};

// Compares two recordings and names the first place where they part. See docs/diff.md for how it judges.
// Throws Error where a run cannot be read.
RunDiff diff_runs(const std::filesystem::path& a, const std::filesystem::path& b, const RunDiffOptions& options = {});

// Parameters, buffers and gradients of one run that should be equal across its ranks and are not.
struct RankDifference {
  DiffPlace place;         // the first event at which the ranks part
  std::vector<int> ranks;  // those that differ from the lowest rank
  double rel_max = 0;      // of the first of them
};
std::vector<RankDifference> diff_ranks(const std::filesystem::path& run);

}  // namespace tenscope
