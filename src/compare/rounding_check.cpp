// Overview. Over a whole tensor, a row that is negated or scaled is less than what quantisation to a few bits does. So
// the error is looked at in parts.
//
// A floating-point type rounds each element by itself: none may be off by more than the last place of the type.
//
// Block types (ggml's) round by 32 elements or more, along rows. In each 32 elements of a row the factor is fitted that
// makes the rounded of the exact. Rounding gives each a factor near 1, and an element far outside spoils only its own
// 32, so the median over a row is steady: a row whose factor is far from that of the others is no rounding. The same
// holds for the median over all rows, which rounding may shrink a little, but not raise. The limits were measured with
// ggml's quantisers on normal, uniform and heavy-tailed weights, with outliers and with scaled rows and columns, with
// and without an importance matrix: as parts of the normal rounding (checkpoint_match.cpp), a tensor's factor is off by
// -0.24 to +0.03 (mxfp4: -0.36), a row's error is up to 5.1 of it, and 5 times that of the median row.
//
// A column, or 32 elements of a row, may shrink next to larger ones, but in types of three bits and more rounding does
// not turn them round. Where the rounded goes against the exact, or a column that is as large as those around it has
// other numbers or zeros alone, it is none.
#include "compare/rounding_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compare/checkpoint_match.hpp"
#include "compare/relation_values.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::size_t kMostNamed = 3;
constexpr double kMostOfRow = 6;       // error of a row, as a part of normal rounding and of the median row's
constexpr double kAnythingElse = 1.2;  // beyond this error a row has nothing to do with the other
constexpr double kRaised = 0.1;        // factor - 1, as a part of normal rounding
constexpr double kShrunk = 0.45;       // 1 - factor, likewise
constexpr double kShrunkOfRow = 1.2;   // of one row: an element far outside may take the bits of 256
constexpr double kDeviations = 8;      // of a row's factor
constexpr double kTurned = -1.3;       // factor - 1 of 32 elements; -1: they vanish
constexpr double kOffColumn = 0.6;     // 1 - factor of a column, besides what chance does
constexpr double kThreeBits = 0.2;     // normal rounding beyond this keeps too little of a column
constexpr double kTiny = 1e-300;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

const FloatFormat* float_format_of(const StoredTensor& stored) {
  const auto found = std::ranges::find(kFloatFormats, stored.type, [](const FloatFormat& x) { return x.name; });
  return found == kFloatFormats.end() || found->precision >= 24 ? nullptr : &*found;
}

// ---- each element by itself

class ElementCheck {
 public:
  ElementCheck(const StoredTensor& a, const StoredTensor& b) {
    for (const StoredTensor* stored : {&a, &b})
      if (const FloatFormat* format = float_format_of(*stored)) {
        relative_ += std::ldexp(1.0, 1 - format->precision);  // cut off rather than rounded is fine, too
        absolute_ += std::ldexp(format->smallest_normal, 1 - format->precision);
      }
  }

  void add(const double* a, const double* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, ++place_) {
      if (!(std::abs(b[i] - a[i]) > relative_ * std::abs(a[i]) + absolute_)) continue;
      if (found_++ < kMostNamed) places_.push_back(place_);
    }
  }

  std::string words(const TensorView& b, bool is_whole) const {
    if (found_ == 0 || 2 * found_ > static_cast<std::size_t>(place_)) return {};
    std::vector<std::string> named;
    for (std::int64_t place : places_) {
      std::vector<std::int64_t> index(b.shape.size());
      for (std::size_t axis = index.size(); axis-- > 0; place /= b.shape[axis]) index[axis] = place % b.shape[axis];
      named.push_back(fmt::format("[{}]", fmt::join(index, ", ")));
    }
    const std::string where =
        is_whole ? fmt::format(" of b: {}{}", fmt::join(named, ", "), found_ > kMostNamed ? ", ..." : "") : "";
    return fmt::format("rounding explains all but {} {}{}", found_, found_ == 1 ? "element" : "elements", where);
  }

 private:
  double relative_ = 0, absolute_ = 0;
  std::int64_t place_ = 0;
  std::size_t found_ = 0;
  std::vector<std::int64_t> places_;
};

// ---- in blocks

struct Block {
  double squares = 0, products = 0, errors = 0;  // of what is exact, of it and the error, of the error

  void add(double exact, double error) {
    squares += exact * exact;
    products += exact * error;
    errors += error * error;
  }
  double factor() const { return products / std::max(squares, kTiny); }  // - 1
  double rounded_squares() const { return squares + 2 * products + errors; }
};

struct Row {
  double size = 0, error = 0;  // Euclidean; the error as a part of the size
  double factor = 0;           // the median of the blocks' factors, - 1
  double rest = 0;             // the median of what these factors leave of the error
};

class BlockCheck {
 public:
  // `columns`: elements of a row, or 0 where columns are not looked at.
  BlockCheck(double rounding, bool is_b_rounded, std::int64_t columns)
      : rounding_(rounding),
        own_(is_b_rounded ? "b" : "a"),
        other_(is_b_rounded ? "a" : "b"),
        columns_(static_cast<std::size_t>(columns)) {}

