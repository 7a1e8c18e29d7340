// Overview. Both tensors are read in blocks of 512 pairs in C order (ElementReader) and widened to double in the
// first-level cache; the loops over doubles are those of compare_simd.cpp. A double holds every element but those of
// int64 and uint64: pairs with one of these, and complex ones, have their differences taken in long double first.
// all_close(), distance() and diff() ask the same reader, so that files and runs are compared by one rule.
// Chunks of blocks go to threads; each chunk keeps its own sums, which are added in order, so that results do not
// depend on the threads. Inside, a is the value and b the reference.
#include "kernels/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/axis_counter.hpp"
#include "kernels/compare_bins.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "kernels/parallel.hpp"
#include "tenscope/error.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::int64_t kChunk = 128 * kCompareBlock;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_wide(DType dtype) { return dtype == DType::I64 || dtype == DType::U64; }
bool is_complex(DType dtype) { return kind_of(dtype) == DTypeKind::Complex; }

bool same_shape(const TensorView& a, const TensorView& b) {
  return std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
}

void require_same_shape(const TensorView& a, const TensorView& b) {
  if (same_shape(a, b)) return;
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("tensors cannot be compared element by element: shapes [{}] and [{}] differ",
                          fmt::join(a.shape, ", "), fmt::join(b.shape, ", ")));
}

struct WideNumber {
  long double real = 0;
  long double imag = 0;
  bool is_nan() const { return std::isnan(real) || std::isnan(imag); }
  bool is_inf() const { return !is_nan() && (std::isinf(real) || std::isinf(imag)); }
  bool operator==(const WideNumber&) const = default;
};

WideNumber wide_number(DType dtype, const std::byte* bytes) {
  return visit_dtype(dtype, [&]<class T>(T) -> WideNumber {
    const T x = load<T>(bytes);
    if constexpr (kIsComplex<T>)
      return {x.real(), x.imag()};
    else if constexpr (std::is_arithmetic_v<T>)
      return {static_cast<long double>(x), 0};
    else
      return {static_cast<long double>(to_double(x)), 0};
  });
}

double magnitude(const WideNumber& x) {
  if (x.imag == 0) return static_cast<double>(x.real);  // keeps the sign of a real number
  if (x.is_nan()) return kNaN;
  return static_cast<double>(std::sqrt(x.real * x.real + x.imag * x.imag));
}

// The pairs of one block: their bytes, and both sides and their absolute difference as doubles.
struct PairBlock {
  std::int64_t count = 0;
  const std::byte* a_bytes = nullptr;
  const std::byte* b_bytes = nullptr;
  alignas(64) double a[kCompareBlock];
  alignas(64) double b[kCompareBlock];
  alignas(64) double error[kCompareBlock];
  alignas(64) std::byte a_scratch[kCompareBlock * 16];
  alignas(64) std::byte b_scratch[kCompareBlock * 16];
};

struct DistanceSums {
  PairSums pairs;
  std::int64_t other_nonfinite = 0;

  void add(const PairSums& other) {
    pairs.dd += other.dd;
    pairs.aa += other.aa;
    pairs.da += other.da;
    pairs.max_d = std::max(pairs.max_d, other.max_d);
    pairs.max_a = std::max(pairs.max_a, other.max_a);
    pairs.differing += other.differing;
  }
};

class PairReader {
 public:
  PairReader(const TensorView& a, const TensorView& b)
      : a_(a),
        b_(b),
        a_dtype_(a.dtype),
        b_dtype_(b.dtype),
        table_(compare_table()),
        has_wide_(is_wide(a.dtype) || is_wide(b.dtype) || is_complex(a.dtype) || is_complex(b.dtype)) {}

  std::int64_t count() const { return a_.count(); }
  std::int64_t bytes() const { return count() * static_cast<std::int64_t>(a_.item_size() + b_.item_size()); }
  bool same_dtype() const { return a_dtype_ == b_dtype_; }
  const CompareTable& table() const { return table_; }

  void read(std::int64_t begin, std::int64_t count, PairBlock& block) const {
    block.count = count;
    block.a_bytes = a_.read(begin, count, block.a_scratch);
    block.b_bytes = b_.read(begin, count, block.b_scratch);
  }

