#include "compare/off_parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "compare/pairing_thresholds.hpp"
#include "compare/thresholds.hpp"
#include "store/shards.hpp"

namespace tenscope::compare {
namespace {

using Numbers = std::vector<double>;

// The arrangement with each of the parts taken that should be the same.
std::vector<Arrangement> all_taken(const Arrangement& how) {
  std::vector<Arrangement> result = {how};
  result.front().assembly.taken.assign(how.assembly.grid.size(), 0);
  for (std::size_t axis = 0; axis < how.assembly.grid.size(); ++axis) {
    if (how.assembly.folds[axis].how != Fold::How::Same) continue;
    std::vector<Arrangement> more;
    for (const Arrangement& one : result)
      for (std::size_t taken = 0; taken < static_cast<std::size_t>(how.assembly.grid[axis]); ++taken)
        more.emplace_back(one).assembly.taken[axis] = taken;
    result = std::move(more);
  }
  return result;
}

double relative_distance(std::span<const double> value, std::span<const double> reference) {
  if (value.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    difference += (value[i] - reference[i]) * (value[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  if (difference == 0) return 0;
  return size > 0 ? std::sqrt(difference / size) : std::numeric_limits<double>::infinity();
}

// For each element of a piece that begins at `offset` in a tensor of that shape: which element of the tensor it is.
std::vector<std::size_t> places_in(const Shape& shape, const Shape& offset, const Shape& piece) {
  const Shape strides = c_strides(shape);
  std::vector<std::size_t> places(static_cast<std::size_t>(element_count(piece)));
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto left = static_cast<std::int64_t>(i);
    std::int64_t at = 0;
    for (std::size_t axis = piece.size(); axis-- > 0;) {
      at += (left % piece[axis] + offset[axis]) * strides[axis];
      left /= piece[axis];
    }
    places[i] = static_cast<std::size_t>(at);
  }
  return places;
}

}  // namespace

RecordedPieces::RecordedPieces(const PartLoader& loader, int run, const PartSet& set, const Arrangement& how)
    : reader_(loader.reader(run)), run_(run) {
  if (how.assembly.has(Fold::How::Sum) || how.assembly.has(Fold::How::Mean)) return;
  place(set, how);
}

// Where an element goes is found by putting together numbers that say which piece, and which element of it, each is.
void RecordedPieces::place(const PartSet& set, const Arrangement& how) {
  std::vector<HostTensor> owners, orders;
  for (std::size_t part = 0; part < set.parts.size(); ++part) {
    const PartTensor& tensor = set.parts[part];
    Numbers owner(static_cast<std::size_t>(element_count(tensor.shape)), -1), order(owner.size());
    for (std::size_t i = 0; i < tensor.events.size(); ++i) {
      const Event event = reader_.event(tensor.events[i]);
      const Shape& shape = std::get<TensorRecord>(event.value).shape;
      const auto shard = tensor.is_declared ? store::parse_shard(event.meta) : std::nullopt;
      const bool is_summand = shard && std::ranges::any_of(shard->placements, [](const std::string& placement) {
                                return placement.starts_with("P");
                              });
      if (is_summand) {
        pieces_.clear();
        return;
      }
      Piece& piece = pieces_.emplace_back();
      piece.event = tensor.events[i];
      piece.rank = tensor.ranks[i];
      if (set.passes > 1) piece.pass = static_cast<std::int64_t>(part % set.passes);
      const auto places = places_in(tensor.shape, shard ? shard->offset : Shape(shape.size(), 0), shape);
      piece.places.resize(places.size());
      for (std::size_t k = 0; k < places.size(); ++k) {
        owner[places[k]] = static_cast<double>(pieces_.size() - 1);
        order[places[k]] = static_cast<double>(k);
      }
    }
    owners.push_back(tensor_of(owner, tensor.shape));
    orders.push_back(tensor_of(order, tensor.shape));
  }
  const auto put_together = [&](const Arrangement& one, const std::vector<HostTensor>& parts) {
    std::vector<TensorView> views;
    for (const HostTensor& part : parts) views.push_back(part.view());
    return doubles_of(assemble(one.assembly, in_order(one, set.ranks, set.passes, views)).view());
  };
  for (const Arrangement& one : all_taken(how)) {
    const Numbers owner = put_together(one, owners), order = put_together(one, orders);
    for (std::size_t i = 0; i < owner.size(); ++i)
      if (owner[i] >= 0) pieces_[static_cast<std::size_t>(owner[i])].places[static_cast<std::size_t>(order[i])] = i;
  }
}

std::vector<Numbers> RecordedPieces::cut(const TensorView& whole) const {
  const Numbers numbers = doubles_of(whole);
  std::vector<Numbers> result;
  for (const Piece& piece : pieces_) {
    Numbers& own = result.emplace_back();
    for (const std::size_t at : piece.places) own.push_back(at < numbers.size() ? numbers[at] : 0);
  }
  return result;
}

std::vector<DiffPart> RecordedPieces::find_off(const TensorView& whole, double factor) const {
  if (pieces_.size() < 2 || kind_of(whole.dtype) == DTypeKind::Complex) return {};
  const std::vector<Numbers> expected = cut(whole);
  std::vector<Numbers> actual;
  Numbers errors;
  for (const Piece& piece : pieces_) {
    Numbers& numbers = actual.emplace_back(doubles_of(reader_.tensor(piece.event).view));
    for (double& number : numbers) number *= factor;
    errors.push_back(relative_distance(numbers, expected[actual.size() - 1]));
  }
  const double largest = *std::ranges::max_element(errors);
  std::vector<DiffPart> result;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (errors[i] == 0 || errors[i] < pairing::kPartIsOff * largest) continue;
    DiffPart& part = result.emplace_back();
    part.run = run_;
    part.rank = pieces_[i].rank;
    part.pass = pieces_[i].pass;
    part.rel_l2 = errors[i];
    for (std::size_t k = 0; k < actual.size(); ++k) {
      if (k == i || expected[k] == expected[i]) continue;
      if (relative_distance(actual[i], expected[k]) > thresholds::kPartsAgree) continue;
      part.like = pieces_[k].rank;
      part.like_pass = pieces_[k].pass;
      break;
    }
  }
  return result;
}

}  // namespace tenscope::compare
