// Overview. Two tensors that differ often do so in a simple way: a factor, a flip, a lost half of the mantissa. To say
// so is worth much where it is true, and misleads where it is chance: two elements always lie on a line.
//
// What may be said. A relation must hold for every element (NaN and infinities: the same ones at the same positions),
// and it must explain far more than chance could. Counted in bits: an element that agrees with a prediction says -log2
// of the chance that an unrelated value would have, which is the share of b's own values that lie as near; at most 16
// bits, and equal values are counted once, so that constants, masks and tensors of few distinct values say little. From
// the sum over a sample is taken what was fitted: for each fitted number the bits of one element (the one that says
// most), for a permutation log2 of the number of permutations, and log2 of the number of shifts, axes and layouts that
// were tried. At least 40 bits must be left: one false statement in 10^12 unrelated pairs. A line must go through at
// least four distinct values of a. A tensor of fewer than four elements has no relation but to be zero.
//
// What it costs. One pass over both finds the range of the values. Each candidate is then tried on up to 512 fixed
// elements, which refute almost every wrong one, and only what survives is verified on all, in at most 8 passes, and 8
// more where elements are looked for at other positions (move_search.cpp). Nothing is copied.
#include <fmt/format.h>

#include <numeric>

#include "compare/measure.hpp"
#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kFewestElements = 4;

// With no more digits than its error leaves.
std::string say(double value, double error) {
  const double digits = error > 0 && value != 0 ? std::ceil(std::log10(std::abs(value) / error)) : 9;
  return fmt::format("{:.{}g}", value, static_cast<int>(std::clamp(digits, 1.0, 9.0)));
}

}  // namespace

void RelationSearch::Line::fit() {
  scale = high > low ? (at_high - at_low) / (high - low) : 1;
  offset = high >= low ? at_high - scale * high : 0;
}

void RelationSearch::Line::add(const Line& other) {
  if (other.low < low || (other.low == low && other.place_low < place_low))
    low = other.low, at_low = other.at_low, place_low = other.place_low;
  if (other.high > high || (other.high == high && other.place_high < place_high))
    high = other.high, at_high = other.at_high, place_high = other.place_high;
}

void RelationSearch::Scan::add(double x, double y, std::int64_t at) {
  const bool is_x = std::isfinite(x), is_y = std::isfinite(y);
  if (is_x && is_y) {
    line.add(x, y, at);
    low_b = std::min(low_b, y), high_b = std::max(high_b, y);
    largest_a = std::max(largest_a, std::abs(x));
    if (std::abs(y) > largest_b) largest_b = std::abs(y), at_largest_b = at;
    if (std::abs(x - y) > largest_difference) largest_difference = std::abs(x - y), at_difference = at;
    is_a_zero &= x == 0;
    is_b_zero &= y == 0;
    return;
  }
  if (is_x) low_a = std::min(low_a, x), high_a = std::max(high_a, x);
  if (is_y) low_b = std::min(low_b, y), high_b = std::max(high_b, y);
  is_a_zero &= x == 0;
  is_b_zero &= y == 0;
  if (x == y || (std::isnan(x) && std::isnan(y))) return;
  is_elementwise = false;
  if (at_other < 0) at_other = at;
}

// Most blocks change nothing but, perhaps, the largest values: those are found in lanes, without a branch.
void RelationSearch::Scan::add_block(const double* x, const double* y, std::int64_t begin, std::int64_t size) {
  constexpr int kLanes = 8;
  struct Lanes {
    double low_x[kLanes], high_x[kLanes], low_y[kLanes], high_y[kLanes], apart[kLanes], trouble[kLanes];
  } lanes;
  for (int k = 0; k < kLanes; ++k) {
    lanes.low_x[k] = lanes.low_y[k] = INFINITY;
    lanes.high_x[k] = lanes.high_y[k] = -INFINITY;
    lanes.apart[k] = lanes.trouble[k] = 0;
  }
  const std::int64_t whole = size / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const double p = x[i + k], q = y[i + k], d = std::abs(p - q);
      lanes.low_x[k] = p < lanes.low_x[k] ? p : lanes.low_x[k];
      lanes.high_x[k] = p > lanes.high_x[k] ? p : lanes.high_x[k];
      lanes.low_y[k] = q < lanes.low_y[k] ? q : lanes.low_y[k];
      lanes.high_y[k] = q > lanes.high_y[k] ? q : lanes.high_y[k];
      lanes.apart[k] = d > lanes.apart[k] ? d : lanes.apart[k];
      lanes.trouble[k] += p * 0 + q * 0;  // NaN where one is not finite
    }
  bool is_news = is_a_zero || is_b_zero;
  for (int k = 0; k < kLanes; ++k)
    is_news |= lanes.trouble[k] != 0 || lanes.low_x[k] < line.low || lanes.high_x[k] > line.high ||
               lanes.low_y[k] < low_b || lanes.high_y[k] > high_b || lanes.apart[k] > largest_difference;
  for (std::int64_t i = is_news ? 0 : whole; i < size; ++i) add(x[i], y[i], begin + i);
}

