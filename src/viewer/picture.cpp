#include "viewer/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "report/slice.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

// The last two axes, 0 in the others.
std::string default_slice(std::size_t rank) {
  std::string text;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (axis > 0) text += ',';
    text += axis + 2 < rank ? "0" : ":";
  }
  return text;
}

// The axes that a slice leaves. It has been read by report::Slice, so that it fits the rank.
std::vector<std::int64_t> kept_axes(std::string_view text, std::size_t rank) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text) {
    if (c == ',') {
      parts.push_back(std::move(part));
      part.clear();
    } else if (c != ' ') {
      part += c;
    }
  }
  if (!parts.empty() || !part.empty()) parts.push_back(std::move(part));
  std::vector<std::int64_t> kept;
  std::size_t axis = 0;
  const auto keep_until = [&](std::size_t end) {
    for (; axis < end; ++axis) kept.push_back(static_cast<std::int64_t>(axis));
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "...")
      keep_until(rank - (parts.size() - i - 1));
    else if (parts[i].find(':') != std::string::npos)
      keep_until(axis + 1);
    else
      ++axis;
  }
  keep_until(rank);
  return kept;
}

}  // namespace

Picture::Picture(const TensorView& tensor, const Parameters& parameters) {
  const std::size_t rank = tensor.shape.size();
  const bool is_folded = parameters.flag("fold");
  if (is_folded && parameters.has("slice"))
    throw Error(ErrorCode::InvalidArgument, "'fold' shows the whole tensor and does not go with 'slice'");
  slice_ = default_slice(rank);
  if (is_folded) std::replace(slice_.begin(), slice_.end(), '0', ':');
  if (parameters.has("slice")) {
    slice_ = parameters.text("slice");
  } else if (element_count(tensor.shape) == 0) {
    is_empty_ = true;  // 0 need not be an index of the other axes
  }

  std::vector<std::int64_t> kept;
  Matrix found;
  if (is_empty_) {
    for (std::size_t axis = rank - std::min<std::size_t>(rank, 2); axis < rank; ++axis)
      kept.push_back(static_cast<std::int64_t>(axis));
  } else {
    found = matrix(tensor);
    kept = kept_axes(slice_, rank);
  }
  if (kept.size() > 2 && !is_folded) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("a picture has two axes, and the slice '{}' leaves {}", slice_, kept.size()));
  }
  if (!kept.empty()) axes_[1] = kept.back();
  if (kept.size() >= 2) axes_[0] = kept.size() == 2 ? kept[0] : -2;
  if (is_empty_) {
    matrix_cols_ = tensor.shape[rank - 1];
    matrix_rows_ = rank == 1 ? 1 : rank == 2 ? tensor.shape[0] : 0;
  } else if (!kept.empty()) {
    matrix_cols_ = found.shape.back();
    for (std::size_t i = 0; i + 1 < found.shape.size(); ++i) matrix_rows_ *= found.shape[i];
  }
  if (found.shape.size() == 2 && matrix_rows_ > 1 && matrix_cols_ > 1) {
    const std::int64_t down = std::abs(found.strides[0]), along = std::abs(found.strides[1]);
    swaps_axes_ = along > down && down != 0;
    if (swaps_axes_) std::swap(matrix_rows_, matrix_cols_);
  }
  const bool is_transposed = parameters.flag("t");
  if (is_transposed) std::swap(axes_[0], axes_[1]);
  is_turned_ = is_transposed != swaps_axes_;
}

Picture::Matrix Picture::matrix(const TensorView& tensor) const {
  Matrix result{tensor.data, tensor.dtype, {}, {}};
  if (is_empty_) {
    result.shape = {matrix_rows_, matrix_cols_};
    result.strides = {1, 1};
    return result;
  }
  const report::Slice slice(tensor, slice_);
  const TensorView view = slice.view();
  result.data = view.data;
  result.shape.assign(view.shape.begin(), view.shape.end());
  result.strides.assign(view.strides.begin(), view.strides.end());
  if (swaps_axes_) {
    std::swap(result.shape[0], result.shape[1]);
    std::swap(result.strides[0], result.strides[1]);
  }
  return result;
}

}  // namespace tenscope::viewer
