#include "kernels/find.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::int64_t kChunk = 128 * kCompareBlock;

// matches[i] = 1 where element i of the block is wanted. False where none is; matches are then not filled.
bool mark(const Wanted& wanted, const LookTable& table, const LookBlock& block, std::int64_t count,
          std::uint8_t* matches) {
  const double* x = block.values;
  const auto fill = [&](auto&& is_wanted) {
    std::uint8_t any = 0;
    for (std::int64_t i = 0; i < count; ++i) any = static_cast<std::uint8_t>(any | (matches[i] = is_wanted(i)));
    return any != 0;
  };
  switch (wanted.kind) {
    case Wanted::Kind::Nan:
      return !table.all_finite(x, count) && fill([&](std::int64_t i) { return std::isnan(x[i]); });
    case Wanted::Kind::Inf:
      return !table.all_finite(x, count) && fill([&](std::int64_t i) { return std::isinf(x[i]); });
    case Wanted::Kind::Bad:
      return !table.all_finite(x, count) && fill([&](std::int64_t i) { return !std::isfinite(x[i]); });
    case Wanted::Kind::Nonzero:
      return fill([&](std::int64_t i) { return x[i] != 0; });
    case Wanted::Kind::Magnitude:
      return fill([&](std::int64_t i) { return std::abs(x[i]) == wanted.magnitude; });
    case Wanted::Kind::Mismatch:
      return fill([&](std::int64_t i) {
        const double bound = wanted.tolerance.absolute + wanted.tolerance.relative * std::abs(block.a[i]);
        return x[i] != 0 && !(std::isfinite(x[i]) && std::abs(x[i]) <= bound);
      });
  }
  return false;
}

std::int64_t first_in(const Look& look, const Wanted& wanted, std::int64_t begin, std::int64_t end, LookBlock& block) {
  std::uint8_t matches[kCompareBlock];
  for (; begin < end; begin += kCompareBlock) {
    const std::int64_t count = std::min(kCompareBlock, end - begin);
    look.read(begin, count, block);
    if (mark(wanted, look_table(), block, count, matches))
      return begin + (std::find(matches, matches + count, 1) - matches);
  }
  return -1;
}

std::int64_t last_in(const Look& look, const Wanted& wanted, std::int64_t begin, std::int64_t end, LookBlock& block) {
  std::uint8_t matches[kCompareBlock];
  for (; end > begin; end -= kCompareBlock) {
    const std::int64_t count = std::min(kCompareBlock, end - begin);
    look.read(end - count, count, block);
    if (!mark(wanted, look_table(), block, count, matches)) continue;
    std::int64_t last = count - 1;
    while (matches[last] == 0) --last;
    return end - count + last;
  }
  return -1;
}

}  // namespace

std::int64_t find_next(const Look& look, const Wanted& wanted, std::optional<std::int64_t> from, bool is_backward) {
  LookBlock block;
  const std::int64_t count = look.count();
  if (is_backward) {
    const std::int64_t end = from.value_or(count);
    const std::int64_t found = last_in(look, wanted, 0, end, block);
    return found >= 0 ? found : last_in(look, wanted, end, count, block);
  }
  const std::int64_t begin = from ? *from + 1 : 0;
  const std::int64_t found = first_in(look, wanted, begin, count, block);
  return found >= 0 ? found : first_in(look, wanted, 0, begin, block);
}

std::int64_t count_wanted(const Look& look, const Wanted& wanted, int threads) {
  threads = thread_count(look.bytes(), threads);
  std::vector<LookBlock> blocks(static_cast<std::size_t>(threads));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(threads));
  for_each_chunk(look.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    LookBlock& block = blocks[static_cast<std::size_t>(worker)];
    std::uint8_t matches[kCompareBlock];
    std::int64_t found = 0;
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, block);
      if (mark(wanted, look_table(), block, count, matches)) found += std::count(matches, matches + count, 1);
    }
    counts[static_cast<std::size_t>(worker)] += found;
  });
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

double largest_magnitude(const Look& look, int threads) {
  threads = thread_count(look.bytes(), threads);
  const LookTable& table = look_table();
  std::vector<LookBlock> blocks(static_cast<std::size_t>(threads));
  std::vector<double> largest(static_cast<std::size_t>(threads), -1);
  for_each_chunk(look.count(), kChunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    LookBlock& block = blocks[static_cast<std::size_t>(worker)];
    double most = -1;
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, block);
      if (table.all_finite(block.values, count)) {
        const ValueSums sums = table.reduce(block.values, count);
        most = std::max({most, std::abs(sums.min), std::abs(sums.max)});
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          if (std::isfinite(block.values[i])) most = std::max(most, std::abs(block.values[i]));
        }
      }
    }
    largest[static_cast<std::size_t>(worker)] = std::max(largest[static_cast<std::size_t>(worker)], most);
  });
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace tenscope::kernels
