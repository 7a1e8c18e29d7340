#include "kernels/value_histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/parallel.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::int64_t kChunk = 128 * kCompareBlock;
constexpr std::size_t kKeys = 1 << 16;
constexpr std::uint16_t kSign = 0x8000;
constexpr int kLinearBins = 100;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

// The magnitude at which a key (without its sign) begins. Behind the last one it is the largest number instead of
// infinity.
double magnitude_of(int key) {
  constexpr int kEnd = 0x7FF0;
  return key >= kEnd ? kLargest : std::bit_cast<double>(static_cast<std::uint64_t>(key) << 48);
}

struct CensusWorker {
  LookBlock block;
  std::vector<std::int64_t> counts;
  double min = kInf, max = -kInf;
  std::int64_t subnormal = 0;
};

// Bins on both sides of zero, `step` keys to a bin.
struct LogScale {
  int bottom = 1;  // keys below are nearest to zero: one bin
  int step = 1;
  int negative_top = 0;  // the key behind the largest; 0 where there is none of this sign
  int positive_top = 0;

  int bins(int top) const { return top == 0 ? 0 : 1 + (std::max(top - bottom, 0) + step - 1) / step; }
  int bins() const { return bins(negative_top) + bins(positive_top); }

  // From zero on.
  std::vector<double> edges(int top) const {
    std::vector<double> result;
    if (top == 0) return result;
    result.push_back(0);
    for (int i = 0; i + 1 < bins(top); ++i) result.push_back(magnitude_of(bottom + i * step));
    result.push_back(magnitude_of(std::min(top, bottom) == top ? top : bottom + (bins(top) - 1) * step));
    return result;
  }
};

std::vector<double> linear_edges(double min, double max, bool is_integral) {
  std::vector<double> edges;
  if (is_integral) {
    const auto count = static_cast<int>(max - min) + 2;
    for (int i = 0; i < count; ++i) edges.push_back(min + i - 0.5);
    return edges;
  }
  if (min == max) {
    const double margin = std::max(std::abs(min) / 2, std::numeric_limits<double>::denorm_min());
    return {std::max(min - margin, -kLargest), std::min(max + margin, kLargest)};
  }
  for (int i = 0; i <= kLinearBins; ++i) {
    const double share = static_cast<double>(i) / kLinearBins;
    edges.push_back(i == kLinearBins ? max : min * (1 - share) + max * share);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::size_t linear_bin(const std::vector<double>& edges, double inverse_width, double x) {
  const std::size_t last = edges.size() - 2;
  const double guess = (x - edges[0]) * inverse_width;
  auto bin = guess > 0 ? std::min(static_cast<std::size_t>(std::min(guess, 1e6)), last) : 0;
  while (bin > 0 && x < edges[bin]) --bin;
  while (bin < last && x >= edges[bin + 1]) ++bin;
  return bin;
}

std::vector<std::int64_t> count_linear(const Look& look, const std::vector<double>& edges, int threads) {
  threads = thread_count(look.bytes(), threads);
  const std::size_t bins = edges.size() - 1;
  std::vector<LookBlock> blocks(static_cast<std::size_t>(threads));
  std::vector<std::vector<std::int64_t>> counts(static_cast<std::size_t>(threads), std::vector<std::int64_t>(bins));
  const double inverse_width = static_cast<double>(bins) / (edges.back() - edges.front());
  for_each_chunk(look.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    LookBlock& block = blocks[static_cast<std::size_t>(worker)];
    std::vector<std::int64_t>& found = counts[static_cast<std::size_t>(worker)];
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, block);
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = block.values[i];
        if (x != 0 && std::isfinite(x)) ++found[linear_bin(edges, inverse_width, x)];
      }
    }
  });
  for (std::size_t i = 1; i < counts.size(); ++i) {
    for (std::size_t bin = 0; bin < bins; ++bin) counts[0][bin] += counts[i][bin];
  }
  return std::move(counts[0]);
}

}  // namespace

