// Overview. Two tensors that differ often do so in a simple way: a factor, a flip, a lost half of the mantissa. To say
// so is worth much where it is true, and misleads where it is chance: two elements always lie on a line.
//
// What may be said. A relation must hold for every element (NaN and infinities: the same ones at the same positions),
// and it must explain far more than chance could. Counted in bits: an element that agrees with a prediction says -log2
// of the chance that an unrelated value would have, which is the share of b's own values that lie as near; at most 16
// bits, and equal values are counted once, so that constants, masks and tensors of few distinct values say little. From
// the sum over a sample is taken what was fitted: for each fitted number the bits of one element (the one that says
// most), for a permutation log2 of the number of permutations, and log2 of the number of shifts and axes that were
// tried. At least 40 bits must be left: one false statement in 10^12 unrelated pairs. A line must go through at
// least four distinct values of a. A tensor of fewer than four elements has no relation but to be zero.
//
// What it costs. One pass over both finds the range of the values. Each candidate is then tried on up to 512 fixed
// elements, which refute almost every wrong one, and only what survives is verified on all, in at most 8 passes. Shifts
// are found by looking for one rare value of b along each axis of a (at most 4 M of them), permutations by the values
// of a few elements of each slice. Nothing is copied.
#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <set>
#include <unordered_map>

#include "compare/measure.hpp"
#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kFewestElements = 4;
constexpr std::int64_t kMostShifts = 1 << 22;
constexpr std::int64_t kMostSlices = 1 << 20;

bool is_integer_kind(DType dtype) { return kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex; }

bool is_same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

// As a part of b's largest value. A relation is the result of a few operations, each good to half a unit.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::F32:
      return 1e-6;
    case DType::F16:
      return 0x1p-10;
    case DType::BF16:
      return 0x1p-7;
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return 0x1p-3;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 0x1p-2;
    default:
      return 0;
  }
}

int precision_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 53;
    case DType::F32:
      return 24;
    case DType::F16:
      return 11;
    case DType::BF16:
      return 8;
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return 4;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 3;
    default:
      return 0;
  }
}

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// With no more digits than its error leaves.
std::string say(double value, double error) {
  const double digits = error > 0 && value != 0 ? std::ceil(std::log10(std::abs(value) / error)) : 9;
  return fmt::format("{:.{}g}", value, static_cast<int>(std::clamp(digits, 1.0, 9.0)));
}

}  // namespace

Evidence weigh(std::vector<double> values, double tolerance) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  std::sort(values.begin(), values.end());
  struct Group {
    double value, count;
  };
  std::vector<Group> groups;
  for (const double value : values) {
    if (!groups.empty() && value - groups.back().value <= tolerance)
      ++groups.back().count;
    else
      groups.push_back({value, 1});
  }
  Evidence evidence{.distinct = groups.size()};
  if (groups.size() < 2) return evidence;
  const auto total = static_cast<double>(values.size());
  constexpr std::size_t kNeighbours = 3;
  const std::size_t near = std::min(kNeighbours, groups.size() - 1);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t first = i >= near ? i - near : 0, last = std::min(i + near, groups.size() - 1);
    const double width = groups[last].value - groups[first].value;
    const double density = static_cast<double>(last - first + 1) / (total * width);
    const double chance = std::max(groups[i].count > 1 ? groups[i].count / total : 0, 2 * tolerance * density);
    const double bits = -std::log2(std::clamp(chance, 0x1p-16, 1.0));
    evidence.bits += bits;
    evidence.most = std::max(evidence.most, bits);
  }
  return evidence;
}

void RelationSearch::Line::fit() {
  scale = high > low ? (at_high - at_low) / (high - low) : 1;
  offset = at_high - scale * high;
}

RelationSearch::RelationSearch(const TensorView& a, const TensorView& b)
    : a_(a),
      b_(b),
      reader_a_(a),
      reader_b_(b),
      shape_(a.shape.begin(), a.shape.end()),
      count_(element_count(a.shape)),
      is_integer_(is_integer_kind(a.dtype) && is_integer_kind(b.dtype)),
      precision_a_(precision_of(a.dtype)),
      precision_b_(precision_of(b.dtype)) {
  relative_tolerance_ = std::max(tolerance_of(a.dtype), tolerance_of(b.dtype));
  if (count_ <= kSample) {
    sample_.resize(static_cast<std::size_t>(count_));
    std::iota(sample_.begin(), sample_.end(), 0);
  } else {
    for (std::uint64_t i = 0; i < kSample; ++i)
      sample_.push_back(static_cast<std::int64_t>(mix(i) % static_cast<std::uint64_t>(count_)));
  }
  const std::int64_t sizes = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{64});
  search_bits_ = std::log2(static_cast<double>(sizes));
}

