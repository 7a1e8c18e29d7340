// Overview. In C order the elements of one bin come in runs of inner * bin_width. Long runs are reduced one by one.
// Where runs are short, the order of bins repeats after size * inner elements: each place of such a period has sums of
// its own, which are joined at the end. The tensor is cut into a fixed number of parts with sums of their own, so that
// results do not depend on the threads.
#include "kernels/profile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/parallel.hpp"

namespace tenscope::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLongRun = 16;
constexpr std::int64_t kParts = 8;

struct Sums {
  std::vector<double> min, max, sum, squares, nonzero;
  std::vector<std::int64_t> bad;
  std::vector<std::int64_t> finite;  // of long runs; else it follows from the places

  void resize(std::int64_t places) {
    const auto count = static_cast<std::size_t>(places);
    min.assign(count, kInf);
    max.assign(count, -kInf);
    for (auto* numbers : {&sum, &squares, &nonzero}) numbers->assign(count, 0.0);
    bad.assign(count, 0);
    finite.assign(count, 0);
  }

  void add(std::size_t place, const ValueSums& found, std::int64_t count) {
    min[place] = std::min(min[place], found.min);
    max[place] = std::max(max[place], found.max);
    sum[place] += found.sum;
    squares[place] += found.squares;
    nonzero[place] += static_cast<double>(found.nonzero);
    finite[place] += count;
  }

  void add_mixed(std::size_t place, double x) {
    if (std::isfinite(x)) return add(place, {x, x, x, x * x, x != 0}, 1);
    ++bad[place];
    ++nonzero[place];
  }
};

}  // namespace

Profile make_profile(const Look& look, std::span<const std::int64_t> shape, std::size_t axis, int threads) {
  Profile profile;
  profile.size = shape[axis];
  profile.bin_width = std::max<std::int64_t>(1, (profile.size + kMaxProfileBins - 1) / kMaxProfileBins);
  const std::int64_t bins = (profile.size + profile.bin_width - 1) / profile.bin_width;
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::int64_t period = profile.size * inner, run = inner * profile.bin_width;
  const bool is_long = run >= kLongRun;
  // A short period is taken several times, for the sake of long loops.
  const std::int64_t places = is_long || period == 0 ? bins : period * std::max<std::int64_t>(1, 256 / period);

  const std::int64_t blocks = (look.count() + kCompareBlock - 1) / kCompareBlock;
  const std::int64_t chunk = std::max<std::int64_t>(1, (blocks + kParts - 1) / kParts) * kCompareBlock;
  std::vector<Sums> parts(static_cast<std::size_t>((look.count() + chunk - 1) / chunk));
  for (Sums& part : parts) part.resize(places);
  threads = thread_count(look.bytes(), threads);
  std::vector<LookBlock> scratch(static_cast<std::size_t>(threads));
  const LookTable& table = look_table();
  for_each_chunk(look.count(), chunk, threads, [&](int worker, std::int64_t begin, std::int64_t end) {
    Sums& sums = parts[static_cast<std::size_t>(begin / chunk)];
    LookBlock& block = scratch[static_cast<std::size_t>(worker)];
    for (; begin < end; begin += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - begin);
      look.read(begin, count, block);
      const double* values = block.values;
      const bool all_finite = table.all_finite(values, count);
      for (std::int64_t i = 0; i < count;) {
        std::int64_t place = 0, length = 0;
        if (is_long) {
          const std::int64_t within = (begin + i) % period;
          place = within / run;
          length = std::min({count - i, run - within % run, period - within});
        } else {
          place = (begin + i) % places;
          length = std::min(count - i, places - place);
        }
        const auto at = static_cast<std::size_t>(place);
        if (!all_finite) {
          for (std::int64_t k = 0; k < length; ++k)
            sums.add_mixed(at + static_cast<std::size_t>(is_long ? 0 : k), values[i + k]);
        } else if (is_long) {
          sums.add(at, table.reduce(values + i, length), length);
        } else {
          table.accumulate(values + i, length, &sums.min[at], &sums.max[at], &sums.sum[at]);
          table.accumulate_squares(values + i, length, &sums.squares[at], &sums.nonzero[at]);
        }
        i += length;
      }
    }
  });

  Sums total;
  total.resize(bins);
  for (std::size_t number = 0; number < parts.size(); ++number) {
    const Sums& part = parts[number];
    const std::int64_t begin = static_cast<std::int64_t>(number) * chunk, end = std::min(begin + chunk, look.count());
    for (std::int64_t place = 0; place < places; ++place) {
      const auto at = static_cast<std::size_t>(place);
      const auto bin = is_long ? at : static_cast<std::size_t>(place % period / run);
      // How many of the first x elements have this place of their period.
      const auto visits = [&](std::int64_t x) { return x / places + (place < x % places ? 1 : 0); };
      const std::int64_t finite = is_long ? part.finite[at] : visits(end) - visits(begin) - part.bad[at];
      total.add(bin, {part.min[at], part.max[at], part.sum[at], part.squares[at], 0}, finite);
      total.nonzero[bin] += part.nonzero[at];
      total.bad[bin] += part.bad[at];
    }
  }
  for (std::size_t bin = 0; bin < static_cast<std::size_t>(bins); ++bin) {
    const bool is_empty = total.finite[bin] == 0;
    const double none = std::numeric_limits<double>::quiet_NaN();
    profile.min.push_back(is_empty ? none : total.min[bin]);
    profile.max.push_back(is_empty ? none : total.max[bin]);
    profile.mean.push_back(is_empty ? none : total.sum[bin] / static_cast<double>(total.finite[bin]));
    profile.l2.push_back(is_empty ? none : std::sqrt(total.squares[bin]));
    profile.bad.push_back(total.bad[bin]);
    profile.nonzero.push_back(static_cast<std::int64_t>(total.nonzero[bin]));
  }
  return profile;
}

}  // namespace tenscope::kernels
