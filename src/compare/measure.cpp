#include "compare/measure.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::size_t kLanes = 8;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tensor's elements as doubles, block by block; a complex element counts as two.
class DoubleReader {
 public:
  explicit DoubleReader(const TensorView& view)
      : reader_(view),
        dtype_(view.dtype),
        parts_(kind_of(view.dtype) == DTypeKind::Complex ? 2 : 1),
        scratch_(static_cast<std::size_t>(kBlock) * reader_.item_size()) {}

  std::int64_t count() const { return reader_.count() * parts_; }

  void read(std::int64_t begin, std::int64_t count, double* out) {
    const std::byte* bytes = reader_.read(begin / parts_, count / parts_, scratch_.data());
    kernels::visit_dtype(dtype_, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (kernels::kIsComplex<T>) {
        using Part = typename T::value_type;
        for (std::int64_t i = 0; i < count; ++i)
          out[i] = static_cast<double>(kernels::load<Part>(bytes + static_cast<std::size_t>(i) * sizeof(Part)));
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          out[i] = kernels::to_double(kernels::load<T>(bytes + static_cast<std::size_t>(i) * sizeof(T)));
      }
    });
  }

 private:
  kernels::ElementReader reader_;
  DType dtype_;
  std::int64_t parts_;
  std::vector<std::byte> scratch_;
};

bool equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Sums {
  std::array<double, kLanes> dd{}, aa{}, da{}, max_d{}, max_a{};
  std::array<std::int64_t, kLanes> differing{};
  bool has_other_finite = false;

  void add(std::size_t lane, double a, double b) {
    const double d = b - a;
    dd[lane] += d * d;
    aa[lane] += a * a;
    da[lane] += d * a;
    max_d[lane] = std::max(max_d[lane], std::abs(d));
    max_a[lane] = std::max(max_a[lane], std::abs(a));
    differing[lane] += a != b;
  }

  void add_finite_block(const double* a, const double* b, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kLanes) <= count; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        add(lane, a[i + static_cast<std::int64_t>(lane)], b[i + static_cast<std::int64_t>(lane)]);
    for (; i < count; ++i) add(0, a[i], b[i]);
  }

  void add_block(const double* a, const double* b, std::int64_t count) {
    std::array<double, kLanes> check{};
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kLanes) <= count; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        check[lane] += 0 * a[i + static_cast<std::int64_t>(lane)] + 0 * b[i + static_cast<std::int64_t>(lane)];
    for (; i < count; ++i) check[0] += 0 * a[i] + 0 * b[i];
    double all = 0;
    for (const double c : check) all += c;
    if (all == 0) return add_finite_block(a, b, count);
    for (i = 0; i < count; ++i) {
      if (std::isfinite(a[i]) && std::isfinite(b[i])) {
        add(0, a[i], b[i]);
      } else if (!equal(a[i], b[i])) {
        ++differing[0];
        has_other_finite = true;
      }
    }
  }
};

double sum(const std::array<double, kLanes>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

double largest(const std::array<double, kLanes>& values) { return *std::max_element(values.begin(), values.end()); }

}  // namespace

double PairError::relative(double floor) const {
  if (!is_comparable || has_other_finite) return std::numeric_limits<double>::infinity();
  if (max_abs == 0) return 0;
  return max_abs / std::max(scale, floor);
}

