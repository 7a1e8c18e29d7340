#include "compare/places.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenscope {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

bool is_full(const AxisPlaces& axis) { return axis.indices == axis.size; }

std::string range_text(const Range& range) {
  return range.second - range.first == 1 ? fmt::format("{}", range.first)
                                         : fmt::format("{}:{}", range.first, range.second);
}

// "3", "64:128", "3 and 7", "1, 5 and 8:10", "3:60 (40 of them)"
std::string list_text(const AxisPlaces& axis) {
  constexpr std::size_t kMaxListed = 6;
  if (axis.is_truncated || axis.ranges.size() > kMaxListed) {
    return fmt::format("{} ({} of them)", range_text({axis.ranges.front().first, axis.end}), axis.indices);
  }
  std::string text;
  for (std::size_t i = 0; i < axis.ranges.size(); ++i) {
    if (i > 0) text += i + 1 == axis.ranges.size() ? " and " : ", ";
    text += range_text(axis.ranges[i]);
  }
  return text;
}

// One axis of "[:, 64:128]"; many ranges as the one that spans them.
std::string slice_text(const AxisPlaces& axis) {
  constexpr std::size_t kMaxListed = 3;
  if (is_full(axis)) return ":";
  if (axis.ranges.size() > kMaxListed) return range_text({axis.ranges.front().first, axis.end});
  if (axis.ranges.size() == 1) return range_text(axis.ranges[0]);
  std::string text = "{";
  for (std::size_t i = 0; i < axis.ranges.size(); ++i) text += (i > 0 ? ", " : "") + range_text(axis.ranges[i]);
  return text + "}";
}

}  // namespace

std::vector<AxisPlaces> find_places(const std::vector<kernels::AxisMismatches>& axes) {
  std::vector<AxisPlaces> places;
  for (const auto& axis : axes) {
    AxisPlaces found;
    found.size = axis.size;
    std::vector<Range> ranges;
    for (std::size_t bin = 0; bin < axis.count.size(); ++bin) {
      if (axis.count[bin] == 0) continue;
      const std::int64_t low = axis.bin_width == 1 ? static_cast<std::int64_t>(bin) : axis.low[bin];
      const std::int64_t high = axis.bin_width == 1 ? static_cast<std::int64_t>(bin) : axis.high[bin];
      found.indices += high - low + 1;
      if (!ranges.empty() && ranges.back().second == low)
        ranges.back().second = high + 1;
      else
        ranges.emplace_back(low, high + 1);
    }
    if (!ranges.empty()) found.end = ranges.back().second;
    found.is_truncated = ranges.size() > AxisPlaces::kMaxRanges;
    if (found.is_truncated) ranges.resize(AxisPlaces::kMaxRanges);
    found.ranges = std::move(ranges);
    places.push_back(std::move(found));
  }
  return places;
}

std::string describe_places(const std::vector<AxisPlaces>& places, std::int64_t mismatches, std::int64_t count) {
  if (mismatches == 0) return {};
  if (mismatches == count) return "everywhere";
  std::vector<std::size_t> narrow;
  double box = 1;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!is_full(places[i])) narrow.push_back(i);
    box *= static_cast<double>(places[i].indices);
  }
  if (narrow.empty()) return "spread over all of it";
  const std::string_view all = static_cast<double>(mismatches) == box ? "all of" : "all in";
  const AxisPlaces& axis = places[narrow[0]];
  const bool is_list = axis.ranges.size() > 1;
  if (narrow.size() == 1 && places.size() == 2) {
    const bool is_single = axis.indices == 1;
    const std::string_view name = narrow[0] == 0 ? (is_single ? "row" : "rows") : (is_single ? "column" : "columns");
    if (is_list || is_single) return fmt::format("{} {} {}", all, name, list_text(axis));
  }
  if (narrow.size() == 1 && is_list) return fmt::format("{} {} of axis {}", all, list_text(axis), narrow[0]);
  std::string text;
  for (const auto& place : places) text += (text.empty() ? "" : ", ") + slice_text(place);
  return fmt::format("{} [{}]", all, text);
}

}  // namespace tenscope
