#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/table.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::cli {

// All events of one name.
struct NameSummary {
  std::string name;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::vector<EventId> events;       // of values and changes, in order
  std::optional<EventId> nonfinite;  // the first with NaN or Inf
  EventId last() const { return events.back(); }
};

// Those that match one of the patterns, or all where there is none, in the order of their first appearance.
std::vector<NameSummary> summarize(const Reader& reader, const std::vector<std::string>& patterns);

// Names that are listed in one row: one, or those of layers that repeat, "blocks.[0-11].attn.qkv.weight".
struct NameRow {
  std::string name;
  std::vector<const NameSummary*> members;
};

// What the program recorded by itself first, parameters and buffers last.
std::vector<NameRow> name_rows(const std::vector<NameSummary>& summaries, const Reader& reader, bool is_folded);

report::Table names_table(const std::vector<NameRow>& rows, const Reader& reader, std::size_t width);

}  // namespace tenscope::cli
