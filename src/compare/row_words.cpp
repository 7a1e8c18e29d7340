#include "compare/row_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compare/double_reader.hpp"
#include "compare/layout.hpp"
#include "compare/row_moves.hpp"

namespace tenscope::compare {
namespace {

const RowPairs& pairs_of(const RowMatch& match, RowTensorId id) { return *match.plan(id.side, id.index).pairs; }

bool is_of_rows(const RowMatch& match, RowTensorId id) {
  return match.plan(id.side, id.index).use == RowPlan::Use::Rows;
}

// Nothing where the run has one rank only.
std::optional<int> rank_of(const Reader& reader, EventId event) {
  const int rank = reader.writers()[reader.writer_index(event)].rank;
  const bool has_others = std::ranges::any_of(reader.writers(), [&](const WriterInfo& w) { return w.rank != rank; });
  return has_others || rank != 0 ? std::optional(rank) : std::nullopt;
}

}  // namespace

DType dtype_of_rows(const RowTensor& tensor, const RowAxes& way) {
  return tensor.pieces.at(way.axes.begin()->first).dtype;
}

Shape written_shape(const RowMatch& match, RowTensorId id) {
  const RowPlan& plan = match.plan(id.side, id.index);
  Shape shape = match.tensors(id.side)[id.index].ways[plan.way].rest;
  shape.insert(shape.begin(), std::ssize(plan.pairs->keys));
  return shape;
}

RowNames::RowNames(const RowMatch& match, std::vector<std::string> keys) : match_(match), keys_(std::move(keys)) {
  for (const int side : {0, 1})
    for (std::size_t i = 0; i < match.tensors(side).size(); ++i) {
      const RowTensor& tensor = match.tensors(side)[i];
      if (tensor.event.kind == EventKind::Value) by_name_[side].emplace(std::pair{tensor.event.name, tensor.call}, i);
    }
}

std::optional<RowTensorId> RowNames::find(int side, const std::string& name, std::int64_t call) const {
  const auto found = by_name_[side].find({name, call});
  return found == by_name_[side].end() ? std::nullopt : std::optional(RowTensorId{side, found->second});
}

// The event that holds a row of the tensor; without one its first.
DiffEvent RowNames::event_of(RowTensorId id, std::optional<std::size_t> row) const {
  const RowTensor& tensor = match_.tensors(id.side)[id.index];
  EventId event = tensor.first;
  if (is_of_rows(match_, id)) {
    const std::vector<RowPlace>& places = pairs_of(match_, id).places[static_cast<std::size_t>(id.side)];
    const std::size_t place = row && *row < places.size() ? *row : 0;
    event = tensor.pieces.at(places[place].batch).id;
  }
  const Reader& reader = match_.table(id.side).reader();
  return {.name = tensor.event.name,
          .step = reader.step(event),
          .call = reader.call(event),
          .rank = rank_of(reader, event),
          .slice = {}};
}

void RowNames::tell(DiffPlace& place, std::optional<std::size_t> row) const {
  for (const int side : {0, 1}) {
    const std::string name = place.name + (place.io == to_string(Io::Grad) ? std::string(kGradientSuffix) : "");
    const auto id = find(side, name, place.call);
    if (!id) continue;
    const DiffEvent event = event_of(*id, row);
    place.step = event.step;
    place.call = event.call;
    place.rank = event.rank.value_or(0);
    return;
  }
}

void RowNames::tell(DiffOrigin& origin) const {
  DiffMetrics& metrics = origin.metrics;
  std::optional<RowTensorId> ids[2];
  if (origin.event_a) ids[0] = find(0, origin.event_a->name, origin.event_a->call);
  if (origin.event_b) ids[1] = find(1, origin.event_b->name, origin.event_b->call);
  const bool is_by_rows = ids[0] && ids[1] && is_of_rows(match_, *ids[0]) && is_of_rows(match_, *ids[1]);

  std::optional<Element> worst;
  if (is_by_rows && !metrics.worst_index.empty() &&
      element_count(metrics.shape_a) == element_count(written_shape(match_, *ids[0]))) {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < metrics.worst_index.size(); ++k) at = at * metrics.shape_a[k] + metrics.worst_index[k];
    const std::int64_t per_row =
        element_count(match_.tensors(0)[ids[0]->index].ways[match_.plan(0, ids[0]->index).way].rest);
    worst = {.row = static_cast<std::size_t>(at / per_row), .element = at % per_row};
    // Where the rows may as well be along another axis (as many heads as tokens), the element is known, and not its
    // row.
    if (!match_.plan(0, ids[0]->index).is_tied) {
      metrics.row = row_in_words(*pairs_of(match_, *ids[0]).keys[worst->row], keys_);
      if (metrics.layout.empty()) metrics.rows = differing_rows(*ids[0], *ids[1]);
    }
  }
  // Relations and ranges are those of the rows in one order, which neither run has.
  if (is_by_rows) {
    metrics.ranges.clear();
    metrics.relation_numpy.clear();
    if (std::string moved = moved_rows(match_, *ids[0], *ids[1], keys_); !moved.empty())
      metrics.relation = std::move(moved);
    else if (metrics.relation.find("axis") != std::string::npos)
      metrics.relation += " (axis 0: the rows, in the order of their keys)";
  }