PairError measure(const TensorView& a, const TensorView& b) {
  PairError error;
  if (!std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end())) {
    error.is_comparable = false;
    error.remark = "the shapes differ";
    return error;
  }
  DoubleReader reader_a(a), reader_b(b);
  if (reader_a.count() != reader_b.count()) {
    error.is_comparable = false;
    error.remark = "one is complex, the other is not";
    return error;
  }
  Sums sums;
  std::array<double, kBlock> block_a, block_b;
  error.count = reader_a.count();
  for (std::int64_t begin = 0; begin < error.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, error.count - begin);
    reader_a.read(begin, count, block_a.data());
    reader_b.read(begin, count, block_b.data());
    sums.add_block(block_a.data(), block_b.data(), count);
  }
  for (const std::int64_t part : sums.differing) error.differing += part;
  error.has_other_finite = sums.has_other_finite;
  error.max_abs = largest(sums.max_d);
  error.scale = largest(sums.max_a);
  const double aa = sum(sums.aa), dd = sum(sums.dd);
  error.rel_l2 = dd == 0 ? 0 : std::sqrt(dd / aa);
  error.correlation = dd == 0 || aa == 0 ? 0 : sum(sums.da) / std::sqrt(aa * dd);
  return error;
}

PairError measure_numbers(double a, double b) {
  PairError error;
  error.count = 1;
  error.differing = equal(a, b) ? 0 : 1;
  error.has_other_finite = error.differing != 0 && !(std::isfinite(a) && std::isfinite(b));
  if (error.has_other_finite || error.differing == 0) return error;
  error.max_abs = std::abs(b - a);
  error.scale = std::abs(a);
  error.rel_l2 = error.relative();
  return error;
}

DiffMetrics describe(const TensorView& a, const TensorView& b) {
  DiffMetrics metrics;
  metrics.dtype_a = to_string(a.dtype);
  metrics.dtype_b = to_string(b.dtype);
  metrics.shape_a.assign(a.shape.begin(), a.shape.end());
  metrics.shape_b.assign(b.shape.begin(), b.shape.end());
  const PairError error = measure(a, b);
  metrics.count = error.count;
  metrics.differing = error.differing;
  metrics.remark = error.remark;
  if (!error.is_comparable) {
    metrics.max_abs = metrics.rel_max = metrics.rel_l2 = metrics.correlation = kNan;
    return metrics;
  }
  metrics.max_abs = error.max_abs;
  metrics.rel_max = error.scale == 0 && error.max_abs > 0 ? std::numeric_limits<double>::infinity()
                    : error.max_abs == 0                  ? 0
                                                          : error.max_abs / error.scale;
  metrics.rel_l2 = error.rel_l2;
  metrics.correlation = error.correlation;
  if (error.differing == 0) return metrics;

  DoubleReader reader_a(a), reader_b(b);
  const std::size_t rank = a.shape.size();
  const std::int64_t parts = kind_of(a.dtype) == DTypeKind::Complex ? 2 : 1;
  metrics.ranges.assign(rank, {std::numeric_limits<std::int64_t>::max(), 0});
  std::array<double, kBlock> block_a, block_b;
  std::vector<std::int64_t> index(rank);
  double worst = -1;
  for (std::int64_t begin = 0; begin < error.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, error.count - begin);
    reader_a.read(begin, count, block_a.data());
    reader_b.read(begin, count, block_b.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const double x = block_a[static_cast<std::size_t>(i)], y = block_b[static_cast<std::size_t>(i)];
      metrics.nan_a += std::isnan(x);
      metrics.nan_b += std::isnan(y);
      metrics.inf_a += std::isinf(x);
      metrics.inf_b += std::isinf(y);
      if (equal(x, y)) continue;
      std::int64_t rest = (begin + i) / parts;
      for (std::size_t axis = rank; axis-- > 0;) {
        index[axis] = rest % a.shape[axis];
        rest /= a.shape[axis];
        metrics.ranges[axis][0] = std::min(metrics.ranges[axis][0], index[axis]);
        metrics.ranges[axis][1] = std::max(metrics.ranges[axis][1], index[axis] + 1);
      }
      const double distance =
          std::isfinite(x) && std::isfinite(y) ? std::abs(y - x) : std::numeric_limits<double>::infinity();
      if (distance > worst) {
        worst = distance;
        metrics.worst_index = index;
        metrics.worst_a = x;
        metrics.worst_b = y;
      }
    }
  }
  metrics.relation = find_relation(a, b);
  return metrics;
}

}  // namespace tenscope::compare