  void add(const double* exact, const double* rounded, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, ++place_) {
      if (place_ % kBlock == 0) blocks_.emplace_back();
      if (!std::isfinite(exact[i]) || !std::isfinite(rounded[i])) continue;
      const double error = rounded[i] - exact[i];
      blocks_.back().add(exact[i], error);
      if (!columns_.empty()) columns_[static_cast<std::size_t>(place_) % columns_.size()].add(exact[i], error);
    }
  }

  RoundingCheck judge(std::int64_t elements_of_row) const {
    if (elements_of_row % kBlock != 0 || blocks_.empty()) return {};
    const std::vector<Row> rows = rows_of(static_cast<std::size_t>(elements_of_row / kBlock));
    RoundingCheck check;
    check.systematic = median_of(rows, &Row::factor);
    check.is_known = true;
    check.words = odd_rows(rows, elements_of_row);
    if (check.words.empty() && rounding_ < kThreeBits) {
      check.words = turned_blocks(static_cast<std::size_t>(elements_of_row));
      if (check.words.empty() && std::ssize(columns_) == elements_of_row) check.words = odd_columns(rows.size());
    }
    check.is_all = check.words.empty();
    if (check.is_all) check.words = odd_tensor(check.systematic);
    return check;
  }

 private:
  std::vector<Row> rows_of(std::size_t blocks_of_row) const {
    std::vector<Row> rows;
    std::vector<double> factors, rests;
    for (std::size_t begin = 0; begin + blocks_of_row <= blocks_.size(); begin += blocks_of_row) {
      double squares = 0, error = 0;
      factors.clear();
      rests.clear();
      for (std::size_t k = begin; k < begin + blocks_of_row; ++k) {
        const Block& block = blocks_[k];
        squares += block.squares;
        error += block.errors;
        if (block.squares == 0) continue;
        factors.push_back(block.products / block.squares);
        rests.push_back(std::max(block.errors / block.squares - factors.back() * factors.back(), 0.0));
      }
      Row row{
          .size = std::sqrt(squares), .error = std::sqrt(error / std::max(squares, kTiny)), .factor = median(factors)};
      row.rest = std::sqrt(median(rests));
      rows.push_back(row);
    }
    return rows;
  }

  static double median_of(const std::vector<Row>& rows, double Row::* member) {
    std::vector<double> values;
    for (const Row& row : rows) values.push_back(row.*member);
    return median(std::move(values));
  }

  // Rows of next to nothing are not judged: the scale of a block has few bits there.
  std::string odd_rows(const std::vector<Row>& rows, std::int64_t elements_of_row) const {
    const double size = median_of(rows, &Row::size), error = median_of(rows, &Row::error),
                 factor = median_of(rows, &Row::factor), rest = median_of(rows, &Row::rest);
    std::vector<double> apart;
    for (const Row& row : rows) apart.push_back(std::abs(row.factor - factor));
    constexpr double kSmall = 0.05, kToDeviation = 1.4826, kSimilar = 1.5;
    const double deviation =
        std::max(kToDeviation * median(apart), rounding_ / 2 / std::sqrt(static_cast<double>(elements_of_row)));
    const double most = std::min(kMostOfRow * std::max(rounding_, error), kAnythingElse);
    const auto is_usual = [&](const Row& row) {
      return row.rest <= kSimilar * rest * std::max(1.0, std::abs(1 + row.factor));
    };
    std::vector<std::size_t> odd;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      if (row.size <= kSmall * size) continue;
      const double off = row.factor - factor, slack = (off > 0 ? kRaised : kShrunkOfRow) * rounding_;
      const bool is_scaled = std::abs(off) > kDeviations * deviation + slack && is_usual(row);
      if (row.error > most || is_scaled) odd.push_back(i);
    }
    if (odd.empty() || 2 * odd.size() > rows.size()) return {};
    if (odd.size() == 1) {
      const Row& row = rows[odd.front()];
      if (is_usual(row))
        return fmt::format("in row {} of {}, {} is {:.3g} times {} but for rounding", odd.front(), own_, own_,
                           1 + row.factor, other_);
      return fmt::format("row {} of {} differs by {:.2g} (Euclidean, relative), where {:.2g} is normal here",
                         odd.front(), own_, row.error, error);
    }
    const auto named = std::min(odd.size(), kMostNamed);
    return fmt::format("{} of {} rows of {} differ by more than rounding does to the others: {}{}", odd.size(),
                       rows.size(), own_,
                       fmt::join(odd.begin(), odd.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                       odd.size() > named ? ", ..." : "");
  }

  // 32 elements of a row that go against the exact ones.
  std::string turned_blocks(std::size_t elements_of_row) const {
    constexpr double kSmall = 0.05;  // of the mean
    double squares = 0;
    for (const Block& block : blocks_) squares += block.squares;
    std::vector<std::string> odd;
    for (std::size_t k = 0; k < blocks_.size(); ++k) {
      if (blocks_[k].squares * static_cast<double>(blocks_.size()) < kSmall * squares) continue;
      if (blocks_[k].factor() >= kTurned) continue;
      const std::size_t place = k * kBlock, column = place % elements_of_row;
      odd.push_back(fmt::format("[{}, {}:{}]", place / elements_of_row, column, column + kBlock));
    }
    if (odd.empty()) return {};
    const auto named = odd.begin() + static_cast<std::ptrdiff_t>(std::min(odd.size(), kMostNamed));
    return fmt::format("{} goes against {} in {}{}", own_, other_, fmt::join(odd.begin(), named, ", "),
                       odd.size() > kMostNamed ? ", ..." : "");
  }

  // Columns smaller than those of the same blocks are not judged, nor those that become small: they may vanish.
  std::string odd_columns(std::size_t rows) const {
    constexpr double kSmall = 0.5;  // of the mean square
    const double chance = kDeviations * rounding_ / std::sqrt(static_cast<double>(rows));
    const auto is_other = [&](const Block& column) {
      const bool is_zero = column.errors == column.squares && column.products == -column.squares;
      return is_zero || (column.factor() < -kOffColumn - chance && column.rounded_squares() > kSmall * column.squares);
    };
    std::vector<std::size_t> odd;
    for (std::size_t begin = 0; begin + kBlock <= columns_.size(); begin += kBlock) {
      double squares = 0;
      for (std::size_t i = begin; i < begin + kBlock; ++i) squares += columns_[i].squares / kBlock;
      for (std::size_t i = begin; i < begin + kBlock; ++i)
        if (columns_[i].squares > kSmall * squares && is_other(columns_[i])) odd.push_back(i);
    }
    if (odd.empty() || 2 * odd.size() > columns_.size()) return {};
    if (odd.size() == 1)
      return fmt::format("in column {} of {}, {} is {:.2g} times {} but for rounding", odd.front(), own_, own_,
                         1 + columns_[odd.front()].factor(), other_);
    const auto named = odd.begin() + static_cast<std::ptrdiff_t>(std::min(odd.size(), kMostNamed));
    return fmt::format("{} of {} columns of {} differ by more than rounding does to the others: {}{}", odd.size(),
                       columns_.size(), own_, fmt::join(odd.begin(), named, ", "),
                       odd.size() > kMostNamed ? ", ..." : "");
  }

  std::string odd_tensor(double systematic) const {
    const double noise = kDeviations * rounding_ / std::sqrt(static_cast<double>(place_));
    if (systematic <= kRaised * rounding_ + noise && systematic >= -kShrunk * rounding_ - noise) return {};
    return fmt::format("{} = {:.4g} {} but for rounding", own_, 1 + systematic, other_);
  }

  double rounding_;
  std::string_view own_, other_;  // sides
  std::int64_t place_ = 0;
  std::vector<Block> blocks_, columns_;
};

