#include "compare/row_tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "compare/double_reader.hpp"

namespace tenscope::compare {
namespace {

using AxisList = std::vector<std::size_t>;

std::int64_t rows_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Shape rest_of(const Shape& shape, const AxisList& axes) {
  Shape rest;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (std::ranges::find(axes, axis) == axes.end() && shape[axis] != 1) rest.push_back(shape[axis]);
  return rest;
}

// The axes that may be those of the keys, in the keys' order: each of them, or one axis with all rows. A single row
// needs none.
std::vector<AxisList> possible_axes(const Shape& shape, const Shape& keys) {
  std::vector<AxisList> found;
  const auto assign = [&](auto&& self, const Shape& wanted, AxisList axes) -> void {
    if (axes.size() == wanted.size()) {
      if (std::ranges::find(found, axes) == found.end()) found.push_back(std::move(axes));
      return;
    }
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] != wanted[axes.size()] || std::ranges::find(axes, axis) != axes.end()) continue;
      AxisList longer = axes;
      longer.push_back(axis);
      self(self, wanted, std::move(longer));
    }
  };
  const std::int64_t rows = rows_of(keys);
  assign(assign, without_ones(keys), {});
  if (rows != 1) assign(assign, {rows}, {});
  return found;
}

// `seed` are the axes of one batch; those of the others must leave rows of the same shape.
RowAxes extend(const RowTable& table, const RowTensor& tensor, std::size_t seed_batch, const AxisList& seed) {
  const RowTensor::Piece& first = tensor.pieces.at(seed_batch);
  RowAxes way{.axes = {}, .rest = rest_of(first.shape, seed)};
  for (const auto& entry : tensor.pieces) {
    const auto batch = entry.first;
    const RowTensor::Piece& piece = entry.second;
    if (piece.dtype != first.dtype || !piece.has_bytes) continue;
    std::vector<AxisList> fitting = possible_axes(piece.shape, table.batch_shape(batch));
    std::erase_if(fitting, [&](const AxisList& axes) { return rest_of(piece.shape, axes) != way.rest; });
    if (fitting.empty()) continue;
    const auto shared = [&](const AxisList& axes) {
      return std::ranges::count_if(axes, [&](std::size_t axis) { return std::ranges::find(seed, axis) != seed.end(); });
    };
    const bool is_here = std::ranges::find(fitting, seed) != fitting.end();
    way.axes.emplace(batch, is_here ? seed : *std::ranges::max_element(fitting, {}, shared));
  }
  return way;
}

std::vector<RowAxes> ways_of(const RowTable& table, const RowTensor& tensor) {
  std::vector<RowAxes> ways;
  for (const bool is_single_row : {false, true}) {
    for (const auto& [batch, piece] : tensor.pieces) {
      const Shape& keys = table.batch_shape(batch);
      if (!piece.has_bytes || (rows_of(keys) == 1) != is_single_row || rows_of(keys) == 0) continue;
      for (const AxisList& axes : possible_axes(piece.shape, keys)) ways.push_back(extend(table, tensor, batch, axes));
      if (!ways.empty()) break;
    }
    if (!ways.empty()) break;
  }
  std::size_t most = 0;
  for (const RowAxes& way : ways) most = std::max(most, way.axes.size());
  if (2 * most <= tensor.pieces.size()) return {};
  std::erase_if(ways, [&](const RowAxes& way) { return way.axes.size() < most || element_count(way.rest) == 0; });
  return ways;
}

RowTensor::Piece piece_of(const RowTable& table, EventId id, const Event& event, std::size_t batch) {
  RowTensor::Piece piece{.id = id};
  if (const auto* record = std::get_if<TensorRecord>(&event.value)) {
    piece.shape = record->shape;
    piece.dtype = record->dtype;
    piece.fingerprint = record->fingerprint;
    piece.has_bytes =
        table.reader().has_bytes(id, *record) && (record->file.empty() || is_c_order(table.reader().tensor(id).view));
    return piece;
  }
  piece.is_number = true;
  piece.has_bytes = rows_of(table.batch_shape(batch)) == 1;
  double number = 0;
  if (const auto* real = std::get_if<double>(&event.value))
    number = *real;
  else if (const auto* integer = std::get_if<std::int64_t>(&event.value))
    number = static_cast<double>(*integer);
  else
    piece.has_bytes = false;
  std::memcpy(piece.number.data(), &number, sizeof number);
  return piece;
}

