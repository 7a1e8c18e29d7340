#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/value_diff.hpp"

namespace tenscope {
namespace {

// How bad an entry is, for the order of the report: what is missing or unreadable, then by relative error.
double badness(const DiffEntry& entry) {
  if (entry.tensor == nullptr || !entry.tensor->has_elements) return std::numeric_limits<double>::infinity();
  const TensorDiff& diff = *entry.tensor;
  if (diff.nan_only_a + diff.nan_only_b + diff.inf_only_a + diff.inf_only_b > 0) return 1e300;
  return std::isnan(diff.relative_l2) ? 1e299 : diff.relative_l2;
}

std::string answer(const ValueDiff& diff) {
  std::string what = fmt::format("{} tensor{}", diff.tensors, diff.tensors == 1 ? "" : "s");
  if (diff.values > 0) what += fmt::format(" and {} plain value{}", diff.values, diff.values == 1 ? "" : "s");
  if (diff.files > 0) what += fmt::format(" in {} pair{} of files", diff.files, diff.files == 1 ? "" : "s");
  if (!diff.is_different()) {
    const bool is_identical = std::ranges::all_of(diff.entries, [](const DiffEntry& entry) {
      return entry.tensor == nullptr || entry.tensor->verdict == Verdict::Identical;
    });
    return fmt::format("{}: {} compared", is_identical ? "identical" : "close", what);
  }
  std::string text =
      fmt::format("different: {} difference{} in {}", diff.different, diff.different == 1 ? "" : "s", what);
  if (diff.one_sided > 0) text += fmt::format(", {} on one side only", diff.one_sided);
  if (diff.trouble > 0) text += fmt::format(", {} unreadable", diff.trouble);
  return text;
}

}  // namespace

std::string to_text(const ValueDiff& diff, int top) {
  // Two single tensors: their own report says it all.
  if (diff.entries.size() == 1 && diff.values == 0 && diff.entries[0].tensor != nullptr &&
      diff.entries[0].name.empty()) {
    return to_text(*diff.entries[0].tensor);
  }
  std::string out = answer(diff) + "\n";
  if (!diff.a.empty()) out += fmt::format("  a: {} (the reference)\n  b: {}\n", diff.a, diff.b);
  std::vector<const DiffEntry*> shown;
  for (const auto& entry : diff.entries) {
    if (entry.status != EntryStatus::Same) shown.push_back(&entry);
  }
  std::ranges::stable_sort(shown, std::greater<>(), [](const DiffEntry* entry) { return badness(*entry); });
  const std::size_t limit = top <= 0 ? shown.size() : std::min(shown.size(), static_cast<std::size_t>(top));
  for (std::size_t i = 0; i < limit; ++i) {
    const DiffEntry& entry = *shown[i];
    if (!entry.name.empty()) out += fmt::format("\n{}\n", entry.name);
    if (entry.tensor != nullptr)
      out += to_text(*entry.tensor, 2);
    else
      out += fmt::format("  {}\n", entry.message);
  }
  if (limit < shown.size()) out += fmt::format("\n… and {} more\n", shown.size() - limit);
  return out;
}

void write_json(JsonWriter& json, const ValueDiff& diff) {
  json.begin_object().key("equal").boolean(!diff.is_different());
  json.key("a").text(diff.a).key("b").text(diff.b);
  json.key("tensors").number(diff.tensors).key("values").number(diff.values).key("files").number(diff.files);
  json.key("different")
      .number(diff.different)
      .key("one_sided")
      .number(diff.one_sided)
      .key("trouble")
      .number(diff.trouble);
  json.key("entries").begin_array();
  for (const auto& entry : diff.entries) {
    json.begin_object().key("name").text(entry.name).key("status").text(to_string(entry.status));
    json.key("message").text(entry.message);
    if (entry.tensor != nullptr) {
      json.key("tensor");
      write_json(json, *entry.tensor);
    }
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace tenscope
