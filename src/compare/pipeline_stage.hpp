#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "compare/timeline.hpp"

namespace tenscope::compare {

// What the note `pipeline_stage` says of a module.
struct PipelineStage {
  std::int64_t stage = 0, stages = 0;
  std::int64_t receives_from = -1;  // the rank that has the stage before it; -1: not known, or there is none

  static std::optional<PipelineStage> parse(std::string_view meta);
};

// Which stage of a pipeline each root of a lane is, by what the recording says of it.
std::map<TextId, PipelineStage> stages_of(const Lane& lane, const Interner& interner);

}  // namespace tenscope::compare