  bool is_equal(const PairBlock& block) const {
    return same_dtype() && table_.equal[index(a_dtype_)](block.a_bytes, block.b_bytes, block.count);
  }

  bool is_bit_equal(const PairBlock& block) const {
    return same_dtype() &&
           std::memcmp(block.a_bytes, block.b_bytes, static_cast<std::size_t>(block.count) * a_.item_size()) == 0;
  }

  // The sums of distance() over a block.
  void add_distance(PairBlock& block, DistanceSums& sums) const {
    if (!has_wide_) {
      widen_a(block);
      table_.widen[index(b_dtype_)](block.b_bytes, block.count, block.b);
      const PairSums pairs = table_.sum_pairs(block.b, block.a, block.count);
      if (pairs.all_finite) return sums.add(pairs);
    }
    for (std::int64_t i = 0; i < block.count; ++i) {
      const WideNumber x = wide_b(block, i), y = wide_a(block, i);
      const long double real = y.real - x.real, imag = y.imag - x.imag;
      const double difference = std::abs(magnitude({real, imag})), reference = std::abs(magnitude(x));
      if (std::isfinite(difference) && std::isfinite(reference)) {
        sums.add(PairSums{difference * difference, reference * reference,
                          static_cast<double>(real * x.real + imag * x.imag), difference, reference, !(x == y)});
      } else if (!(x == y) && !(x.is_nan() && y.is_nan())) {
        ++sums.pairs.differing;
        if (std::isfinite(magnitude(x)) && std::isfinite(magnitude(y))) {  // further apart than a double can be
          sums.pairs.max_d = difference;
          sums.pairs.max_a = std::max(sums.pairs.max_a, reference);
        } else {
          ++sums.other_nonfinite;
        }
      }
    }
  }

  // Fills a; not where the pair has_wide().
  void widen_a(PairBlock& block) const { table_.widen[index(a_dtype_)](block.a_bytes, block.count, block.a); }

  // Fills a and b, and error.
  void widen(PairBlock& block) const {
    if (!has_wide_) {
      widen_a(block);
      table_.widen[index(b_dtype_)](block.b_bytes, block.count, block.b);
      table_.absolute_error(block.a, block.b, block.count, block.error);
      return;
    }
    for (std::int64_t i = 0; i < block.count; ++i) {
      const WideNumber x = wide_a(block, i);
      const WideNumber y = wide_b(block, i);
      block.a[i] = magnitude(x);
      block.b[i] = magnitude(y);
      block.error[i] = std::abs(magnitude({x.real - y.real, x.imag - y.imag}));
      if (x.is_nan() || y.is_nan()) block.error[i] = kNaN;
      if (x.is_inf()) block.a[i] = std::copysign(std::numeric_limits<double>::infinity(), block.a[i]);
      if (y.is_inf()) block.b[i] = std::copysign(std::numeric_limits<double>::infinity(), block.b[i]);
      // A sum of magnitudes says nothing of their angle: measure() multiplies a by b.
    }
  }

  // Re(a * conj(b)) summed over the finite pairs, where measure() cannot know it.
  double dot(const PairBlock& block) const {
    long double sum = 0;
    for (std::int64_t i = 0; i < block.count; ++i) {
      if (!std::isfinite(block.error[i]) || !std::isfinite(block.a[i]) || !std::isfinite(block.b[i])) continue;
      const WideNumber x = wide_a(block, i);
      const WideNumber y = wide_b(block, i);
      sum += x.real * y.real + x.imag * y.imag;
    }
    return static_cast<double>(sum);
  }
  bool needs_dot() const { return is_complex(a_dtype_) || is_complex(b_dtype_); }

  // Of a pair that is not finite: whether it agrees.
  bool agrees(const PairBlock& block, std::int64_t i, bool equal_nan) const {
    const WideNumber x = wide_a(block, i);
    const WideNumber y = wide_b(block, i);
    return x == y || (equal_nan && x.is_nan() && y.is_nan());
  }

  WideNumber wide_a(const PairBlock& block, std::int64_t i) const {
    return wide_number(a_dtype_, block.a_bytes + i * static_cast<std::int64_t>(a_.item_size()));
  }
  WideNumber wide_b(const PairBlock& block, std::int64_t i) const {
    return wide_number(b_dtype_, block.b_bytes + i * static_cast<std::int64_t>(b_.item_size()));
  }

