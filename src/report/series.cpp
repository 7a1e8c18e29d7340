#include "report/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/decimal.hpp"
#include "report/values.hpp"

namespace tenscope::report {
namespace {

bool is_one_number(const TensorRecord& tensor) {
  return element_count(tensor.shape) == 1 && kind_of(tensor.dtype) != DTypeKind::Complex;
}

// Its statistics are over finite elements: what it is when there is none, the counts tell.
double only_element(const Stats& stats) {
  if (stats.pos_inf > 0) return std::numeric_limits<double>::infinity();
  if (stats.neg_inf > 0) return -std::numeric_limits<double>::infinity();
  return stats.nan > 0 ? std::numeric_limits<double>::quiet_NaN() : stats.min;
}

std::optional<double> statistic_of(const TensorRecord& tensor, Statistic statistic) {
  const Stats& stats = tensor.stats;
  if (is_one_number(tensor)) return only_element(stats);
  switch (statistic) {
    case Statistic::Value:
      return std::nullopt;
    case Statistic::Min:
      return stats.min;
    case Statistic::Max:
      return stats.max;
    case Statistic::Mean:
      return stats.mean;
    case Statistic::Std:
      return stats.std;
    case Statistic::L2:
      return stats.l2;
    case Statistic::AbsMax:
      return stats.abs_max;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Statistic> parse_statistic(std::string_view word) noexcept {
  constexpr std::array<std::string_view, 7> kWords{"value", "min", "max", "mean", "std", "l2", "absmax"};
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return std::nullopt;
  return static_cast<Statistic>(found - kWords.begin());
}

std::optional<double> number_of(const EventValue& value, Statistic statistic) {
  if (const auto* tensor = std::get_if<TensorRecord>(&value)) return statistic_of(*tensor, statistic);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<std::string> number_in_words(const EventValue& value) {
  const auto* tensor = std::get_if<TensorRecord>(&value);
  if (tensor == nullptr) return number_of(value) ? std::optional(value_text(value)) : std::nullopt;
  if (!is_one_number(*tensor)) return std::nullopt;
  const double number = only_element(tensor->stats);
  if (kind_of(tensor->dtype) == DTypeKind::Bool) return number != 0 ? "True" : "False";
  if (kind_of(tensor->dtype) != DTypeKind::Float) return extreme_text(*tensor, true);
  return scalar_text(number, tensor->dtype == DType::F64   ? FloatWidth::Double
                             : tensor->dtype == DType::F16 ? FloatWidth::Half
                                                           : FloatWidth::Single);
}

Series read_series(const Reader& reader, std::span<const EventId> ids, Statistic statistic, std::size_t most) {
  Series series;
  if (ids.empty()) return series;
  series.name = reader.name(ids.front());
  const std::size_t count = most > 1 ? std::min(most, ids.size()) : ids.size();
  for (std::size_t i = 0; i < count; ++i) {
    const EventId id = count == ids.size() ? ids[i] : ids[i * (ids.size() - 1) / (count - 1)];
    const Event event = reader.event(id);
    if (const auto number = number_of(event.value, statistic))
      series.points.push_back({event.step, event.call, *number});
  }
  return series;
}

void Extent::add(double value) noexcept {
  if (!std::isfinite(value)) return;
  least = is_empty ? value : std::min(least, value);
  most = is_empty ? value : std::max(most, value);
  is_empty = false;
}

Extent extent_of(const Series& series) noexcept {
  Extent extent;
  for (const Series::Point& point : series.points) extent.add(point.value);
  return extent;
}

std::string sparkline(std::span<const double> values, std::size_t width) {
  constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.size() < 2 || width == 0) return "";
  std::vector<double> parts;
  const std::size_t count = std::min(width, values.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    double sum = 0;
    for (std::size_t at = begin; at < end; ++at) sum += values[at] / static_cast<double>(end - begin);
    parts.push_back(sum);
  }
  Extent extent;
  for (const double part : parts) extent.add(part);
  std::string text;
  for (const double part : parts) {
    if (!std::isfinite(part)) {
      text += "×";
      continue;
    }
    const double range = extent.most / 2 - extent.least / 2;  // never overflows
    const double share = range > 0 ? (part / 2 - extent.least / 2) / range : 0.4;
    text += kBlocks[std::min<std::size_t>(static_cast<std::size_t>(share * 8), 7)];
  }
  return text;
}

}  // namespace tenscope::report