// Where single rows are numbers by themselves, and others tensors of float32, the numbers are of float32, too.
void give_numbers_the_dtype_of_tensors(RowTensor& tensor) {
  const auto is_float32 = [](const auto& entry) { return !entry.second.is_number && entry.second.dtype == DType::F32; };
  if (std::ranges::none_of(tensor.pieces, is_float32)) return;
  for (auto& [batch, piece] : tensor.pieces) {
    if (!piece.is_number) continue;
    double number = 0;
    std::memcpy(&number, piece.number.data(), sizeof number);
    const auto rounded = static_cast<float>(number);
    std::memcpy(piece.number.data(), &rounded, sizeof rounded);
    piece.dtype = DType::F32;
  }
}

// Copies rows of a tensor in C order.
class RowCopier {
 public:
  RowCopier(const void* data, const Shape& shape, std::size_t item_size, const AxisList& axes)
      : data_(static_cast<const std::byte*>(data)), shape_(shape), axes_(axes), run_(item_size) {
    strides_ = c_strides(shape);
    for (std::int64_t& stride : strides_) stride *= static_cast<std::int64_t>(item_size);
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (std::ranges::find(axes, axis) == axes.end()) rest_.push_back(axis);
    while (!rest_.empty() && strides_[rest_.back()] == static_cast<std::int64_t>(run_)) {
      run_ *= static_cast<std::size_t>(shape[rest_.back()]);
      rest_.pop_back();
    }
  }

  // Returns the end of what it wrote.
  std::byte* copy(std::int64_t row, std::byte* out) const {
    const std::byte* from = data_;
    for (std::size_t k = axes_.size(); k-- > 0;) {
      from += row % shape_[axes_[k]] * strides_[axes_[k]];
      row /= shape_[axes_[k]];
    }
    Shape index(rest_.size(), 0);
    while (true) {
      std::memcpy(out, from, run_);
      out += run_;
      std::size_t k = rest_.size();
      while (k > 0) {
        from += strides_[rest_[k - 1]];
        if (++index[k - 1] < shape_[rest_[k - 1]]) break;
        from -= strides_[rest_[k - 1]] * shape_[rest_[k - 1]];
        index[--k] = 0;
      }
      if (k == 0) return out;
    }
  }

 private:
  const std::byte* data_;
  const Shape& shape_;
  const AxisList& axes_;
  Shape strides_;
  std::vector<std::size_t> rest_;
  std::size_t run_;  // bytes that lie together
};

}  // namespace

bool RowTensor::is_constant() const {
  return !pieces.empty() && std::ranges::all_of(pieces, [&](const auto& entry) {
    const Piece& one = entry.second;
    const Piece& other = pieces.begin()->second;
    return !one.is_number && one.fingerprint == other.fingerprint && one.dtype == other.dtype;
  });
}

std::vector<RowTensor> read_row_tensors(const RowTable& table) {
  using Name = std::tuple<std::string, EventKind, Io, Phase, std::string>;
  const Reader& reader = table.reader();
  std::map<std::tuple<std::size_t, Name>, std::int64_t> seen;  // in its batch
  std::map<std::pair<Name, std::int64_t>, std::size_t> known;
  std::map<std::pair<std::string, EventKind>, std::int64_t> calls;
  std::vector<RowTensor> tensors;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    const EventKind kind = reader.kind(id);
    if (kind != EventKind::Value && kind != EventKind::Enter && kind != EventKind::Exit) continue;
    if (kind == EventKind::Value && table.is_column(reader.name(id))) continue;
    Event event = reader.event(id);
    const auto batch = table.batch_of(id);
    const Name name{event.name, kind, event.io, event.phase, event.root};
    const std::int64_t call = seen[{batch.value_or(table.batch_count()), name}]++;
    const auto [place, is_new] = known.try_emplace({name, call}, tensors.size());
    if (is_new) {
      RowTensor tensor;
      tensor.first = id;
      tensor.call = calls[{event.name, kind}]++;
      tensor.event = event;
      tensors.push_back(std::move(tensor));
    }
    RowTensor& tensor = tensors[place->second];
    ++tensor.events;
    if (kind == EventKind::Value && batch) tensor.pieces.emplace(*batch, piece_of(table, id, event, *batch));
  }
  for (RowTensor& tensor : tensors) {
    give_numbers_the_dtype_of_tensors(tensor);
    const Io io = tensor.event.io;
    const bool is_of_parameter = io == Io::Param || io == Io::Buffer || io == Io::Grad;
    if (!is_of_parameter) tensor.ways = ways_of(table, tensor);
    // The same bytes beside different numbers of rows are no rows.
    const bool has_other_counts = std::ranges::any_of(tensor.pieces, [&](const auto& entry) {
      return rows_of(table.batch_shape(entry.first)) != rows_of(table.batch_shape(tensor.pieces.begin()->first));
    });
    if (has_other_counts && tensor.is_constant()) tensor.ways.clear();
  }
  return tensors;
}