  bool has_ulps() const { return same_dtype() && table_.ulps[index(a_dtype_)] != nullptr; }
  void ulps(const PairBlock& block, std::uint64_t* out) const {
    table_.ulps[index(a_dtype_)](block.a_bytes, block.b_bytes, block.count, out);
  }

  std::uint64_t bin_ulps(const PairBlock& block, std::int32_t* bins) const {
    return table_.bin_ulps[index(a_dtype_)](block.a_bytes, block.b_bytes, block.count, bins);
  }

  bool has_wide() const { return has_wide_; }

 private:
  static std::size_t index(DType dtype) { return static_cast<std::size_t>(dtype); }

  ElementReader a_;
  ElementReader b_;
  DType a_dtype_;
  DType b_dtype_;
  const CompareTable& table_;
  bool has_wide_;
};

bool is_close(const PairReader& reader, PairBlock& block, const CompareOptions& options) {
  if (reader.is_equal(block)) return true;
  reader.widen(block);
  const auto& table = reader.table();
  if (!reader.has_wide() && table.close(block.a, block.b, block.count, options.tolerance, options.equal_nan))
    return true;
  if (!reader.has_wide() && !options.ulps) return false;
  alignas(64) std::uint8_t outside[kCompareBlock];
  alignas(64) std::uint64_t ulps[kCompareBlock];
  table.mark_outside(block.b, block.error, block.count, options.tolerance, outside);
  const bool by_ulps = options.ulps && reader.has_ulps();
  if (by_ulps) reader.ulps(block, ulps);
  for (std::int64_t i = 0; i < block.count; ++i) {
    if (outside[i] == 0 || (by_ulps && std::isfinite(block.error[i]) && ulps[i] <= *options.ulps)) continue;
    if (!reader.agrees(block, i, options.equal_nan)) return false;
  }
  return true;
}

// Keeps the lower of two indices, where -1 is none.
void keep_lower(std::int64_t& kept, std::int64_t index) {
  if (index >= 0 && (kept < 0 || index < kept)) kept = index;
}

struct ChunkSums {
  double error = 0, relative = 0, aa = 0, bb = 0, ab = 0, squared = 0;
};

// What one thread has found. ULPs are counted in several histograms, since two increments of one counter wait for each
// other.
struct Worker {
  static constexpr std::size_t kCopies = 4;
  PairBlock block;
  ElementDiff found;
  std::int64_t relative_count = 0;
  double worst_error = 0;
  AxisCounter axes;
  std::array<std::int64_t, kErrorBinsWithZero> errors{};
  std::array<std::array<std::int64_t, kUlpBins>, kCopies> ulps{};

  explicit Worker(std::span<const std::int64_t> shape) : axes(shape) { found.bit_equal = true; }
};

void count_ulps(const PairReader& reader, Worker& worker) {
  constexpr std::int64_t kCopies = Worker::kCopies;
  constexpr std::uint64_t kFew = 7;
  const std::int64_t count = worker.block.count;
  alignas(64) std::int32_t bins[kCompareBlock];
  const std::uint64_t largest = reader.bin_ulps(worker.block, bins);
  worker.found.max_ulps = std::max(worker.found.max_ulps, largest);
  if (largest <= kFew) {
    for (std::uint64_t distance = 0; distance <= largest; ++distance) {
      const int bin = ulp_bin(distance);
      worker.ulps[0][static_cast<std::size_t>(bin)] += reader.table().count_bin(bins, count, bin);
    }
    return;
  }
  std::int64_t i = 0;
  for (; i + kCopies <= count; i += kCopies) {
    for (std::int64_t k = 0; k < kCopies; ++k)
      ++worker.ulps[static_cast<std::size_t>(k)][static_cast<std::size_t>(bins[i + k])];
  }
  for (; i < count; ++i) ++worker.ulps[0][static_cast<std::size_t>(bins[i])];
}

void count_mixed_errors(const PairReader& reader, Worker& worker, const std::uint64_t* ulps) {
  const PairBlock& block = worker.block;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const double error = block.error[i];
    if (!(std::isfinite(error) && std::isfinite(block.a[i]) && std::isfinite(block.b[i]))) continue;
    ++worker.errors[static_cast<std::size_t>(error_bin(error))];
    if (!reader.has_ulps()) continue;
    worker.found.max_ulps = std::max(worker.found.max_ulps, ulps[i]);
    ++worker.ulps[0][static_cast<std::size_t>(ulp_bin(ulps[i]))];
  }
}