// Elements of a row, where no range of the layout cuts rows; else 0.
std::int64_t columns_of(const TensorView& view, const std::vector<Layout::Range>& ranges) {
  const Shape shape = without_ones(Shape(view.shape.begin(), view.shape.end()));
  if (shape.size() < 2) return 0;
  const auto cuts_rows = [&](const Layout::Range& range) { return range.axis + 1 == shape.size(); };
  return std::ranges::any_of(ranges, cuts_rows) ? 0 : shape.back();
}

}  // namespace

RoundingCheck check_rounding(const StoredTensor& stored_a, const TensorView& a, const StoredTensor& stored_b,
                             const TensorView& b, const Layout& layout) {
  const double rounding = rounding_of(stored_a, stored_b);
  constexpr double kMostBits = 0.5;  // types of fewer than two bits keep too little
  if (rounding == 0 || rounding > kMostBits) return {};
  if (!stored_a.is_quantised && !stored_b.is_quantised) {
    if (!float_format_of(stored_a) && !float_format_of(stored_b)) return {};
    ElementCheck check(stored_a, stored_b);
    for_each_pair(a, b, layout, LayoutSide::B,
                  [&](const double* x, const double* y, std::int64_t count) { check.add(x, y, count); });
    RoundingCheck result;
    result.words = check.words(b, layout.of_b.empty());
    return result;
  }
  const bool is_b_coarser = rounding_of(stored_b) >= rounding_of(stored_a);
  BlockCheck check(rounding, is_b_coarser, is_b_coarser ? columns_of(b, layout.of_b) : columns_of(a, layout.of_a));
  const auto elements_of_row = for_each_pair(a, b, layout, is_b_coarser ? LayoutSide::B : LayoutSide::A,
                                             [&](const double* x, const double* y, std::int64_t count) {
                                               is_b_coarser ? check.add(x, y, count) : check.add(y, x, count);
                                             });
  return elements_of_row ? check.judge(*elements_of_row) : RoundingCheck{};
}

}  // namespace tenscope::compare
