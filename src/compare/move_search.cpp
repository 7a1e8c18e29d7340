// Overview. The elements of b may be those of a at other positions. Three searches, the cheap and simple ones first:
//
// 1. Layouts (move_layout.cpp): the axes of a permuted and flipped; then split, permuted and merged. All candidates are
//    enumerated, some hundred thousand at most, and each is tried on the sample, whose first element refutes almost
//    all.
// 2. Shifts: the largest element of b is looked for in a, in one pass. Each place where it stands says by how much b
//    is rolled, or where b begins in a, along all axes at once.
// 3. Orders: along one axis, each slice of b is looked for among those of a by a hash of a few of its elements. What
//    order that is, is said by axis_order.cpp: every second slice, two heads exchanged, any permutation.
//
// The shapes need not be the same: a and b are seen as shapes of one rank in the ways that `alignments` lists. What the
// sample does not refute is verified on all elements, through views where there are any, in blocks, by several threads.
//
// A coarser dtype rounds: where b's is one, an element agrees that is no further away than half a unit of it.
#include "compare/move_search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <mutex>
#include <numeric>
#include <unordered_map>

namespace tenscope::compare {
namespace {

Shape unravel(std::int64_t at, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t k = shape.size(); k-- > 0; at /= shape[k]) index[k] = at % shape[k];
  return index;
}

// Calls f with every way to take `wanted` of [0, count).
template <class F>
void for_each_choice(std::size_t count, std::size_t wanted, const F& f) {
  if (wanted > count || count > 12) return;
  for (std::uint32_t set = 0; set < 1U << count; ++set)
    if (static_cast<std::size_t>(std::popcount(set)) == wanted) f(set);
}

}  // namespace

ValueRange range_of(const TensorView& view) {
  const DoubleReader reader(view);
  const int threads = kernels::thread_count(reader.bytes(), 0);
  std::vector<ValueRange> parts(static_cast<std::size_t>(threads));
  constexpr std::int64_t kChunk = DoubleReader::kBlock * 64;
  kernels::for_each_chunk(reader.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    alignas(64) double block[DoubleReader::kBlock];
    ValueRange& range = parts[static_cast<std::size_t>(worker)];
    for (; begin < end; begin += DoubleReader::kBlock) {
      const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
      reader.read(begin, size, block);
      std::int64_t news = range.is_zero ? 1 : 0;  // most blocks have none
      for (std::int64_t i = 0; i < size; ++i) news += !(block[i] >= range.low && block[i] <= range.high);
      for (std::int64_t i = 0; i < size && news > 0; ++i) {
        range.is_zero &= block[i] == 0;
        if (!std::isfinite(block[i])) continue;
        range.low = std::min(range.low, block[i]);
        range.high = std::max(range.high, block[i]);
        if (std::abs(block[i]) > range.largest) range.largest = std::abs(block[i]), range.at_largest = begin + i;
      }
    }
  });
  ValueRange all;
  all.at_largest = INT64_MAX;
  for (const ValueRange& part : parts) {
    all.is_zero &= part.is_zero;
    all.low = std::min(all.low, part.low);
    all.high = std::max(all.high, part.high);
    if (part.largest > all.largest || (part.largest == all.largest && part.at_largest < all.at_largest))
      all.largest = part.largest, all.at_largest = part.at_largest;
  }
  return all;
}

MoveSearch::MoveSearch(const TensorView& a, const TensorView& b, const ValueRange& range_b)
    : a_(a),
      b_(b),
      shape_a_(a.shape.begin(), a.shape.end()),
      shape_b_(b.shape.begin(), b.shape.end()),
      at_a_(a),
      at_b_(b),
      count_a_(element_count(a.shape)),
      count_b_(element_count(b.shape)),
      threads_(kernels::thread_count(static_cast<std::int64_t>(size_bytes(b)), 0)),
      range_b_(range_b),
      sample_(fixed_sample(count_b_)) {
  const int precision_a = precision_of(a.dtype), precision_b = precision_of(b.dtype);
  const double nearest = std::min(std::max(relative_tolerance(a.dtype), relative_tolerance(b.dtype)), 1e-6);
  tolerance_ = is_integer_kind(a.dtype) && is_integer_kind(b.dtype) ? 0 : nearest * range_b.largest;
  if (precision_b > 0 && precision_b < precision_a) {
    relative_ = std::ldexp(1.0, -precision_b);
    for (const FloatFormat& format : kFloatFormats)
      if (to_string(b.dtype) == format.name) rounding_ = &format;
    if (rounding_ != nullptr) tolerance_ += std::ldexp(1.0, rounding_->min_exponent - precision_b);
  }
  std::vector<double> values;
  for (const std::int64_t at : sample_) values.push_back(at_b_[at]);
  evidence_ = weigh(values, tolerance_ + relative_ * range_b.largest);
  const std::int64_t sizes = std::accumulate(shape_a_.begin(), shape_a_.end(), std::int64_t{64});
  search_bits_ = std::log2(static_cast<double>(sizes));
}