// Of a pair of finite numbers that are further apart than a double can be.
void note_overflow(const WideNumber& x, const WideNumber& y, std::int64_t index, Worker& worker) {
  ElementDiff& found = worker.found;
  const long double real = x.real - y.real, imag = x.imag - y.imag;
  found.max_abs = worker.worst_error = std::numeric_limits<double>::infinity();
  found.max_rel = std::max(found.max_rel, static_cast<double>(std::sqrt(real * real + imag * imag) /
                                                              std::sqrt(y.real * y.real + y.imag * y.imag)));
  if (found.overflows++ == 0 || index < found.worst_index) found.worst_index = index;
}

void count_mismatches(const PairReader& reader, const CompareOptions& options, Worker& worker, std::int64_t begin,
                      bool all_finite, const std::uint64_t* ulps) {
  const PairBlock& block = worker.block;
  ElementDiff& found = worker.found;
  alignas(64) std::uint8_t outside[kCompareBlock];
  reader.table().mark_outside(block.b, block.error, block.count, options.tolerance, outside);
  if (!all_finite) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const bool are_finite = std::isfinite(block.a[i]) && std::isfinite(block.b[i]);
      if (are_finite && std::isfinite(block.error[i])) continue;
      const WideNumber x = reader.wide_a(block, i);
      const WideNumber y = reader.wide_b(block, i);
      if (are_finite) {
        note_overflow(x, y, begin + i, worker);
        continue;
      }
      found.nan_only_value += x.is_nan() && !y.is_nan();
      found.nan_only_reference += y.is_nan() && !x.is_nan();
      found.nan_both += x.is_nan() && y.is_nan();
      found.inf_only_value += x.is_inf() && !(x == y);
      found.inf_only_reference += y.is_inf() && !(x == y);
      found.inf_both += x.is_inf() && x == y;
      outside[i] = static_cast<std::uint8_t>(!reader.agrees(block, i, options.equal_nan));
      if (outside[i] != 0) keep_lower(found.first_nonfinite_index, begin + i);
    }
  }
  if (options.ulps && reader.has_ulps()) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      if (std::isfinite(block.error[i]) && ulps[i] <= *options.ulps) outside[i] = 0;
    }
  }
  const auto* first = static_cast<const std::uint8_t*>(std::memchr(outside, 1, static_cast<std::size_t>(block.count)));
  if (first == nullptr) return;
  keep_lower(found.first_index, begin + (first - outside));
  found.mismatches += worker.axes.add(begin, block.count, outside);
}

BlockDiff measure(const PairReader& reader, const CompareOptions& options, Worker& worker) {
  PairBlock& block = worker.block;
  const bool is_bit_equal = reader.is_bit_equal(block);
  worker.found.bit_equal &= is_bit_equal;
  if (is_bit_equal && !reader.has_wide()) {
    reader.widen_a(block);
    const BlockDiff measured = reader.table().measure_equal(block.a, block.count);
    if (measured.finite == block.count) return measured;
  }
  reader.widen(block);
  return reader.table().measure(block.a, block.b, block.error, block.count, options.tolerance);
}

