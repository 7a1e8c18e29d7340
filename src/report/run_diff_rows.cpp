#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "report/run_diff.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

double difference(const DiffRowTable::Row& row) { return row.b - row.a; }

// NaN on one side only is the largest difference; on both sides it is none.
double size_of(const DiffRowTable::Row& row) {
  if (std::isnan(row.a) != std::isnan(row.b)) return std::numeric_limits<double>::infinity();
  const double size = std::abs(difference(row));
  return std::isnan(size) ? 0 : size;
}

std::string names_of(const DiffRowTable& table) {
  return table.a == table.b ? table.a : fmt::format("{} ({} in the second run)", table.a, table.b);
}

}  // namespace

std::string row_summary_in_words(const DiffRowTable& table) {
  double sum = 0, sum_of_sizes = 0, largest = 0;
  bool are_log_probabilities = true;
  for (const DiffRowTable::Row& row : table.rows) {
    sum += difference(row);
    sum_of_sizes += size_of(row);
    largest = std::max(largest, size_of(row));
    are_log_probabilities &= row.a <= 0 && row.b <= 0;
  }
  const auto count = static_cast<double>(table.rows.size());
  std::string text = fmt::format("{}, row by row: mean |b-a| {:.3g}, largest {:.3g}, mean b-a {:.3g}", names_of(table),
                                 sum_of_sizes / count, largest, sum / count);
  if (are_log_probabilities && std::isfinite(largest))
    text += fmt::format("; as log-probabilities: ratios up to {:.4g}", std::exp(largest));
  return text;
}

std::string rows_in_words(const DiffRows& rows) {
  std::string text = fmt::format("{} by {}, of {} in the first run and {} in the second", plural(rows.common, "pair"),
                                 fmt::join(rows.keys, ", "), rows.first, rows.second);
  if (rows.duplicates > 0)
    text += fmt::format("; {} more have a key that the other run has fewer times", rows.duplicates);
  const std::size_t left_out = rows.left_out_a.size() + rows.left_out_b.size();
  if (left_out > 0)
    text += fmt::format("; {} without such rows, or without all of them, left out: {}{}", plural(left_out, "tensor"),
                        rows.left_out_a.empty() ? rows.left_out_b[0] : rows.left_out_a[0], left_out > 1 ? ", ..." : "");
  return text;
}

std::string row_tables_text(const DiffRows& rows, std::size_t top, bool color) {
  std::string text;
  for (const DiffRowTable& table : rows.tables) {
    text += row_summary_in_words(table) + "\n";
    std::vector<const DiffRowTable::Row*> worst;
    for (const DiffRowTable::Row& row : table.rows)
      if (size_of(row) > 0) worst.push_back(&row);
    std::ranges::stable_sort(worst, std::greater<>(), [](const auto* row) { return size_of(*row); });
    std::vector<Table::Column> columns;
    for (const std::string& key : rows.keys) columns.push_back({key, Align::Right});
    for (const char* head : {"a", "b", "b-a"}) columns.push_back({head, Align::Right});
    Table shown(columns);
    for (std::size_t i = 0; i < worst.size() && i < top; ++i) {
      std::vector<Cell> cells;
      for (const std::int64_t number : worst[i]->key) cells.emplace_back(fmt::format("{}", number));
      for (const double number : {worst[i]->a, worst[i]->b, difference(*worst[i])})
        cells.emplace_back(fmt::format("{:.6g}", number));
      shown.add(std::move(cells));
    }
    if (!shown.empty()) text += shown.text(color);
    if (worst.size() > top) text += fmt::format("... {} more that differ\n", worst.size() - top);
  }
  return text;
}

}  // namespace tenscope::report
