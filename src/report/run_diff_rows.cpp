#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "report/document.hpp"
#include "report/run_diff.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

double difference(const DiffRowTable::Row& row) { return row.b - row.a; }

// NaN on one side only is the largest difference; on both sides it is none, and so are equal infinities.
double size_of(const DiffRowTable::Row& row) {
  if (std::isnan(row.a) != std::isnan(row.b)) return std::numeric_limits<double>::infinity();
  const double size = std::abs(difference(row));
  return std::isnan(size) ? 0 : size;
}

bool are_log_probabilities(const DiffRowTable& table) {
  const auto is_one = [](const DiffRowTable::Row& row) { return row.a <= 0 && row.b <= 0; };
  return std::ranges::all_of(table.rows, is_one) &&
         std::ranges::any_of(table.rows, [](const DiffRowTable::Row& row) { return row.a < 0 || row.b < 0; });
}

std::string names_of(const DiffRowTable& table) {
  return table.a == table.b ? table.a : fmt::format("{} ({} in the second run)", table.a, table.b);
}

// "3 tensors without such rows: h, ..."
std::string some_of(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  constexpr std::size_t kListed = 3;
  std::vector<std::string> names = first;
  for (const std::string& name : second)
    if (std::ranges::find(first, name) == first.end()) names.push_back(name);
  const std::size_t count = names.size();
  if (count > kListed) names.resize(kListed);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     count > kListed ? fmt::format(" and {} more", count - kListed) : "");
}

// The head, or its end where it has to be narrower: "..quest_id".
std::string fitted(const std::string& head, std::size_t width) {
  if (head.size() <= width || width < 4) return head;
  return ".." + head.substr(head.size() - (width - 2));
}

Table worst_rows(const DiffRows& rows, const DiffRowTable& table, const std::vector<const DiffRowTable::Row*>& worst,
                 const RunDiffTextOptions& options) {
  const bool has_ratios = are_log_probabilities(table);
  std::vector<std::vector<Cell>> lines;
  std::vector<std::size_t> widths(rows.keys.size(), 0);
  std::size_t taken = 0;  // by the numbers
  for (const DiffRowTable::Row* row : worst) {
    std::vector<Cell> cells;
    std::size_t width = 0;
    for (std::size_t k = 0; k < row->key.size(); ++k) {
      cells.emplace_back(fmt::format("{}", row->key[k]));
      widths[k] = std::max(widths[k], cells.back().text.size());
    }
    for (const double number : {row->a, row->b, difference(*row)}) {
      cells.emplace_back(fmt::format("{:.6g}", number));
      width += 2 + std::max<std::size_t>(cells.back().text.size(), 3);
    }
    if (has_ratios) cells.emplace_back(fmt::format("{:.4g}", std::exp(difference(*row))));
    taken = std::max(taken, width + (has_ratios ? 12 : 0));
    lines.push_back(std::move(cells));
  }
  // Long names of keys are cut to what the numbers leave of the width.
  const std::size_t left = options.width > taken ? options.width - taken : 0;
  const std::size_t each = std::max<std::size_t>(rows.keys.empty() ? 0 : left / rows.keys.size(), 6) - 2;
  std::vector<Table::Column> columns;
  for (std::size_t k = 0; k < rows.keys.size(); ++k)
    columns.push_back({fitted(rows.keys[k], std::max(widths[k], each)), Align::Right});
  for (const char* head : {"a", "b", "b-a"}) columns.push_back({head, Align::Right});
  if (has_ratios) columns.push_back({"exp(b-a)", Align::Right});
  Table shown(columns);
  for (std::vector<Cell>& line : lines) shown.add(std::move(line));
  return shown;
}

}  // namespace

