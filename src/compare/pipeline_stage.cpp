#include "compare/pipeline_stage.hpp"

#include <simdjson.h>

namespace tenscope::compare {

std::optional<PipelineStage> PipelineStage::parse(std::string_view meta) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  PipelineStage stage;
  if (parser.parse(simdjson::padded_string(meta)).get(object) != simdjson::SUCCESS) return std::nullopt;
  if (object["stage"].get(stage.stage) != simdjson::SUCCESS) return std::nullopt;
  if (object["stages"].get(stage.stages) != simdjson::SUCCESS) return std::nullopt;
  if (object["receives_from"].get(stage.receives_from) != simdjson::SUCCESS) stage.receives_from = -1;
  return stage;
}

std::map<TextId, PipelineStage> stages_of(const Lane& lane, const Interner& interner) {
  std::map<TextId, PipelineStage> stages;
  for (const Item& item : lane.items)
    if (item.kind == EventKind::Note && interner.text(item.name) == kPipelineStageNote)
      if (const auto stage = PipelineStage::parse(interner.text(item.text))) stages[item.root] = *stage;
  return stages;
}

}  // namespace tenscope::compare
