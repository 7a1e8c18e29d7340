#include "compare/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "compare/double_reader.hpp"
#include "kernels/parallel.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kBlock = DoubleReader::kBlock;
constexpr std::int64_t kChunk = 256 * kBlock;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Sums {
  kernels::PairSums pairs;
  bool has_other_finite = false;

  void add(const kernels::PairSums& other) {
    pairs.dd += other.dd;
    pairs.aa += other.aa;
    pairs.da += other.da;
    pairs.max_d = std::max(pairs.max_d, other.max_d);
    pairs.max_a = std::max(pairs.max_a, other.max_a);
    pairs.differing += other.differing;
  }

  void add(const Sums& other) {
    add(other.pairs);
    has_other_finite |= other.has_other_finite;
  }

  void add_block(const double* a, const double* b, std::int64_t count) {
    const kernels::PairSums block = kernels::compare_table().sum_pairs(a, b, count);
    if (block.all_finite) return add(block);
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::isfinite(a[i]) && std::isfinite(b[i])) {
        const double d = b[i] - a[i];
        add(kernels::PairSums{d * d, a[i] * a[i], d * a[i], std::abs(d), std::abs(a[i]), a[i] != b[i]});
      } else if (!equal(a[i], b[i])) {
        ++pairs.differing;
        has_other_finite = true;
      }
    }
  }
};

// Sums of chunks are added in their order, so that the result does not depend on the threads.
Sums sum(const DoubleReader& a, const DoubleReader& b) {
  const std::int64_t count = a.count();
  std::vector<Sums> chunks(static_cast<std::size_t>((count + kChunk - 1) / kChunk));
  const int threads = kernels::thread_count(a.bytes() + b.bytes(), 0);
  kernels::for_each_chunk(count, kChunk, threads, [&](int, std::int64_t begin, std::int64_t end) {
    Sums& chunk = chunks[static_cast<std::size_t>(begin / kChunk)];
    alignas(64) std::array<double, kBlock> block_a, block_b;
    for (; begin < end; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, end - begin);
      a.read(begin, size, block_a.data());
      b.read(begin, size, block_b.data());
      chunk.add_block(block_a.data(), block_b.data(), size);
    }
  });
  Sums total;
  for (const Sums& chunk : chunks) total.add(chunk);
  return total;
}

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
  const DoubleReader reader_a(a), reader_b(b);
  if (reader_a.count() != reader_b.count()) {
    error.is_comparable = false;
    error.remark = "one is complex, the other is not";
    return error;
  }
  const Sums sums = sum(reader_a, reader_b);
  const kernels::PairSums& pairs = sums.pairs;
  error.count = reader_a.count();
  error.differing = pairs.differing;
  error.has_other_finite = sums.has_other_finite;
  error.max_abs = pairs.max_d;
  error.scale = pairs.max_a;
  error.rel_l2 = pairs.dd == 0 ? 0 : std::sqrt(pairs.dd / pairs.aa);
  error.correlation = pairs.dd == 0 || pairs.aa == 0 ? 0 : pairs.da / std::sqrt(pairs.aa * pairs.dd);
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

  const DoubleReader reader_a(a), reader_b(b);
  const std::size_t rank = a.shape.size();
  const std::int64_t parts = kind_of(a.dtype) == DTypeKind::Complex ? 2 : 1;
  metrics.ranges.assign(rank, {std::numeric_limits<std::int64_t>::max(), 0});
  alignas(64) std::array<double, kBlock> block_a, block_b;
  std::vector<std::int64_t> index(rank, 0);
  double worst = -1;
  const auto advance = [&] {
    for (std::size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < a.shape[axis]) return;
      index[axis] = 0;
    }
  };
  const auto look_at = [&](double x, double y) {
    metrics.nan_a += std::isnan(x);
    metrics.nan_b += std::isnan(y);
    metrics.inf_a += std::isinf(x);
    metrics.inf_b += std::isinf(y);
    if (equal(x, y)) return;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      metrics.ranges[axis][0] = std::min(metrics.ranges[axis][0], index[axis]);
      metrics.ranges[axis][1] = std::max(metrics.ranges[axis][1], index[axis] + 1);
    }
    const double distance =
        std::isfinite(x) && std::isfinite(y) ? std::abs(y - x) : std::numeric_limits<double>::infinity();
    if (distance <= worst) return;
    worst = distance;
    metrics.worst_index = index;
    metrics.worst_a = x;
    metrics.worst_b = y;
  };
  for (std::int64_t begin = 0; begin < error.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, error.count - begin);
    reader_a.read(begin, count, block_a.data());
    reader_b.read(begin, count, block_b.data());
    for (std::int64_t i = 0; i < count; ++i) {
      look_at(block_a[static_cast<std::size_t>(i)], block_b[static_cast<std::size_t>(i)]);
      if ((i + 1) % parts == 0) advance();
    }
  }
  metrics.relation = find_relation(a, b);
  return metrics;
}

}  // namespace tenscope::compare