std::string row_summary_in_words(const DiffRowTable& table) {
  constexpr double kClip = 0.2;  // as PPO has it
  double sum = 0, sum_of_sizes = 0, largest = 0, divergence = 0, smallest_ratio = 1, largest_ratio = 1;
  std::size_t clipped = 0;
  for (const DiffRowTable::Row& row : table.rows) {
    const double size = size_of(row), by = size == 0 ? 0 : difference(row);
    sum += by;
    sum_of_sizes += size;
    largest = std::max(largest, size);
    divergence += std::expm1(by) - by;
    smallest_ratio = std::min(smallest_ratio, std::exp(by));
    largest_ratio = std::max(largest_ratio, std::exp(by));
    clipped += std::abs(std::expm1(by)) > kClip ? 1 : 0;
  }
  if (largest == 0)
    return fmt::format("{}, row by row: equal in all {}", names_of(table), plural(table.rows.size(), "row"));
  const auto count = static_cast<double>(table.rows.size());
  std::string text = fmt::format("{}, row by row: mean |b-a| {:.3g}, largest {:.3g}, mean b-a {:.3g}", names_of(table),
                                 sum_of_sizes / count, largest, sum / count);
  if (are_log_probabilities(table) && std::isfinite(largest))
    text += fmt::format(
        "\n  as log-probabilities: ratios exp(b-a) from {:.4g} to {:.4g}, {} of {} beyond 0.8 to 1.2, "
        "KL(a, b) about {:.2g}",
        smallest_ratio, largest_ratio, clipped, table.rows.size(), divergence / count);
  return text;
}

std::string row_coverage_in_words(const DiffRows& rows) {
  return fmt::format("{}, of {} in the first run and {} in the second", plural(rows.common, "row"), rows.first,
                     rows.second);
}

std::vector<std::string> rows_in_words(const DiffRows& rows) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} by {}, of {} in the first run and {} in the second", plural(rows.common, "pair"),
                              fmt::join(rows.keys, ", "), rows.first, rows.second));
  if (rows.padding_first + rows.padding_second > 0)
    lines.push_back(
        fmt::format("padding besides: {} in the first run, {} in the second", rows.padding_first, rows.padding_second));
  if (rows.duplicates > 0)
    lines.push_back(fmt::format("{} more {} a key that the other run has fewer times: the {} of them were compared",
                                rows.duplicates, rows.duplicates == 1 ? "has" : "have",
                                rows.takes_first ? "first" : "last"));
  if (rows.unplaced > 0)
    lines.push_back(fmt::format("left out, since token ids do not place them: {}", plural(rows.unplaced, "row")));
  if (!rows.partial.empty()) lines.push_back(fmt::format("compared in part only: {}", some_of(rows.partial, {})));
  if (!rows.ambiguous_a.empty() || !rows.ambiguous_b.empty())
    lines.push_back(
        fmt::format("left out, since several axes may be the rows: {}", some_of(rows.ambiguous_a, rows.ambiguous_b)));
  if (!rows.left_out_a.empty() || !rows.left_out_b.empty())
    lines.push_back(fmt::format("left out, without such rows: {}", some_of(rows.left_out_a, rows.left_out_b)));
  if (rows.are_keys_doubtful)
    lines.push_back(fmt::format("equal in the order of recording, but not by the keys: {}. Are the keys right?",
                                some_of(rows.as_they_are, {})));
  else if (!rows.as_they_are.empty())
    lines.push_back(
        fmt::format("equal bytes in both runs, and so taken for no rows: {}", some_of(rows.as_they_are, {})));
  return lines;
}

void add_row_tables(Document& document, const RunDiff& diff, const RunDiffTextOptions& options) {
  constexpr double kCounts = 1e-3;  // of the largest difference; what is less is noise beside it
  const DiffRows& rows = *diff.rows;
  for (const DiffRowTable& table : rows.tables) {
    document.line(row_summary_in_words(table));
    if (diff.within_tolerance()) continue;
    double largest = 0;
    for (const DiffRowTable::Row& row : table.rows)
      if (std::isfinite(size_of(row))) largest = std::max(largest, size_of(row));
    std::vector<const DiffRowTable::Row*> worst;
    for (const DiffRowTable::Row& row : table.rows)
      if (size_of(row) > kCounts * largest) worst.push_back(&row);
    std::ranges::stable_sort(worst, std::greater<>(), [](const auto* row) { return size_of(*row); });
    const std::size_t differing = worst.size();
    if (differing > options.top) worst.resize(options.top);
    if (!worst.empty()) document.table(worst_rows(rows, table, worst, options));
    if (differing > options.top) document.line(fmt::format("... {} more that differ", differing - options.top));
  }
}

}  // namespace tenscope::report