Explanation MoveSearch::find() {
  if (!pays(search_bits_)) return {};
  if (count_a_ == count_b_)
    if (Explanation found = layout(); found.found()) return found;
  const std::vector<Alignment> ways = alignments();
  if (count_a_ >= count_b_)
    if (Explanation found = shifted(ways); found.found()) return found;
  const std::size_t rank = std::max(shape_a_.size(), shape_b_.size());
  for (const Alignment& way : ways) {
    const bool is_flat = way.a.size() == 1 && rank > 1;  // single elements are no slices
    if (is_flat) continue;
    if (Explanation found = ordered(way); found.found()) return found;
  }
  return {};
}

Explanation MoveSearch::said(std::string relation, const std::string& words, const std::string& expression,
                             const Shape& shape_b, std::vector<ExplanationArray> arrays) const {
  std::string text = shape_b == shape_b_ ? expression : reshaped(expression, shape_b_);
  if (a_.dtype != b_.dtype) text = cast(text, b_.dtype);
  const std::string rounded = relative_ > 0 ? fmt::format(", rounded to {}", to_string(b_.dtype)) : "";
  return {std::move(relation), words + rounded, "b = " + text, std::move(arrays)};
}

std::string MoveSearch::source(const Shape& shape_a) const {
  return shape_a == shape_a_ ? "a" : reshaped("a", shape_a);
}

// ---- verifying

bool MoveSearch::are_same(const TensorView& a, const TensorView& b) const {
  const DoubleReader reader_a(a), reader_b(b);
  return holds_for_all(reader_b.count(), DoubleReader::kBlock * 64, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
    for (; begin < end; begin += DoubleReader::kBlock) {
      const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
      reader_a.read(begin, size, block_a);
      reader_b.read(begin, size, block_b);
      int outside = 0;
      for (std::int64_t i = 0; i < size; ++i)
        outside += !(std::abs(block_a[i] - block_b[i]) <= tolerance_ + relative_ * std::abs(block_b[i]));
      if (outside == 0) continue;
      for (std::int64_t i = 0; i < size; ++i)
        if (!fits(block_a[i], block_b[i])) return false;
    }
    return true;
  });
}

std::optional<Shape> MoveSearch::strides_of(const TensorView& view, const Shape& shape) const {
  if (is_c_order(view)) return c_strides(shape);
  if (std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.end()))
    return Shape(view.strides.begin(), view.strides.end());
  return std::nullopt;
}

bool MoveSearch::is_strided(const Strided& strided) {
  const auto from = [&](std::int64_t at) { return strided.source(at); };
  if (!agrees_on_sample(from)) return false;
  if (!is_c_order(a_)) return verify_by(from);
  if (passes_-- <= 0) return false;
  const auto item = static_cast<std::int64_t>(item_size(a_.dtype));
  return are_same(
      {static_cast<const std::byte*>(a_.data) + strided.offset * item, a_.dtype, strided.sizes, strided.strides}, b_);
}

// ---- shapes of one rank

