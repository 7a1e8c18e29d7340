#include "report/value_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/printable.hpp"
#include "report/values.hpp"

namespace tenscope::report {
namespace {

constexpr std::size_t kNameWidth = 12;

std::string number(double x) { return std::isnan(x) ? "none" : fmt::format("{:.4g}", x); }

std::string type_text(const TensorDiff& diff) {
  std::string a = fmt::format("{} {}", to_string(diff.a_dtype), shape_text(diff.a_shape));
  if (diff.a_dtype == diff.b_dtype && diff.a_shape == diff.b_shape) return a;
  return fmt::format("{} became {} {}", a, to_string(diff.b_dtype), shape_text(diff.b_shape));
}

std::string pair_text(const ElementPair& pair) {
  return fmt::format("{} became {} at {}", pair.a, pair.b, shape_text(pair.index));
}

std::string sides_text(std::int64_t only_a, std::int64_t only_b, std::int64_t both) {
  std::string text = fmt::format("{} in a only, {} in b only", grouped(only_a), grouped(only_b));
  if (both > 0) text += fmt::format(", {} in both", grouped(both));
  return text;
}

void add_histogram(Document& out, const TensorDiff& diff) {
  int low = kernels::kErrorBins, high = -1;
  for (int bin = 0; bin < kernels::kErrorBins; ++bin) {
    if (diff.error_histogram[static_cast<std::size_t>(bin)] == 0) continue;
    low = std::min(low, bin);
    high = bin;
  }
  if (high < 0) return;
  std::vector<std::pair<std::string, std::int64_t>> rows;
  if (diff.zero_error > 0) rows.emplace_back("0", diff.zero_error);
  for (int bin = low; bin <= high; ++bin)
    rows.emplace_back(fmt::format("1e{:+03d}", bin + kernels::kErrorBinBase),
                      diff.error_histogram[static_cast<std::size_t>(bin)]);
  out.bars("abs error", std::move(rows));
}

void add_measures(Document& out, const TensorDiff& diff) {
  out.field("tensors", type_text(diff));
  if (!diff.relation.empty()) out.field("relation", diff.relation);
  // Where the words are a formula already, it says nothing more.
  if (!diff.relation_numpy.empty() && !diff.relation.starts_with("b = ")) out.code("", diff.relation_numpy);
  if (!diff.has_elements || diff.verdict == Verdict::Identical) return;
  if (diff.first) out.field("first", pair_text(*diff.first));
  if (diff.worst) out.field("worst", pair_text(*diff.worst));
  out.field("abs error", fmt::format("max {}, mean {}", number(diff.max_abs), number(diff.mean_abs)));
  out.field("rel error", fmt::format("max {}, mean {}", number(diff.max_rel), number(diff.mean_rel)));
  const std::string cosine = std::isnan(diff.cosine) ? "none" : fmt::format("{:.9g}", diff.cosine);
  out.field("as vectors", fmt::format("cosine {}, relative L2 {}", cosine, number(diff.relative_l2)));
  if (diff.ulps)
    out.field("ULP", fmt::format("max {}, median {}, p90 {}, p99 {}", diff.ulps->max, diff.ulps->median, diff.ulps->p90,
                                 diff.ulps->p99));
  const std::int64_t nan_apart = diff.nan_only_a + diff.nan_only_b, inf_apart = diff.inf_only_a + diff.inf_only_b;
  if (nan_apart + diff.nan_both > 0)
    out.field("NaN", sides_text(diff.nan_only_a, diff.nan_only_b, diff.nan_both), nan_apart > 0 ? kBad : Tone::Plain);
  if (inf_apart > 0) out.field("Inf", sides_text(diff.inf_only_a, diff.inf_only_b, 0), kBad);
  add_histogram(out, diff);
}

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

Tone tone_of_answer(bool is_different) { return is_different ? Tone::BoldRed : Tone::BoldGreen; }

}  // namespace

Document value_diff_report(const ValueDiff& diff, int top) {
  Document out(kNameWidth);
  if (diff.entries.size() == 1 && diff.values == 0 && diff.entries[0].tensor != nullptr &&
      diff.entries[0].name.empty()) {
    const TensorDiff& tensor = *diff.entries[0].tensor;
    out.headline(summary_line(tensor), tone_of_answer(tensor.is_different()));
    add_measures(out, tensor);
    return out;
  }
  out.headline(answer(diff), tone_of_answer(diff.is_different()));
  if (!diff.a.empty()) {
    out.line(fmt::format("  a: {} (the reference)", diff.a));
    out.line(fmt::format("  b: {}", diff.b));
  }
  std::vector<const DiffEntry*> shown;
  for (const auto& entry : diff.entries)
    if (entry.status != EntryStatus::Same) shown.push_back(&entry);
  std::ranges::stable_sort(shown, std::greater<>(), [](const DiffEntry* entry) { return badness(*entry); });
  const std::size_t limit = top <= 0 ? shown.size() : std::min(shown.size(), static_cast<std::size_t>(top));
  for (std::size_t i = 0; i < limit; ++i) {
    const DiffEntry& entry = *shown[i];
    if (!entry.name.empty()) out.section(entry.name, kHeading);
    if (entry.tensor == nullptr) {
      out.line((entry.name.empty() ? "  " : "") + entry.message, kBad);
      continue;
    }
    out.line((entry.name.empty() ? "  " : "") + summary_line(*entry.tensor), kBad);
    add_measures(out, *entry.tensor);
  }
  if (limit < shown.size()) out.section(fmt::format("… and {} more", shown.size() - limit), kFaint, 0);
  return out;
}

}  // namespace tenscope::report