ValueCensus take_census(const Look& look, int threads) {
  threads = thread_count(look.bytes(), threads);
  const LookTable& table = look_table();
  std::vector<CensusWorker> workers(static_cast<std::size_t>(threads));
  for (CensusWorker& worker : workers) worker.counts.resize(kKeys);
  const double min_normal = look.min_normal();
  for_each_chunk(look.count(), kChunk, threads, [&](int number, std::int64_t begin, std::int64_t end) {
    CensusWorker& worker = workers[static_cast<std::size_t>(number)];
    std::uint16_t keys[kCompareBlock];
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, worker.block);
      const double* values = worker.block.values;
      table.keys(values, count, keys);
      for (std::int64_t i = 0; i < count; ++i) ++worker.counts[keys[i]];
      if (min_normal > 0) worker.subnormal += table.count_below(values, count, min_normal);
      table.nonzero_range(values, count, worker.min, worker.max);
    }
  });
  ValueCensus census;
  census.is_integral = look.is_integral();
  census.min = kInf;
  census.max = -kInf;
  for (const CensusWorker& worker : workers) {
    census.min = std::min(census.min, worker.min);
    census.max = std::max(census.max, worker.max);
    census.subnormal += worker.subnormal;
  }
  for (std::size_t key = 0; key < kKeys; ++key) {
    std::int64_t count = 0;
    for (const CensusWorker& worker : workers) count += worker.counts[key];
    if (count == 0) continue;
    switch (key) {
      case kZeroKey:
        census.zero = count;
        break;
      case kNanKey:
        census.nan = count;
        break;
      case kPositiveInfKey:
        census.pos_inf = count;
        break;
      case kNegativeInfKey:
        census.neg_inf = count;
        break;
      default:
        census.keys.emplace_back(static_cast<std::uint16_t>(key), count);
    }
  }
  return census;
}

HistogramEdges choose_edges(std::span<const ValueCensus> censuses) {
  double min = kInf, max = -kInf;
  bool is_integral = true;
  std::map<int, std::int64_t> magnitudes;
  std::int64_t total = 0;
  LogScale scale;
  for (const ValueCensus& census : censuses) {
    if (census.keys.empty()) continue;
    min = std::min(min, census.min);
    max = std::max(max, census.max);
    is_integral &= census.is_integral;
    for (const auto& [key, count] : census.keys) {
      const int magnitude = key & ~kSign;
      magnitudes[magnitude] += count;
      total += count;
      int& top = (key & kSign) != 0 ? scale.negative_top : scale.positive_top;
      top = std::max(top, magnitude + 1);
    }
  }
  if (total == 0) return {};
  const bool is_small = std::max(std::abs(min), std::abs(max)) < 0x1p50;
  if (is_integral && is_small && max - min < kLinearBins) return {linear_edges(min, max, true), true};
  const bool is_one_sign = (min > 0) == (max > 0);
  if (is_one_sign) {
    const double least = std::min(std::abs(min), std::abs(max)), most = std::max(std::abs(min), std::abs(max));
    if (most <= least * kLinearFactor) return {linear_edges(min, max, false), true};
  }
  std::int64_t below = 0;
  for (const auto& [magnitude, count] : magnitudes) {
    if ((below + count) * 200 > total) {
      scale.bottom = std::max(magnitude, 1);
      break;
    }
    below += count;
  }
  // The finest bins that are few enough; their edges lie on whole octaves where an octave is one bin or less.
  while (scale.bins() > kMaxHistogramBins) {
    scale.step *= 2;
    scale.bottom = std::max(scale.bottom / scale.step * scale.step, 1);
  }
  HistogramEdges result{scale.edges(scale.positive_top)};
  std::vector<double> negative = scale.edges(scale.negative_top);
  if (!negative.empty() && !result.edges.empty()) negative.erase(negative.begin());  // the other side's zero
  for (const double edge : negative) result.edges.insert(result.edges.begin(), edge == 0 ? 0 : -edge);
  return result;
}

std::vector<std::int64_t> count_bins(const Look& look, const ValueCensus& census, const HistogramEdges& edges,
                                     int threads) {
  if (edges.edges.empty()) return {};
  if (edges.is_linear) return count_linear(look, edges.edges, threads);
  // Edges are where keys begin: each key lies in one bin.
  std::vector<std::int64_t> counts(edges.edges.size() - 1);
  for (const auto& [key, count] : census.keys) {
    const double magnitude = magnitude_of(key & ~kSign);
    std::ptrdiff_t bin = 0;
    if ((key & kSign) == 0)
      bin = std::upper_bound(edges.edges.begin(), edges.edges.end(), magnitude) - edges.edges.begin() - 1;
    else
      bin = std::lower_bound(edges.edges.begin(), edges.edges.end(), -magnitude) - edges.edges.begin() - 1;
    counts[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(bin, 0, std::ssize(counts) - 1))] += count;
  }
  return counts;
}

}  // namespace tenscope::kernels
