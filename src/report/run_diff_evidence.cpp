#include <fmt/format.h>

#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

bool is_whole_axis(const DiffMetrics& metrics, std::size_t axis) {
  return metrics.ranges[axis][0] == 0 && metrics.ranges[axis][1] == metrics.shape_a[axis];
}

std::string slices(const DiffMetrics& metrics) {
  std::string text;
  for (std::size_t axis = 0; axis < metrics.ranges.size(); ++axis) {
    if (is_whole_axis(metrics, axis)) continue;
    text += fmt::format("{}axis {} in [{}, {})", text.empty() ? "" : ", ", axis, metrics.ranges[axis][0],
                        metrics.ranges[axis][1]);
  }
  return text;
}

using Evidence = std::vector<std::pair<std::string, std::string>>;

void add(Evidence& rows, std::string_view name, const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) rows.emplace_back(i == 0 ? name : "", lines[i]);
}

// Where else it may begin, if not there.
std::vector<std::string> alternatives(const RunDiff& diff) {
  constexpr std::size_t kOffered = 2;
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < diff.origins.size() && i <= kOffered; ++i)
    lines.push_back(fmt::format("{} in {} ({})", tensor_in_words(diff.origins[i]),
                                blamed_in_words(diff.origins[i].place), moment_in_words(diff.origins[i].place)));
  return lines;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> evidence_in_words(const RunDiff& diff, const DiffOrigin& origin) {
  Evidence rows;
  const DiffMetrics& metrics = origin.metrics;
  rows.emplace_back("why", reason_in_words(origin));
  rows.emplace_back("confidence", confidence_in_words(origin));
  if (confidence_of(origin.reason.doubt) != DiffConfidence::High) add(rows, "if not there", alternatives(diff));
  if (!origin.place.cls.empty())
    rows.emplace_back(
        "module", fmt::format("{} ({}, in {})", blamed_in_words(origin.place), origin.place.cls, origin.place.root));
  if (origin.reason.cause == DiffCause::End) {
    if (!origin.reason.tensor.empty() && metrics.differing > 0)
      rows.emplace_back("last values", fmt::format("{}: {}", origin.reason.tensor, metrics_in_words(metrics)));
  } else if (origin.distribution && origin.distribution->is_independent) {
    rows.emplace_back("difference", distribution_in_words(*origin.distribution));
  } else {
    rows.emplace_back("difference", metrics_in_words(metrics));
  }
  if (origin.update) rows.emplace_back("update", update_in_words(*origin.update));
  if (!metrics.layout.empty() && origin.event_b)
    rows.emplace_back("in the other", fmt::format("{}: {}", origin.event_b->name, metrics.layout));
  add(rows, "put together", assembly_in_words(metrics));
  add(rows, "parts", parts_in_words(metrics));
  if (!metrics.relation.empty()) rows.emplace_back("relation", metrics.relation);
  // Where the words are a formula already, it says nothing more.
  if (!metrics.relation_numpy.empty() && !metrics.relation.starts_with("b = "))
    rows.emplace_back("", metrics.relation_numpy);
  if (const std::string text = slices(metrics); !text.empty()) rows.emplace_back("only in", text);
  if (!metrics.rows.empty()) rows.emplace_back("only in rows", metrics.rows);
  if (origin.seen_as != origin.place.name) rows.emplace_back("first seen in", origin.seen_as);
  if (origin.last_agreeing) rows.emplace_back("last agreeing", place_in_words(*origin.last_agreeing));
  if (origin.code)
    for (auto& row : code_in_words(diff, origin)) rows.push_back(std::move(row));
  else if (!origin.place.site.empty())
    rows.emplace_back("source", site_in_words(origin.place.site));
  if (origin.tensors > 1)
    rows.emplace_back("together with", plural(origin.tensors - 1, "tensor") + " of the same kind");
  if (diff.rounding) rows.emplace_back("after it", rounding_in_words(*diff.rounding));
  return rows;
}

}  // namespace tenscope::report
