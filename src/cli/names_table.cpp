// Overview: the list of a run's names. Layers that repeat differ in a number of their names alone: names that are the
// same but for one number, and hold the same kind of value over the same steps, become one row. Each number of a name
// is looked at in turn, so that experts of layers fold twice: "layers.[0-31].experts.[0-7].up ×256".
#include "cli/names_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "cli/terminal.hpp"
#include "core/printable.hpp"
#include "report/series.hpp"
#include "report/values.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

using namespace report;

constexpr std::size_t kFewest = 3;  // names that become one row
constexpr std::size_t kReadPoints = 64;

bool is_number(std::string_view part) {
  return !part.empty() && part.size() < 10 &&
         std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.emplace_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ".")); }

// "[0-11]", "[0-3,7]"
std::string range_text(const std::set<int>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int first = *it;
    int last = first;
    while (++it != numbers.end() && *it == last + 1) last = *it;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("{}{}", last == first + 1 ? "," : "-", last);
  }
  return fmt::format("[{}]", text);
}

// What the members of a row have in common, beside their names.
struct Kind {
  std::string value;  // "float32[2, 3]", "number"
  std::int64_t first_step = 0, last_step = 0;
  std::size_t events = 0;
  bool has_nonfinite = false;
  auto operator<=>(const Kind&) const = default;
};

struct Folded {
  std::vector<std::string> parts;
  std::vector<const NameSummary*> members;
  Kind kind;
  int order = 0;
};

// Folds along the `nth` number of the names.
std::vector<Folded> folded(std::vector<Folded> rows, std::size_t nth) {
  using Key = std::tuple<std::vector<std::string>, Kind, int>;
  std::map<Key, std::vector<std::size_t>> groups;
  std::vector<std::optional<std::size_t>> places(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t seen = 0;
    for (std::size_t at = 0; at < rows[i].parts.size(); ++at) {
      const std::string& part = rows[i].parts[at];
      if (!is_number(part) && !part.starts_with('[')) continue;
      if (seen++ != nth) continue;
      if (!is_number(part)) break;
      places[i] = at;
      std::vector<std::string> pattern = rows[i].parts;
      pattern[at].assign(1, '*');
      groups[{std::move(pattern), rows[i].kind, rows[i].order}].push_back(i);
      break;
    }
  }
  std::vector<bool> is_gone(rows.size());
  for (const auto& [key, group] : groups) {
    if (group.size() < kFewest) continue;
    Folded& first = rows[group.front()];
    std::set<int> numbers;
    for (const std::size_t i : group) {
      numbers.insert(std::stoi(rows[i].parts[*places[i]]));
      if (i == group.front()) continue;
      first.members.insert(first.members.end(), rows[i].members.begin(), rows[i].members.end());
      is_gone[i] = true;
    }
    first.parts[*places[group.front()]] = range_text(numbers);
  }
  std::vector<Folded> left;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!is_gone[i]) left.push_back(std::move(rows[i]));
  return left;
}

// The program's own values, numbers first, then what modules took and gave, then gradients, then parameters and
// buffers.
int order_of(const Event& event) {
  switch (event.io) {
    case Io::None:
    case Io::Local:
    case Io::Other:
      return number_of(event.value) ? 0 : 1;
    case Io::Loss:
      return 0;
    case Io::Param:
    case Io::Buffer:
      return 4;
    case Io::Grad:
    case Io::GradInput:
    case Io::GradOutput:
      return 3;
    default:
      return 2;
  }
}

std::string nonfinite_text(const Reader& reader, const NameRow& row) {
  std::optional<EventId> first;
  for (const NameSummary* one : row.members)
    if (one->nonfinite && (!first || reader.step(*one->nonfinite) < reader.step(*first))) first = one->nonfinite;
  if (!first) return "";
  const Event event = reader.event(*first);
  const auto& stats = std::get<TensorRecord>(event.value).stats;
  std::string text;
  if (stats.nan > 0) text += fmt::format("NaN {}", stats.nan);
  if (stats.pos_inf + stats.neg_inf > 0)
    text += fmt::format("{}Inf {}", text.empty() ? "" : ", ", stats.pos_inf + stats.neg_inf);
  return fmt::format("{} @ step {}", text, event.step);
}