void add_block(const PairReader& reader, const CompareOptions& options, Worker& worker, std::int64_t begin,
               ChunkSums& sums) {
  PairBlock& block = worker.block;
  ElementDiff& found = worker.found;
  const BlockDiff measured = measure(reader, options, worker);
  sums.error += measured.sum_error;
  sums.relative += measured.sum_relative;
  sums.aa += measured.sum_aa;
  sums.bb += measured.sum_bb;
  sums.ab += reader.needs_dot() ? reader.dot(block) : measured.sum_ab;
  sums.squared += measured.sum_squared_error;
  found.finite += measured.finite;
  worker.relative_count += measured.relative_count;
  found.max_abs = std::max(found.max_abs, measured.max_error);
  found.max_rel = std::max(found.max_rel, measured.max_relative);
  const bool all_finite = measured.finite == block.count;

  if (all_finite && measured.max_error == 0) {
    found.zero_error += block.count;
    if (reader.has_ulps()) worker.ulps[0][0] += block.count;
    return;
  }
  alignas(64) std::uint64_t ulps[kCompareBlock];
  if (reader.has_ulps() && (!all_finite || options.ulps)) reader.ulps(block, ulps);
  if (all_finite) {
    reader.table().count_errors(block.error, block.count, measured.max_error, worker.errors.data());
    if (reader.has_ulps()) count_ulps(reader, worker);
  } else {
    count_mixed_errors(reader, worker, ulps);
  }
  if (measured.outside != 0 || !all_finite) count_mismatches(reader, options, worker, begin, all_finite, ulps);
  if (measured.max_error > worker.worst_error ||
      (measured.max_error == worker.worst_error && worker.worst_error > 0 && begin < found.worst_index)) {
    worker.worst_error = measured.max_error;
    for (std::int64_t i = 0; i < block.count; ++i) {
      if (block.error[i] == measured.max_error && std::isfinite(block.a[i]) && std::isfinite(block.b[i])) {
        found.worst_index = begin + i;
        break;
      }
    }
  }
}

void merge(ElementDiff& total, double& worst_error, std::int64_t& relative_count, const Worker& worker) {
  const ElementDiff& part = worker.found;
  total.bit_equal &= part.bit_equal;
  total.mismatches += part.mismatches;
  total.finite += part.finite;
  total.overflows += part.overflows;
  total.max_abs = std::max(total.max_abs, part.max_abs);
  total.max_rel = std::max(total.max_rel, part.max_rel);
  total.max_ulps = std::max(total.max_ulps, part.max_ulps);
  keep_lower(total.first_index, part.first_index);
  keep_lower(total.first_nonfinite_index, part.first_nonfinite_index);
  if (part.worst_index >= 0 && (worker.worst_error > worst_error ||
                                (worker.worst_error == worst_error && part.worst_index < total.worst_index))) {
    worst_error = worker.worst_error;
    total.worst_index = part.worst_index;
  }
  total.nan_only_value += part.nan_only_value;
  total.nan_only_reference += part.nan_only_reference;
  total.nan_both += part.nan_both;
  total.inf_only_value += part.inf_only_value;
  total.inf_only_reference += part.inf_only_reference;
  total.inf_both += part.inf_both;
  total.zero_error += part.zero_error;
  relative_count += worker.relative_count;
  for (std::size_t i = 0; i < kErrorBins; ++i) total.error_histogram[i] += worker.errors[i];
  total.zero_error += worker.errors[kErrorBins];
  for (const auto& copy : worker.ulps) {
    for (std::size_t i = 0; i < copy.size(); ++i) total.ulp_histogram[i] += copy[i];
  }
}

}  // namespace

bool all_close(const TensorView& value, const TensorView& reference, const CompareOptions& options) {
  if (!same_shape(value, reference)) return false;
  const PairReader reader(value, reference);
  const int threads = thread_count(reader.bytes(), options.threads);
  std::vector<PairBlock> blocks(static_cast<std::size_t>(threads));
  std::atomic<bool> is_different{false};
  for_each_chunk(reader.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    PairBlock& block = blocks[static_cast<std::size_t>(worker)];
    for (; begin < end && !is_different.load(std::memory_order_relaxed); begin += kCompareBlock) {
      reader.read(begin, std::min(kCompareBlock, end - begin), block);
      if (!is_close(reader, block, options)) is_different = true;
    }
  });
  return !is_different;
}

ElementDistance distance(const TensorView& value, const TensorView& reference) {
  require_same_shape(value, reference);
  const PairReader reader(value, reference);
  const int threads = thread_count(reader.bytes(), 0);
  std::vector<PairBlock> blocks(static_cast<std::size_t>(threads));
  std::vector<DistanceSums> chunks(static_cast<std::size_t>((reader.count() + kChunk - 1) / kChunk));
  for_each_chunk(reader.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    PairBlock& block = blocks[static_cast<std::size_t>(worker)];
    DistanceSums& sums = chunks[static_cast<std::size_t>(begin / kChunk)];
    for (; begin < end; begin += kCompareBlock) {
      reader.read(begin, std::min(kCompareBlock, end - begin), block);
      reader.add_distance(block, sums);
    }
  });
  DistanceSums total;
  for (const DistanceSums& chunk : chunks) {
    total.add(chunk.pairs);
    total.other_nonfinite += chunk.other_nonfinite;
  }
  return {.count = reader.count(),
          .differing = total.pairs.differing,
          .other_nonfinite = total.other_nonfinite,
          .max_difference = total.pairs.max_d,
          .max_reference = total.pairs.max_a,
          .difference_l2 = std::sqrt(total.pairs.dd),
          .reference_l2 = std::sqrt(total.pairs.aa),
          .dot = total.pairs.da};
}