std::vector<MoveSearch::Alignment> MoveSearch::alignments() const {
  std::vector<Alignment> ways;
  const auto add = [&](Shape a, Shape b, std::vector<bool> is_inserted = {}) {
    is_inserted.resize(a.size());
    for (const Alignment& way : ways)
      if (way.a == a && way.b == b) return;
    constexpr std::size_t kMostWays = 64;
    if (ways.size() < kMostWays) ways.push_back({std::move(a), std::move(b), std::move(is_inserted)});
  };
  const std::size_t rank_a = shape_a_.size(), rank_b = shape_b_.size();
  if (count_a_ == count_b_) {
    add(shape_a_, shape_a_);
    add(shape_b_, shape_b_);
  } else if (rank_a == rank_b) {
    add(shape_a_, shape_b_);
  }
  const auto with_ones = [](const Shape& shape, std::size_t rank, std::uint32_t ones, std::vector<bool>* is_one) {
    Shape wide;
    std::size_t next = 0;
    for (std::size_t k = 0; k < rank; ++k) {
      const bool is_inserted = (ones >> k & 1U) != 0;
      wide.push_back(is_inserted ? 1 : shape[next++]);
      if (is_one != nullptr) is_one->push_back(is_inserted);
    }
    return wide;
  };
  const auto merged = [](const Shape& shape, std::uint32_t cuts) {
    Shape narrow = {shape.front()};
    for (std::size_t k = 1; k < shape.size(); ++k) {
      if ((cuts >> (k - 1) & 1U) != 0)
        narrow.push_back(shape[k]);
      else
        narrow.back() *= shape[k];
    }
    return narrow;
  };
  if (rank_a > rank_b) {
    for_each_choice(rank_a, rank_a - rank_b, [&](std::uint32_t ones) {
      std::vector<bool> is_one;
      Shape b = with_ones(shape_b_, rank_a, ones, &is_one);
      add(shape_a_, std::move(b), std::move(is_one));
    });
    if (rank_b > 0)
      for_each_choice(rank_a - 1, rank_b - 1, [&](std::uint32_t cuts) { add(merged(shape_a_, cuts), shape_b_); });
  } else if (rank_b > rank_a) {
    for_each_choice(rank_b, rank_b - rank_a,
                    [&](std::uint32_t ones) { add(with_ones(shape_a_, rank_b, ones, nullptr), shape_b_); });
    if (rank_a > 0)
      for_each_choice(rank_b - 1, rank_a - 1, [&](std::uint32_t cuts) { add(shape_a_, merged(shape_b_, cuts)); });
  }
  add({count_a_}, {count_b_});
  return ways;
}

// ---- rolled, or a part

std::vector<std::int64_t> MoveSearch::places_in_a(double value) {
  std::vector<std::int64_t> places;
  if (passes_-- <= 0) return places;
  const DoubleReader reader(a_);
  std::mutex mutex;
  holds_for_all(count_a_, DoubleReader::kBlock * 64, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) double block[DoubleReader::kBlock];
    for (; begin < end; begin += DoubleReader::kBlock) {
      const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
      reader.read(begin, size, block);
      int near = 0;
      const double reach = tolerance_ + relative_ * std::abs(value);
      for (std::int64_t i = 0; i < size; ++i) near += std::abs(block[i] - value) <= reach;
      if (near == 0) continue;
      const std::lock_guard lock(mutex);
      for (std::int64_t i = 0; i < size; ++i)
        if (fits(block[i], value)) places.push_back(begin + i);
      if (static_cast<std::int64_t>(places.size()) > kMostPlaces) return false;
    }
    return true;
  });
  if (static_cast<std::int64_t>(places.size()) > kMostPlaces) places.clear();
  std::sort(places.begin(), places.end());
  return places;
}

Explanation MoveSearch::shifted(const std::vector<Alignment>& ways) {
  if (!pays(search_bits_ + std::log2(static_cast<double>(count_a_)))) return {};
  const std::vector<std::int64_t> places = places_in_a(at_b_[range_b_.at_largest]);
  for (const Alignment& way : ways)
    for (const std::int64_t place : places) {
      if (Explanation found = shifted_by(way, place); found.found()) return found;
      if (passes_ <= 0) return {};
    }
  return {};
}

// b at j is a at j + shift, along axes of the same size modulo it.
Explanation MoveSearch::shifted_by(const Alignment& way, std::int64_t place) {
  Shape shift = unravel(place, way.a);
  const Shape at = unravel(range_b_.at_largest, way.b), strides = c_strides(way.a);
  bool is_moved = false;
  for (std::size_t k = 0; k < shift.size(); ++k) {
    shift[k] -= at[k];
    if (way.a[k] == way.b[k])
      shift[k] = (shift[k] + way.a[k]) % way.a[k];
    else if (shift[k] < 0 || shift[k] + way.b[k] > way.a[k])
      return {};
    is_moved |= shift[k] != 0 || way.a[k] != way.b[k];
  }
  if (!is_moved) return {};
  const auto from = [&](std::int64_t i) {
    std::int64_t position = 0;
    for (std::size_t k = shift.size(); k-- > 0; i /= way.b[k]) {
      const std::int64_t j = i % way.b[k] + shift[k];
      position += (j >= way.a[k] ? j - way.a[k] : j) * strides[k];
    }
    return position;
  };
  if (!agrees_on_sample(from)) return {};
  if (!(strides_of(a_, way.a) && strides_of(b_, way.b) ? verify_shift(way, shift) : verify_by(from))) return {};
  std::vector<AxisRange> ranges;
  Shape axes, shifts;
  bool is_part = false;
  for (std::size_t k = 0; k < shift.size(); ++k) {
    const bool is_rolled = way.a[k] == way.b[k];
    is_part |= !is_rolled;
    ranges.push_back(
        {is_rolled ? 0 : shift[k], is_rolled ? way.a[k] : shift[k] + way.b[k], way.a[k], way.is_inserted[k]});
    if (is_rolled && shift[k] != 0) axes.push_back(static_cast<std::int64_t>(k)), shifts.push_back(way.a[k] - shift[k]);
  }
  std::string text = source(way.a), rolled;
  if (axes.size() == 1) {
    text = fmt::format("np.roll({}, {}, axis={})", text, shifts[0], axes[0]);
    rolled = fmt::format("rolled by {} along axis {}", shifts[0], axes[0]);
  } else if (axes.size() > 1) {
    text = fmt::format("np.roll({}, ({}), axis=({}))", text, list_text(shifts), list_text(axes));
    rolled = fmt::format("rolled by {} along axes {}", fmt::join(shifts, " and "), fmt::join(axes, " and "));
  }
  Shape left;
  for (std::size_t k = 0; k < way.b.size(); ++k)
    if (!way.is_inserted[k]) left.push_back(way.b[k]);
  if (is_part) text += index_text(ranges);
  const std::string seen = way.a == shape_a_ && left == shape_b_ ? "" : fmt::format(", seen as [{}]", list_text(way.a));
  if (way.a == shape_a_ && way.b == shape_b_ && axes.empty()) part_ = ranges;
  if (!is_part) return said("rolled", fmt::format("b is a{}, {}", seen, rolled), text, left);
  return said("slice", fmt::format("b is a slice of a: {}", text), text, left);
}