// The statistics of all members together, which have as many elements each.
struct Together {
  double min = std::numeric_limits<double>::quiet_NaN(), max = min, mean = 0, square = 0;
  std::size_t count = 0;

  void add(const Stats& stats) {
    if (std::isnan(stats.min)) return;
    min = count == 0 ? stats.min : std::min(min, stats.min);
    max = count == 0 ? stats.max : std::max(max, stats.max);
    mean += stats.mean;
    square += stats.std * stats.std + stats.mean * stats.mean;
    ++count;
  }
  double all_mean() const { return count == 0 ? min : mean / static_cast<double>(count); }
  double all_std() const {
    return count == 0 ? min : std::sqrt(std::max(0.0, square / static_cast<double>(count) - all_mean() * all_mean()));
  }
};

std::vector<double> values_over_steps(const Reader& reader, const NameSummary& summary) {
  std::vector<EventId> of_one;  // writer
  for (const EventId id : summary.events)
    if (reader.writer_index(id) == reader.writer_index(summary.events.front())) of_one.push_back(id);
  std::vector<double> values;
  for (const Series::Point& point : read_series(reader, of_one, Statistic::Value, kReadPoints).points)
    values.push_back(point.value);
  return values;
}

std::string sparks_of(const Reader& reader, const NameRow& row, std::size_t width) {
  std::vector<double> sum = values_over_steps(reader, *row.members.front());
  for (std::size_t i = 1; i < row.members.size(); ++i) {
    const std::vector<double> more = values_over_steps(reader, *row.members[i]);
    for (std::size_t at = 0; at < std::min(sum.size(), more.size()); ++at) sum[at] += more[at];
  }
  return sparkline(sum, width);
}

// "2.31"; of several "0.02 … 0.31".
std::string last_values(const Reader& reader, const NameRow& row) {
  const Event event = reader.event(row.members.front()->last());
  if (row.members.size() == 1) {
    const auto* tensor = std::get_if<TensorRecord>(&event.value);
    const bool is_float =
        tensor != nullptr ? kind_of(tensor->dtype) == DTypeKind::Float : std::holds_alternative<double>(event.value);
    return is_float ? fmt::format("{:.6g}", *number_of(event.value)) : number_in_words(event.value).value_or("");
  }
  Extent extent;
  for (const NameSummary* one : row.members)
    if (const auto number = number_of(reader.event(one->last()).value)) extent.add(*number);
  if (extent.is_empty) return "";
  if (extent.least == extent.most) return number_in_words(event.value).value_or("");
  return fmt::format("{:.4g} … {:.4g}", extent.least, extent.most);
}

std::vector<Cell> cells_of(const Reader& reader, const NameRow& row, bool is_narrow) {
  const NameSummary& summary = *row.members.front();
  const Event event = reader.event(summary.last());
  const std::string steps = summary.first_step == summary.last_step
                                ? std::to_string(summary.first_step)
                                : fmt::format("{}-{}", summary.first_step, summary.last_step);
  const std::string count = row.members.size() == 1 ? "" : fmt::format(" ×{}", row.members.size());
  std::vector<Cell> cells{Cell(row.name.empty() ? "''" : row.name + count, kName)};
  const auto add = [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) cells.emplace_back(text);
  };
  const auto* tensor = std::get_if<TensorRecord>(&event.value);
  const auto number = number_of(event.value);
  cells.emplace_back(tensor == nullptr ? "" : std::string(to_string(tensor->dtype)));
  if (number) {
    cells.emplace_back(last_values(reader, row), std::isfinite(*number) ? Tone::Plain : kBad);
    cells.emplace_back(sparks_of(reader, row, is_narrow ? 10 : 16), kName);
  } else {
    add({tensor != nullptr ? shape_text(tensor->shape) : value_text(event.value, is_narrow ? 12 : 24), ""});
  }
  std::size_t events = 0;
  for (const NameSummary* one : row.members) events += one->events.size();
  add({steps, grouped(static_cast<std::int64_t>(events))});
  if (tensor != nullptr && !number) {
    Together all;
    for (const NameSummary* one : row.members) all.add(std::get<TensorRecord>(reader.event(one->last()).value).stats);
    const bool is_one = row.members.size() == 1;
    const auto bytes = static_cast<std::uint64_t>(element_count(tensor->shape)) * item_size(tensor->dtype);
    add({bytes_text(bytes), is_one ? extreme_text(*tensor, false) : number_text(all.min),
         is_one ? extreme_text(*tensor, true) : number_text(all.max), number_text(all.all_mean()),
         is_one ? number_text(tensor->stats.std) : number_text(all.all_std())});
  } else {
    cells.resize(11, Cell(""));
  }
  cells.emplace_back(nonfinite_text(reader, row), kBad);
  return cells;
}

}  // namespace

