#include "report/slice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "tenscope/error.hpp"

namespace tenscope::report {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t comma; (comma = text.find(separator)) != text.npos; text.remove_prefix(comma + 1)) {
    parts.push_back(trim(text.substr(0, comma)));
  }
  parts.push_back(trim(text));
  return parts;
}

std::int64_t parse_index(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("cannot read a slice: '{}' is no number", text));
  }
  return value;
}

// start:stop:step over an axis, by Python's rules: what lies outside is clipped.
struct Range {
  std::int64_t start, step, count;
};

Range parse_range(std::string_view text, std::int64_t size) {
  const auto parts = split(text, ':');
  if (parts.size() > 3) throw Error(ErrorCode::InvalidArgument, fmt::format("cannot read a slice: '{}'", text));
  const std::int64_t step = parts.size() == 3 && !parts[2].empty() ? parse_index(parts[2]) : 1;
  if (step == 0) throw Error(ErrorCode::InvalidArgument, "cannot read a slice: its step is 0");
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](std::string_view part, std::int64_t absent) {
    if (part.empty()) return absent;
    const std::int64_t index = parse_index(part);
    return std::clamp(index < 0 ? index + size : index, low, high);
  };
  const std::int64_t start = bound(parts[0], step > 0 ? low : high);
  const std::int64_t stop = bound(parts[1], step > 0 ? high : low);
  const std::int64_t span = step > 0 ? stop - start : start - stop;
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
  return {start, step, span <= 0 ? 0 : static_cast<std::int64_t>((static_cast<std::uint64_t>(span) - 1) / stride) + 1};
}

}  // namespace

Slice::Slice(const TensorView& view, std::string_view text)
    : data_(view.data), dtype_(view.dtype), device_(view.device) {
  std::vector<std::int64_t> strides(view.strides.begin(), view.strides.end());
  if (strides.empty()) {
    strides.resize(view.shape.size());
    std::int64_t stride = 1;
    for (std::size_t axis = strides.size(); axis-- > 0; stride *= view.shape[axis]) strides[axis] = stride;
  }
  std::vector<std::string_view> parts;
  if (!trim(text).empty()) parts = split(text, ',');
  const auto dots = static_cast<std::size_t>(std::count(parts.begin(), parts.end(), "..."));
  if (dots > 1 || parts.size() - dots > view.shape.size()) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot slice: '{}' has too many parts for a tensor of {} axes", text, view.shape.size()));
  }
  std::int64_t offset = 0;
  std::size_t axis = 0;
  const auto keep_axes = [&](std::size_t end) {
    for (; axis < end; ++axis) {
      shape_.push_back(view.shape[axis]);
      strides_.push_back(strides[axis]);
    }
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "...") {
      keep_axes(view.shape.size() - (parts.size() - i - 1));
    } else if (parts[i].find(':') != parts[i].npos) {
      const Range range = parse_range(parts[i], view.shape[axis]);
      if (range.count > 0) offset += range.start * strides[axis];
      shape_.push_back(range.count);
      strides_.push_back(range.count > 1 ? range.step * strides[axis] : 1);
      ++axis;
    } else {
      const std::int64_t size = view.shape[axis], given = parse_index(parts[i]);
      const std::int64_t index = given < 0 ? given + size : given;
      if (index < 0 || index >= size) {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("cannot slice: index {} is out of bounds for axis {} with size {}", given, axis, size));
      }
      offset += index * strides[axis++];
    }
  }
  keep_axes(view.shape.size());
  if (data_ != nullptr && element_count(shape_) > 0) {
    data_ = static_cast<const std::byte*>(data_) + offset * static_cast<std::int64_t>(item_size(dtype_));
  }
}

}  // namespace tenscope::report