void RelationSearch::Scan::add(const Scan& other) {
  const auto take = [](double& value, std::int64_t& at, double other_value, std::int64_t other_at) {
    if (other_at >= 0 && (other_value > value || (other_value == value && other_at < at)))
      value = other_value, at = other_at;
  };
  line.add(other.line);
  low_a = std::min(low_a, other.low_a), high_a = std::max(high_a, other.high_a);
  low_b = std::min(low_b, other.low_b), high_b = std::max(high_b, other.high_b);
  largest_a = std::max(largest_a, other.largest_a);
  take(largest_b, at_largest_b, other.largest_b, other.at_largest_b);
  take(largest_difference, at_difference, other.largest_difference, other.at_difference);
  is_a_zero &= other.is_a_zero;
  is_b_zero &= other.is_b_zero;
  is_elementwise &= other.is_elementwise;
  if (other.at_other >= 0 && (at_other < 0 || other.at_other < at_other)) at_other = other.at_other;
}

RelationSearch::RelationSearch(const TensorView& a, const TensorView& b)
    : view_a_(a),
      view_b_(b),
      a_(a),
      b_(b),
      reader_a_(a),
      reader_b_(b),
      shape_(b.shape.begin(), b.shape.end()),
      count_(element_count(b.shape)),
      threads_(kernels::thread_count(static_cast<std::int64_t>(size_bytes(a) + size_bytes(b)), 0)),
      is_reshaped_(!std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end())),
      is_integer_(is_integer_kind(a.dtype) && is_integer_kind(b.dtype)),
      precision_a_(precision_of(a.dtype)),
      precision_b_(precision_of(b.dtype)),
      sample_(fixed_sample(count_)) {
  relative_tolerance_ = std::max(relative_tolerance(a.dtype), relative_tolerance(b.dtype));
  const std::int64_t sizes = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{64});
  search_bits_ = std::log2(static_cast<double>(sizes));
}

void RelationSearch::scan() {
  std::vector<Scan> parts(
      static_cast<std::size_t>(threads_));  // one for each thread: the first of equals is found below
  constexpr std::int64_t kChunk = DoubleReader::kBlock * 64;
  kernels::for_each_chunk(count_, kChunk, threads_, [&](int worker, std::int64_t begin, std::int64_t end) {
    alignas(64) double block_a[DoubleReader::kBlock], block_b[DoubleReader::kBlock];
    for (; begin < end; begin += DoubleReader::kBlock) {
      const std::int64_t size = std::min(DoubleReader::kBlock, end - begin);
      reader_a_.read(begin, size, block_a);
      reader_b_.read(begin, size, block_b);
      parts[static_cast<std::size_t>(worker)].add_block(block_a, block_b, begin, size);
    }
  });
  for (const Scan& part : parts) scan_.add(part);
  scan_.line.fit();
  scan_.low_a = std::min(scan_.low_a, scan_.line.low);
  scan_.high_a = std::max(scan_.high_a, scan_.line.high);
  tolerance_ = is_integer_ ? 0 : relative_tolerance_ * scan_.largest_b;
  move_tolerance_ = is_integer_ ? 0 : std::min(relative_tolerance_, 1e-6) * scan_.largest_b;
  const double reach =
      move_tolerance_ + (precision_b_ < precision_a_ ? std::ldexp(scan_.largest_b, -precision_b_) : 0.0);
  is_of_same_range_ = fits(scan_.low_a, scan_.low_b, reach) && fits(scan_.high_a, scan_.high_b, reach);
  is_close_ = scan_.is_elementwise && scan_.largest_difference <= tolerance_;
  constexpr double kExactIntegers = 0x1p53;
  is_exact_integer_ = !is_integer_ || std::max(scan_.largest_a, scan_.largest_b) < kExactIntegers;
}

Explanation RelationSearch::said(std::string relation, std::string words, const std::string& expression) const {
  return {std::move(relation), std::move(words), "b = " + expression, {}};
}

