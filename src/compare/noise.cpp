// Overview. Noise and mistakes are told apart by three questions, asked of a place whose inputs carry no more than
// noise.
//
// How large? Two correct implementations of one module differ by some roundings.
//
// How systematic? Noise has random signs. A changed epsilon or factor moves all elements in proportion to their values:
// its difference correlates with the tensor itself and is a mistake, although it may be smaller than the tolerance.
//
// How much of it was there before? What arrives as noise may leave enlarged: an amplifier, not a source.
//
// thresholds.hpp has the numbers and where they come from.
#include "compare/noise.hpp"

#include <algorithm>
#include <cmath>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

double amplification(Stage stage) {
  switch (stage) {
    case Stage::Forward:
      return thresholds::kForwardAmplification;
    case Stage::Backward:
      return thresholds::kBackwardAmplification;
    default:
      return thresholds::kOptimizerAmplification;
  }
}

bool is_wide(DType dtype) { return dtype == DType::F64 || dtype == DType::F32 || kind_of(dtype) == DTypeKind::Complex; }

bool is_systematic(const PairError& error, DType dtype) {
  using namespace thresholds;
  const double correlation = std::abs(error.correlation), units = error.rel_l2 / unit_roundoff(dtype);
  if (error.count < kEnoughElements || correlation <= kCorrelated) return false;
  if (!is_wide(dtype)) return units > kCorrelatedUnitsHalf;
  return units > (correlation > kProportional ? kProportionalUnits : kCorrelatedUnits);
}

}  // namespace

double unit_roundoff(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64:
    case DType::C128:
      return 0x1p-53;
    case DType::F32:
    case DType::C64:
      return 0x1p-24;
    case DType::F16:
      return 0x1p-11;
    case DType::BF16:
      return 0x1p-9;
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return 0x1p-4;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 0x1p-3;
    default:
      return 0;
  }
}

double default_tolerance(DType dtype) noexcept {
  return unit_roundoff(dtype) * (is_wide(dtype) ? thresholds::kWideUnits : thresholds::kHalfUnits);
}

bool NoiseJudge::is_noise(const PairError& error, DType dtype, const Trust& inputs, Stage stage, double floor) const {
  if (!error.is_comparable || error.has_other_finite) return false;
  // An optimizer that divides by a gradient's size makes as much of a gradient that is all noise as of any other: some
  // elements may be far off, the tensor as a whole is not.
  const bool is_by_whole = stage == Stage::Optimizer && inputs.noise > 0;
  const double difference = is_by_whole ? std::min(error.relative(floor), error.rel_l2) : error.relative(floor);
  const double inherited = inputs.noise * amplification(stage);
  if (tolerance_) return difference <= std::max(*tolerance_, inherited);
  const DTypeKind kind = kind_of(dtype);
  if (kind != DTypeKind::Float && kind != DTypeKind::Complex)  // a decision near its threshold may fall the other way
    return error.differing == 0 ||
           (inputs.noise > 0 &&
            static_cast<double>(error.differing) <= thresholds::kFlippedPart * static_cast<double>(error.count));
  if (inputs.noise == 0 && floor <= error.scale) {
    if (is_systematic(error, dtype)) return false;
    if (!is_wide(dtype) && error.rel_l2 > thresholds::kHalfUnitsL2 * unit_roundoff(dtype)) return false;
  }
  return difference <= std::max(default_tolerance(dtype), inherited);
}

}  // namespace tenscope::compare