// Each axis is one or two ranges that lie together in both.
bool MoveSearch::verify_shift(const Alignment& way, const Shape& shift) {
  if (passes_-- <= 0) return false;
  const Shape strides_a = *strides_of(a_, way.a), strides_b = *strides_of(b_, way.b);
  const std::size_t rank = shift.size();
  for (std::uint32_t corner = 0; corner < 1U << rank; ++corner) {
    Shape sizes(rank);
    std::int64_t from = 0, to = 0;
    bool is_there = true;
    for (std::size_t k = 0; k < rank; ++k) {
      const std::int64_t fore = std::min(way.b[k], way.a[k] - shift[k]);
      const bool is_wrapped = (corner >> k & 1U) != 0;
      sizes[k] = is_wrapped ? way.b[k] - fore : fore;
      is_there &= sizes[k] > 0;
      from += (is_wrapped ? 0 : shift[k]) * strides_a[k];
      to += (is_wrapped ? fore : 0) * strides_b[k];
    }
    if (!is_there) continue;
    const auto item_a = static_cast<std::int64_t>(item_size(a_.dtype));
    const auto item_b = static_cast<std::int64_t>(item_size(b_.dtype));
    if (!are_same({static_cast<const std::byte*>(a_.data) + from * item_a, a_.dtype, sizes, strides_a},
                  {static_cast<const std::byte*>(b_.data) + to * item_b, b_.dtype, sizes, strides_b}))
      return false;
  }
  return true;
}

// ---- slices of one axis in another order

Explanation MoveSearch::ordered(const Alignment& way) {
  std::size_t other = 0, last = 0;
  for (std::size_t k = 0; k < way.a.size(); ++k)
    if (way.a[k] != way.b[k]) ++other, last = k;
  if (other > 1) return {};
  for (std::size_t axis = other == 1 ? last : 0; axis < (other == 1 ? last + 1 : way.a.size()); ++axis)
    if (Explanation found = ordered_along(way, axis); found.found()) return found;
  return {};
}

Explanation MoveSearch::ordered_along(const Alignment& way, std::size_t axis) {
  if (std::max(way.a[axis], way.b[axis]) > kMostSlices || way.b[axis] < 2) return {};
  const Shape order = order_of(way, axis);
  if (order.empty()) return {};
  bool is_as_it_was = way.a[axis] == way.b[axis];
  for (std::size_t i = 0; i < order.size(); ++i) is_as_it_was &= order[i] == static_cast<std::int64_t>(i);
  if (is_as_it_was) return {};
  AxisOrder said_order = say_order(order, way.a[axis], axis, source(way.a));
  const double share = said_order.relation == "permuted"
                           ? std::max(1.0, static_cast<double>(count_b_) / static_cast<double>(sample_.size()))
                           : 1.0;
  if (evidence_.bits * share - said_order.cost - search_bits_ < kEvidenceMargin) return {};
  if (!verify_order(way, axis, order)) return {};
  if (way.a != shape_a_ || way.b != shape_b_)
    said_order.words += fmt::format(", seen as [{}] and [{}]", list_text(way.a), list_text(way.b));
  return said(said_order.relation, said_order.words, said_order.expression, way.b, std::move(said_order.arrays));
}

