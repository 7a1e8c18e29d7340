#include "compare/assembly.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "compare/double_reader.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::compare {
namespace {

using How = Fold::How;

std::int64_t product(const Shape& shape, std::size_t from, std::size_t to) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(from),
                         shape.begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{1}, std::multiplies<>());
}

std::optional<Shape> fold_shapes(const Fold& fold, std::span<const Shape> parts) {
  if (fold.how != How::Join) {
    const bool are_alike = std::ranges::all_of(parts, [&](const Shape& shape) { return shape == parts.front(); });
    return are_alike ? std::optional(parts.front()) : std::nullopt;
  }
  const auto axis = static_cast<std::size_t>(fold.axis);
  Shape whole = parts.front();
  if (axis >= whole.size()) return std::nullopt;
  whole[axis] = 0;
  for (const Shape& shape : parts) {
    if (shape.size() != whole.size()) return std::nullopt;
    for (std::size_t k = 0; k < whole.size(); ++k)
      if (k != axis && shape[k] != whole[k]) return std::nullopt;
    if (fold.pieces > 1 && shape[axis] % (fold.pieces - 1 + fold.first) != 0) return std::nullopt;
    if (fold.pieces != 1 && shape[axis] != parts.front()[axis]) return std::nullopt;
    whole[axis] += shape[axis];
  }
  return whole;
}

// A stretch of a part along the axis at which parts are joined.
struct Stretch {
  std::size_t part;
  std::int64_t begin, size;
};

std::vector<Stretch> stretches(const Fold& fold, std::span<const HostTensor> parts) {
  const auto axis = static_cast<std::size_t>(fold.axis);
  const std::int64_t pieces = fold.pieces == 0 ? parts.front().shape[axis] : fold.pieces;
  std::vector<Stretch> result;
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t part = fold.is_zigzag && piece % 2 == 1 ? parts.size() - 1 - i : i;
      const std::int64_t size = parts[part].shape[axis] / (pieces - 1 + fold.first);
      if (piece == 0)
        result.push_back({part, 0, fold.first * size});
      else
        result.push_back({part, (fold.first - 1 + piece) * size, size});
    }
  return result;
}

HostTensor join(const Fold& fold, std::span<const HostTensor> parts, Shape shape) {
  const auto axis = static_cast<std::size_t>(fold.axis);
  HostTensor whole{.dtype = parts.front().dtype, .shape = std::move(shape), .bytes = {}};
  const auto inner =
      static_cast<std::size_t>(product(whole.shape, axis + 1, whole.shape.size())) * item_size(whole.dtype);
  const std::int64_t outer = product(whole.shape, 0, axis);
  whole.bytes.resize(static_cast<std::size_t>(outer * whole.shape[axis]) * inner);
  const std::vector<Stretch> order = stretches(fold, parts);
  std::byte* to = whole.bytes.data();
  for (std::int64_t row = 0; row < outer; ++row)
    for (const Stretch& stretch : order) {
      const std::size_t size = static_cast<std::size_t>(stretch.size) * inner;
      if (size == 0) continue;
      const HostTensor& part = parts[stretch.part];
      std::memcpy(to, part.bytes.data() + static_cast<std::size_t>(row * part.shape[axis] + stretch.begin) * inner,
                  size);
      to += size;
    }
  return whole;
}

template <class Use>
void for_each_block(const TensorView& view, Use use) {
  const DoubleReader reader(view);
  std::vector<double> block(DoubleReader::kBlock);
  for (std::int64_t begin = 0; begin < reader.count(); begin += DoubleReader::kBlock) {
    const std::int64_t count = std::min(DoubleReader::kBlock, reader.count() - begin);
    reader.read(begin, count, block.data());
    use(begin, std::span<const double>(block.data(), static_cast<std::size_t>(count)));
  }
}

std::uint16_t to_bfloat16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}

