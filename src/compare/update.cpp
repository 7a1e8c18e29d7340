// Overview. Noise in a gradient is harmless, but an optimizer that divides by the gradient's size (Adam) makes of a
// gradient that is all noise an update of full size. So parameters alone cannot tell a wrong learning rate, momentum or
// decay from noise: some of their elements are far off either way. Here only those elements count whose gradients agree
// closely in both runs. What the optimizer makes of them must agree as well, up to the gradients' noise and the
// parameters' rounding. The median leaves out elements that are off because of what happened to them in earlier steps.
#include "compare/update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "compare/double_reader.hpp"
#include "compare/noise.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

constexpr std::size_t kMostRatios = 1 << 16;

struct Block {
  alignas(64) std::array<double, DoubleReader::kBlock> before, after, gradient;
};

class UpdateReader {
 public:
  explicit UpdateReader(const UpdateTensors& tensors)
      : before_(tensors.before), after_(tensors.after), gradient_(tensors.gradient) {}

  std::int64_t count() const { return after_.count(); }

  void read(std::int64_t begin, std::int64_t count, Block& block) const {
    before_.read(begin, count, block.before.data());
    after_.read(begin, count, block.after.data());
    gradient_.read(begin, count, block.gradient.data());
  }

 private:
  DoubleReader before_, after_, gradient_;
};

}  // namespace

DiffUpdate describe_update(const UpdateTensors& a, const UpdateTensors& b) {
  const DoubleReader before_a(a.before), after_a(a.after), before_b(b.before), after_b(b.after);
  DiffUpdate result;
  std::vector<double> ratios;
  Block x, y;
  for (std::int64_t begin = 0; begin < after_a.count(); begin += DoubleReader::kBlock) {
    const std::int64_t size = std::min(DoubleReader::kBlock, after_a.count() - begin);
    before_a.read(begin, size, x.before.data());
    after_a.read(begin, size, x.after.data());
    before_b.read(begin, size, y.before.data());
    after_b.read(begin, size, y.after.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
      const double update = x.after[i] - x.before[i], other = y.after[i] - y.before[i];
      result.moved_a += update != 0 ? 1 : 0;
      result.moved_b += other != 0 ? 1 : 0;
      if (update == 0 || other == 0 || !std::isfinite(update) || !std::isfinite(other)) continue;
      ++result.moved_both;
      result.flipped += (update < 0) != (other < 0) ? 1 : 0;
      if (ratios.size() < kMostRatios) ratios.push_back(other / update);
    }
  }
  result.ratio = median(ratios);
  return result;
}

UpdateError measure_update(const UpdateTensors& a, const UpdateTensors& b) {
  const UpdateReader reader_a(a), reader_b(b);
  const std::int64_t count = reader_a.count();
  const std::int64_t blocks = (count + DoubleReader::kBlock - 1) / DoubleReader::kBlock;
  const std::int64_t stride = std::max<std::int64_t>(1, blocks / thresholds::kUpdateBlocks);
  std::vector<double> updates, gradients, roundings;
  Block x, y;
  for (std::int64_t block = 0; block < blocks; block += stride) {
    const std::int64_t begin = block * DoubleReader::kBlock, size = std::min(DoubleReader::kBlock, count - begin);
    reader_a.read(begin, size, x);
    reader_b.read(begin, size, y);
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
      const double update = x.after[i] - x.before[i], other = y.after[i] - y.before[i];
      const double gradient = std::abs(y.gradient[i] - x.gradient[i]) / std::abs(x.gradient[i]);
      if (!(gradient <= thresholds::kUpdateGradient) || !std::isfinite(update) || !std::isfinite(other)) continue;
      if (update == 0 && other == 0) continue;
      const double size_of_update = std::max(std::abs(update), std::abs(other));
      updates.push_back(std::abs(other - update) / size_of_update);
      gradients.push_back(gradient);
      roundings.push_back(std::abs(x.after[i]) / size_of_update);
    }
  }
  UpdateError error;
  error.usable = static_cast<std::int64_t>(updates.size());
  error.typical = median(updates);
  error.explained = std::max({thresholds::kUpdateMistake, thresholds::kUpdateFromGradient * median(gradients),
                              thresholds::kUpdateFromRounding * unit_roundoff(a.after.dtype) * median(roundings)});
  return error;
}

}  // namespace tenscope::compare