// For each slice of b the one of a with the same elements at a few places; empty where one has none. Of several that
// are alike the one that follows the slice before is taken, or the one at the same place.
Shape MoveSearch::order_of(const Alignment& way, std::size_t axis) const {
  const std::int64_t inner = c_strides(way.a)[axis];
  const std::int64_t places = count_b_ / way.b[axis];
  Shape order;
  for (const std::uint64_t probes : {std::uint64_t{4}, std::uint64_t{32}}) {
    const auto keys = [&](const Elements& elements, std::int64_t size, bool is_rounded) {
      std::vector<std::uint64_t> hashes(static_cast<std::size_t>(size));
      for (std::int64_t slice = 0; slice < size; ++slice) {
        std::uint64_t hash = 0;
        for (std::uint64_t probe = 0; probe < std::min(probes, static_cast<std::uint64_t>(places)); ++probe) {
          const auto place = static_cast<std::int64_t>(mix(probe) % static_cast<std::uint64_t>(places));
          double value = elements[(place / inner * size + slice) * inner + place % inner];
          if (is_rounded) value = round_to(*rounding_, value);
          hash = mix(hash ^ std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
        }
        hashes[static_cast<std::size_t>(slice)] = hash;
      }
      return hashes;
    };
    const std::vector<std::uint64_t> in_b = keys(at_b_, way.b[axis], false);
    const std::vector<std::uint64_t> in_a = keys(at_a_, way.a[axis], rounding_ != nullptr);
    std::unordered_map<std::uint64_t, std::int64_t> slice_of;
    for (std::size_t slice = 0; slice < in_a.size(); ++slice)
      slice_of.emplace(in_a[slice], static_cast<std::int64_t>(slice));
    order.clear();
    std::int64_t before = -2;
    const auto is = [&](std::int64_t slice, std::uint64_t key) {
      return slice >= 0 && slice < way.a[axis] && in_a[static_cast<std::size_t>(slice)] == key;
    };
    for (std::size_t i = 0; i < in_b.size(); ++i) {
      const auto found = slice_of.find(in_b[i]);
      if (found == slice_of.end()) return {};
      const auto same = static_cast<std::int64_t>(i);
      const std::int64_t slice = is(before + 1, in_b[i])   ? before + 1
                                 : is(same, in_b[i])       ? same
                                 : is(before - 1, in_b[i]) ? before - 1
                                                           : found->second;
      order.push_back(slice);
      before = slice;
    }
    if (slice_of.size() == in_a.size() || static_cast<std::uint64_t>(places) <= probes) break;
  }
  return order;
}

bool MoveSearch::verify_order(const Alignment& way, std::size_t axis, const Shape& order) {
  const std::int64_t inner = c_strides(way.b)[axis], size_a = way.a[axis], size_b = way.b[axis];
  const auto from = [&](std::int64_t i) {
    const std::int64_t slice = i / inner;
    return (slice / size_b * size_a + order[static_cast<std::size_t>(slice % size_b)]) * inner + i % inner;
  };
  if (!agrees_on_sample(from)) return false;
  constexpr std::int64_t kWorthABlock = 32;
  if (passes_-- <= 0) return false;
  if (inner < kWorthABlock) {
    const std::int64_t row = size_b * inner;
    return holds_for_all(count_b_ / row, std::max<std::int64_t>(1, (1 << 14) / row),
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t at = begin; at < end; ++at)
                             for (std::int64_t i = 0; i < size_b; ++i) {
                               const std::int64_t to = at * row + i * inner;
                               const std::int64_t source = (at * size_a + order[static_cast<std::size_t>(i)]) * inner;
                               for (std::int64_t k = 0; k < inner; ++k)
                                 if (!fits(at_a_[source + k], at_b_[to + k])) return false;
                             }
                           return true;
                         });
  }
  const DoubleReader reader_a(a_), reader_b(b_);
  return holds_for_all(count_b_ / inner, std::max<std::int64_t>(1, (1 << 15) / inner),
                       [&](std::int64_t begin, std::int64_t end) {
                         alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
                         for (std::int64_t slice = begin; slice < end; ++slice)
                           for (std::int64_t at = 0; at < inner; at += DoubleReader::kBlock) {
                             const std::int64_t size = std::min(DoubleReader::kBlock, inner - at);
                             reader_a.read(from(slice * inner + at), size, block_a);
                             reader_b.read(slice * inner + at, size, block_b);
                             for (std::int64_t i = 0; i < size; ++i)
                               if (!fits(block_a[i], block_b[i])) return false;
                           }
                         return true;
                       });
}

}  // namespace tenscope::compare