std::string RelationSearch::as_b(const std::string& expression, bool is_wide) const {
  const bool is_native = view_b_.dtype == DType::F64 || view_b_.dtype == DType::F32 || view_b_.dtype == DType::F16 ||
                         view_b_.dtype == DType::I64 || view_b_.dtype == DType::I32;
  return is_wide || !is_native || view_a_.dtype != view_b_.dtype ? cast(expression, view_b_.dtype) : expression;
}

Explanation RelationSearch::find() {
  scan();
  if (scan_.is_a_zero || scan_.is_b_zero) {
    if (scan_.is_a_zero && scan_.is_b_zero) return {};
    return scan_.is_a_zero ? Explanation{"zero", "a is all zero", "a = np.zeros_like(b)", {}}
                           : said("zero", "b is all zero", as_b(fmt::format("np.zeros_like({})", source()), false));
  }
  if (count_ < kFewestElements || !is_exact_integer_) return {};
  if (is_close_) return rounded();
  std::vector<double> values;
  for (const std::int64_t at : sample_) values.push_back(b_[at]);
  evidence_ = weigh(values, tolerance_);
  for (const auto& search :
       {&RelationSearch::affine, &RelationSearch::moved, &RelationSearch::rounded,
        &RelationSearch::rounded_but_for_some, &RelationSearch::dropped_out, &RelationSearch::masked,
        &RelationSearch::quantised, &RelationSearch::grouped, &RelationSearch::wrapped, &RelationSearch::of_rank_one})
    if (Explanation found = (this->*search)(); found.found()) return found;
  return {};
}

std::string RelationSearch::line_text(double scale, double offset) const {
  const double reach = std::max(scan_.line.high - scan_.line.low, std::numeric_limits<double>::min());
  const bool is_small = is_integer_ && view_a_.dtype != DType::I64;
  std::string text = is_small ? cast(source(), DType::I64) : source();
  if (scale != 1) text += " * " + short_number(scale, tolerance_ / reach / 8);
  if (offset != 0)
    text += fmt::format(" {} {}", offset < 0 ? '-' : '+', short_number(std::abs(offset), tolerance_ / 8));
  return as_b(text, is_small || (is_integer_ && std::trunc(scale) != scale));
}

// One fitted number before two: a factor, an offset, both.
Explanation RelationSearch::affine() {
  if (!scan_.is_elementwise || !(scan_.line.high > scan_.line.low)) return {};
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
  const double scale = scan_.line.scale, offset = scan_.line.offset, shift = difference / std::max(finite, 1.0);
  const std::string factor = say(scale, tolerance_ / (scan_.line.high - scan_.line.low));
  const auto say_offset = [&](double number) {
    return fmt::format("{} {}", number < 0 ? '-' : '+', say(std::abs(number), tolerance_));
  };
  if (is_line(scale, 0, 1))
    return said("scaled", fmt::format("b = {} a", factor == "1" ? fmt::format("{:.9g}", scale) : factor),
                line_text(scale, 0));
  if (is_line(1, shift, 1)) return said("shifted", fmt::format("b = a {}", say_offset(shift)), line_text(1, shift));
  if (is_line(scale, offset, 2))
    return said("affine", fmt::format("b = {} a {}", factor, say_offset(offset)), line_text(scale, offset));
  return {};
}

// The same elements at other positions. Where they are those of a in another order the ranges are the same; slices that
// are repeated have part of it.
Explanation RelationSearch::moved() {
  ValueRange range{scan_.low_b, scan_.high_b, scan_.largest_b, std::max<std::int64_t>(scan_.at_largest_b, 0), false};
  const double reach = move_tolerance_ + (precision_b_ < precision_a_ ? std::ldexp(scan_.largest_b, -precision_b_) : 0);
  if (!is_of_same_range_ && !(scan_.low_b >= scan_.low_a - reach && scan_.high_b <= scan_.high_a + reach)) return {};
  return MoveSearch(view_a_, view_b_, range).find();
}

std::int64_t RelationSearch::inner(std::size_t axis) const {
  return std::accumulate(shape_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape_.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::string find_relation(const TensorView& a, const TensorView& b, std::string* numpy) {
  const bool is_complex = kind_of(a.dtype) == DTypeKind::Complex || kind_of(b.dtype) == DTypeKind::Complex;
  if (is_complex || element_count(a.shape) == 0 || element_count(b.shape) == 0) return {};
  const bool is_of_one_shape = std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
  const Explanation found = is_of_one_shape ? RelationSearch(a, b).find() : explain(a, b);
  if (!found.found()) return {};
  if (numpy != nullptr && found.arrays.empty()) *numpy = found.numpy;
  return found.words;
}

}  // namespace tenscope::compare
