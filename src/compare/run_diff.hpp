#pragma once

#include <filesystem>
#include <functional>

#include "compare/causality.hpp"
#include "compare/measure.hpp"
#include "compare/module_code.hpp"
#include "compare/partial_diff.hpp"
#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Is this the folder of a run, or a folder of runs?
bool is_run_folder(const std::filesystem::path& path);

// What a report says of the places that start a difference.
struct Describe {
  std::function<DiffMetrics(const Item& a, const Item& b)> pair;
  std::function<std::optional<DiffUpdate>(const UpdateItems& a, const UpdateItems& b)> update;  // may be empty
  // The event of a run (0, 1) that an item stands for, where that is not the one of its own name; may be empty.
  std::function<DiffEvent(int run, const Item& item)> event;
  // The code of a module in both runs; may be empty.
  std::function<DiffCode(const CodeOfModule& a, const CodeOfModule& b)> code;
  // A module as a run (0, 1) itself has it, where what is compared has the calls of one run in both; may be empty.
  ModuleLookup module = {};
};

// What all processes of one rank recorded, read with one interner.
struct RankTimelines {
  int rank = 0;
  Timeline a, b;
  double assumed_noise = 0;  // what every tensor may carry as noise of its inputs
};

// The comparison of one rank, without files. `measures` and `describe` are asked only where values are not the same bit
// for bit. `known` is what was found of the ranks before it, and takes what is found of this one in.
PartialDiff diff_rank(const RankTimelines& rank, Interner& interner, const Measures& measures, const Describe& describe,
                      const RunDiffOptions& options, Known& known, const ContentSource* content = nullptr);

// Whether each rank can be compared with itself, judged by the lowest that both runs have.
bool are_laid_out_alike(const std::filesystem::path& a, const std::filesystem::path& b);

// What diff_runs says once all ranks were compared one by one: that, or what their whole tensors say where these agree
// better.
RunDiff settle(RunDiff by_ranks, const std::filesystem::path& a, const std::filesystem::path& b,
               const RunDiffOptions& options);

// diff_runs of some ranks: of options.ranks. Throws where the runs cannot be read.
PartialDiff diff_some_ranks(const std::filesystem::path& a, const std::filesystem::path& b,
                            const RunDiffOptions& options);

}  // namespace tenscope::compare
