// Overview. Of the magnitudes only the largest thousandth decides the quantile. A sample of the elements gives a limit
// that about one in two hundred exceeds; only these are kept (or counted by their upper bits where there may be too
// many), which costs one comparison for all others. Where the sample has misled and too few lie above the limit, all
// are looked at once more without it.
#include "kernels/value_scale.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "kernels/parallel.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::int64_t kChunk = 128 * kCompareBlock;
constexpr std::int64_t kSampleBlocks = 128;
constexpr int kCountedShift = 45;  // leaves the exponent and seven bits of the mantissa
constexpr std::size_t kCountedBins = std::size_t{0x7FF} << 7;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Spreads the bits of a number: a block of each stretch is taken that has nothing to do with the rows' length.
std::uint64_t scatter(std::uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

double sampled_limit(const Look& look, const LookTable& table) {
  const std::int64_t blocks = look.count() / kCompareBlock;
  if (blocks <= kSampleBlocks) return -1;
  LookBlock block;
  std::vector<double> sample;
  sample.reserve(static_cast<std::size_t>(kSampleBlocks * kCompareBlock));
  for (std::int64_t i = 0; i < kSampleBlocks; ++i) {
    const std::int64_t begin = blocks / kSampleBlocks * i + blocks % kSampleBlocks * i / kSampleBlocks;
    const auto stretch = static_cast<std::uint64_t>(blocks / kSampleBlocks);
    const auto chosen = begin + static_cast<std::int64_t>(scatter(static_cast<std::uint64_t>(i)) % stretch);
    look.read(chosen * kCompareBlock, kCompareBlock, block);
    const bool all_finite = table.all_finite(block.values, kCompareBlock);
    for (const double x : block.values) {
      if (all_finite || std::isfinite(x)) sample.push_back(std::abs(x));
    }
  }
  if (sample.empty()) return -1;
  const auto place = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() * 995 / 1000);
  std::nth_element(sample.begin(), place, sample.end());
  return *place;
}

void add_all(const Look& look, int threads, ScaleCollector& collector) {
  const LookTable& table = look_table();
  std::vector<LookBlock> blocks(static_cast<std::size_t>(threads));
  for_each_chunk(look.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    LookBlock& block = blocks[static_cast<std::size_t>(worker)];
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, block);
      collector.add(worker, block.values, count, table.all_finite(block.values, count));
    }
  });
}

}  // namespace

ScaleCollector::ScaleCollector(const Look& look, int threads)
    : ScaleCollector(look, threads, sampled_limit(look, look_table())) {}

ScaleCollector::ScaleCollector(const Look& look, int threads, double limit)
    : look_(look),
      threads_(threads),
      table_(look_table()),
      is_exact_(look.count() <= kExactQuantile),
      limit_(limit),
      workers_(static_cast<std::size_t>(threads)) {
  for (Worker& worker : workers_) {
    worker.scale.min = kInf;
    worker.scale.max = -kInf;
    if (is_exact_)
      worker.largest.reserve(static_cast<std::size_t>(look.count()));
    else
      worker.counts.resize(kCountedBins);
  }
}

void ScaleCollector::add(int number, const double* values, std::int64_t count, bool all_finite) noexcept {
  Worker& worker = workers_[static_cast<std::size_t>(number)];
  double finite[kCompareBlock];
  if (!all_finite) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i]))
        finite[kept++] = values[i];
      else
        ++(std::isnan(values[i]) ? worker.scale.nan : values[i] > 0 ? worker.scale.pos_inf : worker.scale.neg_inf);
    }
    values = finite;
    count = kept;
  }
  double above[kCompareBlock];
  const Extremes found = table_.extremes(values, count, limit_, above);
  worker.scale.min = std::min(worker.scale.min, found.min);
  worker.scale.max = std::max(worker.scale.max, found.max);
  worker.scale.zero += count - found.nonzero;
  worker.finite += count;
  worker.above += found.above;
  worker.at_limit += found.at_limit;
  if (is_exact_) {
    worker.largest.insert(worker.largest.end(), above, above + found.above);
  } else {
    for (std::int64_t i = 0; i < found.above; ++i)
      ++worker.counts[static_cast<std::size_t>(std::bit_cast<std::uint64_t>(above[i]) >> kCountedShift)];
  }
}

// The magnitude that comes behind `rank` others, from the largest down.
double ScaleCollector::quantile(std::int64_t rank, double largest) const {
  if (is_exact_) {
    std::vector<double> all;
    for (const Worker& worker : workers_) all.insert(all.end(), worker.largest.begin(), worker.largest.end());
    const auto place = all.begin() + rank;
    std::nth_element(all.begin(), place, all.end(), std::greater<>());
    return *place;
  }
  std::int64_t passed = 0;
  for (std::size_t bin = kCountedBins; bin-- > 0;) {
    std::int64_t here = 0;
    for (const Worker& worker : workers_) here += worker.counts[bin];
    if (passed + here > rank) {
      const auto edge = [](std::size_t i) {
        return std::bit_cast<double>(static_cast<std::uint64_t>(i) << kCountedShift);
      };
      const double low = edge(bin), high = bin + 1 < kCountedBins ? edge(bin + 1) : largest;
      const double share = (static_cast<double>(rank - passed) + 0.5) / static_cast<double>(here);
      return std::min(largest, high + (low - high) * share);
    }
    passed += here;
  }
  return largest;
}

ValueScale ScaleCollector::finish() {
  ValueScale total = workers_[0].scale;
  std::int64_t finite = workers_[0].finite, above = workers_[0].above, at_limit = workers_[0].at_limit;
  for (std::size_t i = 1; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    total.min = std::min(total.min, worker.scale.min);
    total.max = std::max(total.max, worker.scale.max);
    total.nan += worker.scale.nan;
    total.pos_inf += worker.scale.pos_inf;
    total.neg_inf += worker.scale.neg_inf;
    total.zero += worker.scale.zero;
    finite += worker.finite;
    above += worker.above;
    at_limit += worker.at_limit;
  }
  if (finite == 0) {
    total.min = total.max = std::numeric_limits<double>::quiet_NaN();
    return total;
  }
  total.abs = std::max(std::abs(total.min), std::abs(total.max));
  const std::int64_t rank = finite / 1000;  // n less 99.9 % of n, rounded up
  if (above > rank) {
    total.p999 = quantile(rank, total.abs);
  } else if (above + at_limit > rank) {
    total.p999 = limit_;
  } else {
    ScaleCollector all(look_, threads_, -1);
    add_all(look_, threads_, all);
    total.p999 = all.quantile(rank, total.abs);
  }
  return total;
}

ValueScale measure_scale(const Look& look, int threads) {
  threads = thread_count(look.bytes(), threads);
  ScaleCollector collector(look, threads);
  add_all(look, threads, collector);
  return collector.finish();
}

}  // namespace tenscope::kernels
