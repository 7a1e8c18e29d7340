#pragma once

#include <filesystem>
#include <functional>

#include "compare/causality.hpp"
#include "compare/measure.hpp"
#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Is this the folder of a run, or a folder of runs?
bool is_run_folder(const std::filesystem::path& path);

// What a report says of the places that start a difference.
struct Describe {
  std::function<DiffMetrics(const Item& a, const Item& b)> pair;
  std::function<std::optional<DiffUpdate>(const UpdateItems& a, const UpdateItems& b)> update;  // may be empty
};

// The comparison without files: on timelines that were read with one interner. `measures` and `describe` are asked only
// where values are not the same bit for bit.
RunDiff diff_timelines(const Timeline& a, const Timeline& b, Interner& interner, const Measures& measures,
                       const Describe& describe, const RunDiffOptions& options, const ContentSource* content = nullptr);

}  // namespace tenscope::compare
