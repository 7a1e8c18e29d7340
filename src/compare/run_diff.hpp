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

using Describe = std::function<DiffMetrics(const Item& a, const Item& b)>;

// The comparison without files: on timelines that were read with one interner. `measures` and `describe` are asked only
// where values are not the same bit for bit.
RunDiff diff_timelines(const Timeline& a, const Timeline& b, Interner& interner, const Measures& measures,
                       const Describe& describe, const RunDiffOptions& options);

}  // namespace tenscope::compare