std::vector<std::byte> gather_rows(const RowTable& table, const RowTensor& tensor, const RowAxes& way,
                                   const std::vector<RowPlace>& places) {
  const std::size_t width = item_size(tensor.pieces.at(way.axes.begin()->first).dtype);
  std::vector<std::byte> bytes(places.size() * static_cast<std::size_t>(element_count(way.rest)) * width);
  std::map<std::size_t, std::pair<TensorData, std::optional<RowCopier>>> sources;
  std::byte* out = bytes.data();
  for (const RowPlace& place : places) {
    const RowTensor::Piece& piece = tensor.pieces.at(place.batch);
    auto& [data, copier] = sources[place.batch];
    if (!copier) {
      if (!piece.is_number) data = table.reader().tensor(piece.id);
      copier.emplace(piece.is_number ? piece.number.data() : data.view.data, piece.shape, width,
                     way.axes.at(place.batch));
    }
    out = copier->copy(place.row, out);
  }
  return bytes;
}

std::vector<std::int64_t> index_in_batch(const RowTensor& tensor, const RowAxes& way, RowPlace place,
                                         std::int64_t element) {
  const Shape& shape = tensor.pieces.at(place.batch).shape;
  const AxisList& axes = way.axes.at(place.batch);
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t k = axes.size(); k-- > 0;) {
    index[axes[k]] = place.row % shape[axes[k]];
    place.row /= shape[axes[k]];
  }
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (std::ranges::find(axes, axis) != axes.end()) continue;
    index[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return index;
}

std::string slice_in_batch(const RowTensor& tensor, const RowAxes& way, RowPlace place) {
  const std::vector<std::int64_t> index = index_in_batch(tensor, way, place, 0);
  const AxisList& axes = way.axes.at(place.batch);
  std::vector<std::string> parts;
  for (std::size_t axis = 0; axis < index.size(); ++axis)
    parts.push_back(std::ranges::find(axes, axis) == axes.end() ? ":" : fmt::format("{}", index[axis]));
  while (!parts.empty() && parts.back() == ":") parts.pop_back();
  return fmt::format("{}", fmt::join(parts, ","));
}

std::vector<RowSum> row_sums(const RowTable& table, const RowTensor& tensor, const RowAxes& way,
                             const std::vector<RowPlace>& places) {
  std::vector<RowSum> sums(places.size());
  if (places.empty()) return sums;
  const std::vector<std::byte> bytes = gather_rows(table, tensor, way, places);
  const Shape shape = {std::ssize(places), element_count(way.rest)};
  const DoubleReader reader(
      {.data = bytes.data(), .dtype = tensor.pieces.at(way.axes.begin()->first).dtype, .shape = shape});
  const std::int64_t per_row = reader.count() / std::ssize(places);
  std::vector<double> block(static_cast<std::size_t>(DoubleReader::kBlock));
  for (std::int64_t begin = 0; begin < reader.count(); begin += DoubleReader::kBlock) {
    const std::int64_t count = std::min(DoubleReader::kBlock, reader.count() - begin);
    reader.read(begin, count, block.data());
    for (std::int64_t i = 0; i < count; ++i) {
      RowSum& of_row = sums[static_cast<std::size_t>((begin + i) / per_row)];
      of_row.sum += block[static_cast<std::size_t>(i)];
      of_row.squares += block[static_cast<std::size_t>(i)] * block[static_cast<std::size_t>(i)];
    }
  }
  return sums;
}

bool are_alike(const RowSum& a, const RowSum& b, std::int64_t elements, double near) {
  if (!std::isfinite(a.squares) || !std::isfinite(b.squares))
    return std::isfinite(a.squares) == std::isfinite(b.squares);
  const double norm = std::sqrt(std::max(a.squares, b.squares));
  return std::abs(std::sqrt(a.squares) - std::sqrt(b.squares)) <= near * norm &&
         std::abs(a.sum - b.sum) <= near * norm * std::sqrt(static_cast<double>(elements));
}

}  // namespace tenscope::compare