// Doubles as a tensor of that dtype; integers and 8-bit floats become float64.
HostTensor narrowed(std::span<const double> values, DType dtype, Shape shape) {
  HostTensor result{.dtype = dtype, .shape = std::move(shape), .bytes = {}};
  const auto write = [&](auto convert) {
    using T = decltype(convert(0.0));
    result.bytes.resize(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = convert(values[i]);
      std::memcpy(result.bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::BF16:
      write(to_bfloat16);
      break;
    case DType::F16:
      write([](double value) { return static_cast<_Float16>(value); });
      break;
    case DType::F32:
    case DType::C64:
      write([](double value) { return static_cast<float>(value); });
      break;
    default:
      if (kind_of(dtype) != DTypeKind::Complex) result.dtype = DType::F64;
      write([](double value) { return value; });
  }
  return result;
}

HostTensor add_up(const Fold& fold, std::span<const HostTensor> parts, Shape shape) {
  const DType dtype = parts.front().dtype;
  std::vector<double> total;
  for (const HostTensor& part : parts)
    for_each_block(part.view(), [&](std::int64_t begin, std::span<const double> block) {
      total.resize(std::max(total.size(), static_cast<std::size_t>(begin) + block.size()));
      for (std::size_t i = 0; i < block.size(); ++i) total[static_cast<std::size_t>(begin) + i] += block[i];
    });
  if (fold.how == How::Mean)
    for (double& value : total) value /= static_cast<double>(parts.size());
  return narrowed(total, dtype, std::move(shape));
}

HostTensor fold_parts(const Fold& fold, std::size_t taken, std::span<HostTensor> parts) {
  if (fold.how == How::Same) return std::move(parts[taken]);
  std::vector<Shape> shapes;
  for (const HostTensor& part : parts) shapes.push_back(part.shape);
  Shape shape = *fold_shapes(fold, shapes);
  return fold.how == How::Join ? join(fold, parts, std::move(shape)) : add_up(fold, parts, std::move(shape));
}

HostTensor copy_of(const TensorView& view) {
  HostTensor copy{.dtype = view.dtype, .shape = Shape(view.shape.begin(), view.shape.end()), .bytes = {}};
  copy.bytes.resize(size_bytes(view));
  kernels::copy_c_order(view, copy.bytes.data());
  return copy;
}

std::string words_of(const Fold& fold, std::int64_t count) {
  switch (fold.how) {
    case How::Sum:
      return fmt::format("the sum of {}", count);
    case How::Mean:
      return fmt::format("the mean of {}", count);
    case How::Join:
      break;
    default:
      return {};
  }
  std::string words = fmt::format("{} joined along axis {}", count, fold.axis);
  if (fold.is_zigzag) return words + ", there and back again";
  if (fold.pieces == 0) return words + ", one element of each in turn";
  if (fold.pieces == 1) return words;
  words += fmt::format(", {} pieces of each", fold.pieces);
  return fold.first == 1 ? words : fmt::format("{}, the first of them {} times as long", words, fold.first);
}

}  // namespace

bool Assembly::has(How how) const {
  for (std::size_t i = 0; i < folds.size(); ++i)
    if (folds[i].how == how && grid[i] > 1) return true;
  return false;
}

std::string Assembly::in_words() const {
  std::string words;
  for (std::size_t i = folds.size(); i-- > 0;) {
    const std::string one = grid[i] > 1 ? words_of(folds[i], grid[i]) : "";
    if (!one.empty()) words += (words.empty() ? "" : ", and of these ") + one;
  }
  if (!shaped_as.empty())
    words += fmt::format("{}one row of [{}]", words.empty() ? "" : ", ", fmt::join(shaped_as, ", "));
  return words;
}

std::optional<Shape> shape_of(const Assembly& assembly, std::span<const Shape> parts) {
  const std::int64_t expected = product(assembly.grid, 0, assembly.grid.size());
  if (expected != std::ssize(parts) || parts.empty()) return std::nullopt;
  std::vector<std::optional<Shape>> shapes(parts.begin(), parts.end());
  auto whole =
      fold_grid(assembly, std::move(shapes), [](const Fold& fold, std::size_t, std::span<std::optional<Shape>> row) {
        std::vector<Shape> known;
        for (auto& shape : row) {
          if (!shape) return std::optional<Shape>();
          known.push_back(std::move(*shape));
        }
        return fold_shapes(fold, known);
      });
  if (!whole || assembly.shaped_as.empty()) return whole;
  const bool is_row = whole->size() == 1 && element_count(*whole) == element_count(assembly.shaped_as);
  return is_row ? std::optional(assembly.shaped_as) : std::nullopt;
}

HostTensor assemble(const Assembly& assembly, std::span<const TensorView> parts) {
  std::vector<HostTensor> tensors;
  for (const TensorView& part : parts) tensors.push_back(copy_of(part));
  HostTensor whole = fold_grid(assembly, std::move(tensors), fold_parts);
  if (!assembly.shaped_as.empty()) whole.shape = assembly.shaped_as;
  return whole;
}

HostTensor scaled(const TensorView& tensor, double factor) {
  if (kind_of(tensor.dtype) != DTypeKind::Float) return copy_of(tensor);
  std::vector<double> values = doubles_of(tensor);
  for (double& value : values) value *= factor;
  return narrowed(values, tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end()));
}

std::vector<double> doubles_of(const TensorView& tensor) {
  std::vector<double> values;
  for_each_block(tensor, [&](std::int64_t, std::span<const double> block) {
    values.insert(values.end(), block.begin(), block.end());
  });
  return values;
}

HostTensor tensor_of(std::span<const double> values, Shape shape, DType dtype) {
  return narrowed(values, dtype, std::move(shape));
}

}  // namespace tenscope::compare