bool RelationSearch::fits(double predicted, double y, double tolerance) {
  if (!std::isfinite(predicted) || !std::isfinite(y)) return is_same(predicted, y);
  return std::abs(predicted - y) <= tolerance;
}

bool RelationSearch::pays(double bits, double most, int fitted) const {
  return bits - fitted * most - search_bits_ >= kMargin;
}

void RelationSearch::scan() {
  double low_a = INFINITY, high_a = -INFINITY, low_b = INFINITY, high_b = -INFINITY;
  for_each([&](double x, double y, std::int64_t) {
    if (std::isfinite(x)) low_a = std::min(low_a, x), high_a = std::max(high_a, x);
    if (std::isfinite(y)) low_b = std::min(low_b, y), high_b = std::max(high_b, y);
    is_a_zero_ &= x == 0;
    is_b_zero_ &= y == 0;
    if (std::isfinite(x) && std::isfinite(y)) {
      line_.add(x, y);
      largest_a_ = std::max(largest_a_, std::abs(x));
      largest_b_ = std::max(largest_b_, std::abs(y));
      largest_difference_ = std::max(largest_difference_, std::abs(x - y));
    } else {
      is_elementwise_ &= is_same(x, y);
    }
    return true;
  });
  line_.fit();
  tolerance_ = is_integer_ ? 0 : relative_tolerance_ * largest_b_;
  move_tolerance_ = is_integer_ ? 0 : std::min(relative_tolerance_, 1e-6) * largest_b_;
  is_of_same_range_ = fits(low_a, low_b, move_tolerance_) && fits(high_a, high_b, move_tolerance_);
  is_close_ = is_elementwise_ && largest_difference_ <= tolerance_;
}

std::string RelationSearch::find() {
  scan();
  if (is_a_zero_ || is_b_zero_) return is_a_zero_ && is_b_zero_ ? "" : is_a_zero_ ? "a is all zero" : "b is all zero";
  constexpr double kExactIntegers = 0x1p53;
  if (count_ < kFewestElements || (is_integer_ && std::max(largest_a_, largest_b_) >= kExactIntegers)) return {};
  if (is_close_) return rounded();
  std::vector<double> values;
  for (const std::int64_t at : sample_) values.push_back(b_[at]);
  evidence_ = weigh(values, tolerance_);
  move_evidence_ = weigh(values, move_tolerance_);
  for (const auto& search :
       {&RelationSearch::affine, &RelationSearch::moved, &RelationSearch::rounded, &RelationSearch::repeated,
        &RelationSearch::dropped_out, &RelationSearch::grouped, &RelationSearch::wrapped})
    if (std::string words = (this->*search)(); !words.empty()) return words;
  return {};
}

// One fitted number before two: a factor, an offset, both.
std::string RelationSearch::affine() {
  if (!is_elementwise_ || !(line_.high > line_.low)) return {};
  std::vector<double> values;
  double difference = 0, finite = 0;
  for (const std::int64_t at : sample_) {
    const double x = a_[at];
    values.push_back(x);
    if (std::isfinite(x)) difference += b_[at] - x, ++finite;
  }
  constexpr std::size_t kFewestValues = 4;
  if (weigh(values, 0).distinct < kFewestValues) return {};
  const auto is_line = [&](double scale, double offset, int fitted) {
    return pays(evidence_.bits, evidence_.most, fitted) &&
           is_b([&](double x, std::int64_t) { return std::isfinite(x) ? scale * x + offset : x; });
  };
  const double scale = line_.scale, shift = difference / std::max(finite, 1.0);
  const std::string factor = say(scale, tolerance_ / (line_.high - line_.low));
  const auto say_offset = [&](double offset) {
    return fmt::format("{} {}", offset < 0 ? '-' : '+', say(std::abs(offset), tolerance_));
  };
  if (is_line(scale, 0, 1)) return fmt::format("b = {} a", factor == "1" ? fmt::format("{:.9g}", scale) : factor);
  if (is_line(1, shift, 1)) return fmt::format("b = a {}", say_offset(shift));
  if (is_line(scale, line_.offset, 2)) return fmt::format("b = {} a {}", factor, say_offset(line_.offset));
  return {};
}

// ---- the same elements at other positions

std::string RelationSearch::moved() {
  if (!is_of_same_range_ || !pays(move_evidence_.bits, move_evidence_.most, 0)) return {};
  for (const auto& search : {&RelationSearch::flipped_or_rolled, &RelationSearch::exchanged, &RelationSearch::permuted})
    if (std::string words = (this->*search)(); !words.empty()) return words;
  return {};
}