ElementDiff diff(const TensorView& value, const TensorView& reference, const CompareOptions& options) {
  require_same_shape(value, reference);
  const PairReader reader(value, reference);
  const int threads = thread_count(reader.bytes(), options.threads);
  std::vector<Worker> workers(static_cast<std::size_t>(threads), Worker(value.shape));
  std::vector<ChunkSums> chunks(static_cast<std::size_t>((reader.count() + kChunk - 1) / kChunk));
  std::atomic<std::int64_t> done{0};
  for_each_chunk(reader.count(), kChunk, threads, [&](int number, std::int64_t begin, std::int64_t end) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    ChunkSums& sums = chunks[static_cast<std::size_t>(begin / kChunk)];
    const std::int64_t size = end - begin;
    for (; begin < end; begin += kCompareBlock) {
      reader.read(begin, std::min(kCompareBlock, end - begin), worker.block);
      add_block(reader, options, worker, begin, sums);
    }
    const std::int64_t so_far = done.fetch_add(size, std::memory_order_relaxed) + size;
    if (number == 0 && options.progress) options.progress(so_far);
  });

  ElementDiff total;
  total.count = reader.count();
  total.bit_equal = reader.same_dtype();
  total.has_ulps = reader.has_ulps();
  double worst_error = 0;
  std::int64_t relative_count = 0;
  for (std::size_t i = 1; i < workers.size(); ++i) workers[0].axes.merge(workers[i].axes);
  for (const auto& worker : workers) merge(total, worst_error, relative_count, worker);
  total.axes = workers[0].axes.take();
  ChunkSums sums;
  for (const auto& chunk : chunks) {
    sums.error += chunk.error;
    sums.relative += chunk.relative;
    sums.aa += chunk.aa;
    sums.bb += chunk.bb;
    sums.ab += chunk.ab;
    sums.squared += chunk.squared;
  }
  if (total.worst_index < 0) total.worst_index = total.first_index;
  if (total.finite == 0 && total.overflows == 0) total.max_abs = kNaN;
  if (relative_count == 0 && total.max_rel == 0) total.max_rel = kNaN;
  total.mean_abs = total.finite == 0 ? kNaN : sums.error / static_cast<double>(total.finite);
  total.mean_rel = relative_count == 0 ? kNaN : sums.relative / static_cast<double>(relative_count);
  const double norms = std::sqrt(sums.aa) * std::sqrt(sums.bb);
  if (total.finite == 0) {
    total.cosine = total.relative_l2 = kNaN;
  } else if (norms == 0) {
    total.cosine = sums.aa == sums.bb ? 1.0 : 0.0;
    total.relative_l2 = sums.squared == 0 ? 0.0 : std::sqrt(sums.squared) / std::sqrt(sums.bb);
  } else {
    total.cosine = sums.squared == 0 ? 1.0 : std::clamp(sums.ab / norms, -1.0, 1.0);
    total.relative_l2 = std::sqrt(sums.squared) / std::sqrt(sums.bb);
  }
  if (total.overflows > 0) {  // sums without these pairs would say something else
    total.mean_abs = total.max_abs;
    total.mean_rel = total.cosine = total.relative_l2 = kNaN;
  }
  return total;
}

std::uint64_t ElementDiff::ulp_quantile(double share) const {
  const double wanted = share * static_cast<double>(finite);
  std::int64_t seen = 0;
  for (int bin = 0; bin < kUlpBins; ++bin) {
    seen += ulp_histogram[static_cast<std::size_t>(bin)];
    if (seen > 0 && static_cast<double>(seen) >= wanted) return std::min(ulp_bin_top(bin), max_ulps);
  }
  return max_ulps;
}

}  // namespace tenscope::kernels
