#pragma once

#include "compare/align.hpp"
#include "compare/origin.hpp"
#include "compare/run_diff.hpp"

namespace tenscope::compare {

// What was found of two aligned runs, for reports of it. All of it must outlive this.
struct ReportedRun {
  const Alignment& alignment;
  const Interner& interner;
  const Describe& describe;
  const Findings& findings;
};

// All that a report says of a place that starts a difference.
DiffOrigin report_origin(const ReportedRun& run, const Origin& origin);
DiffPlace report_place(const ReportedRun& run, const LanePair& lane, const Observation& o);

}  // namespace tenscope::compare