std::int64_t RelationSearch::inner(std::size_t axis) const {
  return std::accumulate(shape_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape_.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::string RelationSearch::flipped_or_rolled() {
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    const std::int64_t size = shape_[axis], stride = inner(axis);
    if (size < 2) continue;
    if (is_moved([=](std::int64_t i) { return i + (size - 1 - 2 * (i / stride % size)) * stride; }))
      return fmt::format("b is a, flipped along axis {}", axis);
    if (std::string words = rolled(axis); !words.empty()) return words;
  }
  return {};
}

std::string RelationSearch::rolled(std::size_t axis) {
  const std::int64_t size = shape_[axis], stride = inner(axis);
  std::unordered_map<double, int> times;
  for (const std::int64_t at : sample_) ++times[b_[at]];
  const auto is_rarer = [&](std::int64_t x, std::int64_t y) {
    return std::pair(times[b_[x]], -std::abs(b_[x])) < std::pair(times[b_[y]], -std::abs(b_[y]));
  };
  const std::int64_t rare = *std::min_element(sample_.begin(), sample_.end(), is_rarer);
  const std::int64_t place = rare / stride % size;
  for (std::int64_t shift = 1; shift < std::min(size, kMostShifts); ++shift) {
    const auto from = [=](std::int64_t i) {
      const std::int64_t at = i / stride % size;
      return i + ((at >= shift ? at - shift : at - shift + size) - at) * stride;
    };
    if (!fits(a_[rare + ((place >= shift ? place - shift : place - shift + size) - place) * stride], b_[rare]))
      continue;
    if (is_moved(from)) return fmt::format("b is a, rolled by {} along axis {}", shift, axis);
    if (passes_ <= 0) break;
  }
  return {};
}

std::string RelationSearch::exchanged() {
  for (std::size_t x = 0; x < shape_.size(); ++x)
    for (std::size_t y = x + 1; y < shape_.size(); ++y) {
      if (shape_[x] != shape_[y] || shape_[x] < 2) continue;
      const std::int64_t size = shape_[x], stride_x = inner(x), stride_y = inner(y);
      const auto from = [=](std::int64_t i) {
        const std::int64_t at_x = i / stride_x % size, at_y = i / stride_y % size;
        return i + (at_y - at_x) * (stride_x - stride_y);
      };
      if (is_moved(from)) return fmt::format("b is a, with axes {} and {} exchanged", x, y);
    }
  return {};
}

std::string RelationSearch::repeated() {
  if (!pays(move_evidence_.bits, move_evidence_.most, 0)) return {};
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    const std::int64_t size = shape_[axis], stride = inner(axis);
    if (size < 2) continue;
    for (const std::int64_t slice : {size - 1, std::int64_t{0}})
      if (is_moved([=](std::int64_t i) { return i + (slice - i / stride % size) * stride; }))
        return fmt::format("each slice of b along axis {} is a's {}", axis, slice == 0 ? "first" : "last");
  }
  return {};
}

// Slices are told apart by the values of a few of their elements.
std::string RelationSearch::permuted() {
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    const std::int64_t size = shape_[axis], stride = inner(axis), outer = count_ / (size * stride);
    if (size < 3 || size > kMostSlices) continue;
    const double paid = move_evidence_.bits * static_cast<double>(count_) / static_cast<double>(sample_.size());
    if (!pays(paid - std::lgamma(static_cast<double>(size) + 1) / std::log(2.0), 0, 0)) continue;
    const auto key = [&](const Elements& elements, std::int64_t slice) {
      constexpr std::uint64_t kProbes = 4;
      std::uint64_t hash = 0;
      for (std::uint64_t probe = 0; probe < kProbes; ++probe) {
        const auto place = static_cast<std::int64_t>(mix(probe) % static_cast<std::uint64_t>(outer * stride));
        const double value = elements[(place / stride * size + slice) * stride + place % stride];
        hash = mix(hash ^ std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
      }
      return hash;
    };
    std::unordered_map<std::uint64_t, std::int64_t> slice_of;
    for (std::int64_t slice = 0; slice < size; ++slice) slice_of.emplace(key(a_, slice), slice);
    if (slice_of.size() != static_cast<std::size_t>(size)) continue;
    std::vector<std::int64_t> order;
    for (std::int64_t slice = 0; slice < size; ++slice) {
      const auto found = slice_of.find(key(b_, slice));
      if (found == slice_of.end()) break;
      order.push_back(found->second);
    }
    if (std::set<std::int64_t>(order.begin(), order.end()).size() != static_cast<std::size_t>(size)) continue;
    const auto from = [&](std::int64_t i) {
      const std::int64_t at = i / stride % size;
      return i + (order[static_cast<std::size_t>(at)] - at) * stride;
    };
    if (is_moved(from)) return fmt::format("b is a, permuted along axis {}", axis);
  }
  return {};
}

std::string find_relation(const TensorView& a, const TensorView& b) {
  const bool is_complex = kind_of(a.dtype) == DTypeKind::Complex || kind_of(b.dtype) == DTypeKind::Complex;
  if (is_complex || element_count(a.shape) == 0 ||
      !std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end()))
    return {};
  return RelationSearch(a, b).find();
}

}  // namespace tenscope::compare