  const bool is_same_order = is_by_rows && metrics.layout == same_order({}).in_words() &&
                             written_shape(match_, *ids[0]) == written_shape(match_, *ids[1]);
  const auto row = worst ? std::optional(worst->row) : std::nullopt;
  if (origin.last_agreeing) tell(*origin.last_agreeing, row);
  for (const int side : {0, 1}) {
    if (!ids[side]) continue;
    DiffEvent event = event_of(*ids[side], row);
    if (worst) {
      const RowTensor& tensor = match_.tensors(side)[ids[side]->index];
      const RowAxes& way = tensor.ways[match_.plan(side, ids[side]->index).way];
      const RowPlace place = pairs_of(match_, *ids[side]).places[static_cast<std::size_t>(side)][worst->row];
      const std::vector<std::int64_t> index = index_in_batch(tensor, way, place, worst->element);
      // In another layout the element stands elsewhere in the row.
      const bool is_known = side == 0 || metrics.layout.empty() || is_same_order;
      event.slice = is_known ? fmt::format("{}", fmt::join(index, ",")) : slice_in_batch(tensor, way, place);
      if (side == 0) metrics.worst_index = index;
    }
    if (side == 0 || !ids[0]) {
      origin.place.step = event.step;
      origin.place.call = event.call;
      origin.place.rank = event.rank.value_or(0);
    }
    (side == 0 ? origin.event_a : origin.event_b) = std::move(event);
  }
}

void RowNames::tell(RunDiff& diff) const {
  for (DiffContentPair& pair : diff.content_pairs)
    if (const auto id = find(0, pair.a, pair.call)) {
      const DiffEvent event = event_of(*id, std::nullopt);
      pair.step = event.step;
      pair.call = event.call;
    }
  for (DiffOrigin& origin : diff.origins) tell(origin);
  if (diff.first_divergence && !diff.origins.empty()) diff.first_divergence = diff.origins.front();
  if (diff.first_bit_difference) tell(*diff.first_bit_difference);
  if (diff.rounding && diff.rounding->beyond) tell(*diff.rounding->beyond);
  if (diff.first_unknown) tell(*diff.first_unknown, std::nullopt);
  if (diff.first_divergence)
    for (DiffModule& module : diff.modules) module.step = diff.first_divergence->place.step;
}

// "3 of 14, all of request 2": rows that differ by at least a hundredth of the largest difference.
std::string RowNames::differing_rows(RowTensorId a, RowTensorId b) const {
  constexpr double kCounts = 0.01;
  const RowPairs& rows = pairs_of(match_, a);
  if (rows.keys != pairs_of(match_, b).keys || written_shape(match_, a) != written_shape(match_, b)) return {};
  std::vector<double> largest(rows.keys.size(), 0);
  std::vector<std::byte> bytes[2];
  std::optional<DoubleReader> readers[2];
  const Shape shape = written_shape(match_, a);
  for (const RowTensorId id : {a, b}) {
    const RowTensor& tensor = match_.tensors(id.side)[id.index];
    const RowAxes& way = tensor.ways[match_.plan(id.side, id.index).way];
    const auto side = static_cast<std::size_t>(id.side);
    bytes[side] = gather_rows(match_.table(id.side), tensor, way, pairs_of(match_, id).places[side]);
    readers[side].emplace(TensorView{.data = bytes[side].data(), .dtype = dtype_of_rows(tensor, way), .shape = shape});
  }
  if (readers[0]->count() != readers[1]->count()) return {};
  const std::int64_t count = readers[0]->count(), per_row = count / std::ssize(largest);
  std::vector<double> block[2] = {std::vector<double>(static_cast<std::size_t>(DoubleReader::kBlock)),
                                  std::vector<double>(static_cast<std::size_t>(DoubleReader::kBlock))};
  for (std::int64_t begin = 0; begin < count; begin += DoubleReader::kBlock) {
    const std::int64_t size = std::min(DoubleReader::kBlock, count - begin);
    for (const std::size_t side : {0, 1}) readers[side]->read(begin, size, block[side].data());
    for (std::int64_t i = 0; i < size; ++i) {
      const double x = block[0][static_cast<std::size_t>(i)], y = block[1][static_cast<std::size_t>(i)];
      double& of_row = largest[static_cast<std::size_t>((begin + i) / per_row)];
      const bool are_same = x == y || (std::isnan(x) && std::isnan(y));
      const double difference = std::abs(y - x);
      if (!are_same) of_row = std::max(of_row, std::isnan(difference) ? HUGE_VAL : difference);
    }
  }
  const double limit = kCounts * *std::ranges::max_element(largest);
  const auto differs = [&](std::size_t row) {
    return std::isfinite(limit) ? largest[row] >= limit : !std::isfinite(largest[row]);
  };
  std::size_t differing = 0;
  for (std::size_t row = 0; row < largest.size(); ++row) differing += differs(row) ? 1 : 0;
  if (differing == largest.size()) return {};
  std::string text = fmt::format("{} of {}", differing, largest.size());
  if (differing == 1) return text;
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    std::set<std::uint64_t> values;
    std::uint64_t largest_agreeing = 0;
    bool has_agreeing = false;
    for (std::size_t row = 0; row < largest.size(); ++row) {
      const std::uint64_t value = (*rows.keys[row])[k];
      if (differs(row))
        values.insert(value);
      else
        largest_agreeing = std::max(largest_agreeing, value), has_agreeing = true;
    }
    if (values.size() == 1)
      text += fmt::format(", all of {} {}", keys_[k], *values.begin());
    else if (has_agreeing && *values.begin() > largest_agreeing)
      text += fmt::format(", all of {} {} and beyond", keys_[k], *values.begin());
  }
  return text;
}

}  // namespace tenscope::compare