std::vector<NameSummary> summarize(const Reader& reader, const std::vector<std::string>& patterns) {
  std::vector<NameSummary> result;
  std::unordered_map<std::string_view, std::size_t> places;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    if (reader.kind(id) != EventKind::Value && reader.kind(id) != EventKind::Change) continue;
    const auto [place, is_new] = places.emplace(reader.name(id), result.size());
    const std::int64_t step = reader.step(id);
    if (is_new) result.push_back({.name = std::string(reader.name(id)), .first_step = step, .last_step = step});
    NameSummary& summary = result[place->second];
    summary.first_step = std::min(summary.first_step, step);
    summary.last_step = std::max(summary.last_step, step);
    summary.events.push_back(id);
    if (!summary.nonfinite && reader.has_nonfinite(id)) summary.nonfinite = id;
  }
  const auto is_left_out = [&](const NameSummary& summary) {
    return std::ranges::none_of(patterns, [&](const auto& pattern) { return matches_glob(summary.name, pattern); });
  };
  if (!patterns.empty()) std::erase_if(result, is_left_out);
  return result;
}

std::vector<NameRow> name_rows(const std::vector<NameSummary>& summaries, const Reader& reader, bool is_folded) {
  constexpr std::size_t kMostNumbers = 4;
  std::vector<Folded> rows;
  for (const NameSummary& summary : summaries) {
    const Event event = reader.event(summary.last());
    const auto* tensor = std::get_if<TensorRecord>(&event.value);
    std::string value = tensor != nullptr ? fmt::format("{}{}", to_string(tensor->dtype), shape_text(tensor->shape))
                        : number_of(event.value) ? "number"
                                                 : value_text(event.value);
    rows.push_back({parts_of(summary.name),
                    {&summary},
                    {std::move(value), summary.first_step, summary.last_step, summary.events.size(),
                     summary.nonfinite.has_value()},
                    order_of(event)});
  }
  for (std::size_t nth = 0; is_folded && nth < kMostNumbers; ++nth) rows = folded(std::move(rows), nth);
  std::ranges::stable_sort(rows, {}, &Folded::order);
  std::vector<NameRow> result;
  for (Folded& row : rows)
    result.push_back({row.members.size() == 1 ? row.members[0]->name : joined(row.parts), std::move(row.members)});
  return result;
}

Table names_table(const std::vector<NameRow>& rows, const Reader& reader, std::size_t width) {
  constexpr std::size_t kNarrow = 100;
  Table table({{"name", Align::Left, Fit::Middle},
               {"dtype", Align::Left, Fit::Whole, 5},
               {"shape or value", Align::Left, Fit::Middle},
               {is_utf8_terminal() ? "over steps" : "", Align::Left, Fit::Whole, 9},
               {"steps", Align::Right, Fit::Whole, 8},
               {"events", Align::Right, Fit::Whole, 2},
               {"size", Align::Right, Fit::Whole, 1},
               {"min", Align::Right, Fit::Whole, 4},
               {"max", Align::Right, Fit::Whole, 6},
               {"mean", Align::Right, Fit::Whole, 7},
               {"std", Align::Right, Fit::Whole, 3},
               {""}});
  for (const NameRow& row : rows) {
    std::vector<Cell> cells = cells_of(reader, row, width > 0 && width < kNarrow);
    if (!is_utf8_terminal()) cells[3] = Cell("");
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace tenscope::cli
