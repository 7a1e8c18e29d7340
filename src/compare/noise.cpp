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
// Where it was measured how much noise a place has (noise_profile.hpp), these questions are answered by that: a
// difference is noise where it is some times as large as what was measured, and not much more times than the
// differences of its inputs are. A layer that amplifies noise does so in the measurement, too.
//
// thresholds.hpp has the numbers and where they come from.
#include "compare/noise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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
      return 0x1p-8;
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

bool NoiseJudge::is_by_measure(const JudgedPlace& place, const Trust& inputs) const {
  return place.measured != nullptr && !tolerance_ && assumed_noise_ == 0 && std::isfinite(inputs.times_measured);
}

double NoiseJudge::times_measured(const PairError& error, const JudgedPlace& place, const Trust& inputs) const {
  using namespace thresholds;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!is_by_measure(place, inputs)) return kInfinity;
  const PlaceNoise& noise = *place.measured;
  if (std::isinf(noise.rel_max)) return 0;  // a NaN comes and goes with rounding: whatever is there is noise
  if (!error.is_comparable || error.has_other_finite) return kInfinity;
  const DTypeKind kind = kind_of(place.dtype);
  if (kind != DTypeKind::Float && kind != DTypeKind::Complex) {
    const double part = error.count > 0 ? static_cast<double>(error.differing) / static_cast<double>(error.count) : 0;
    return part == 0 ? 0 : noise.flipped == 0 ? kInfinity : part / noise.flipped;
  }
  const double roundoff = unit_roundoff(place.dtype);
  const MeasuredUnits& least = is_wide(place.dtype) ? kMeasuredWide : kMeasuredHalf;
  double times = error.rel_l2 / std::max(noise.rel_l2, least.l2 * roundoff);
  // See is_assumed_noise: single elements of what an optimizer makes of noise may be far off.
  if (place.stage != Stage::Optimizer || inputs.noise == 0)
    times = std::max(times, error.relative(place.floor) / std::max(noise.rel_max, least.max * roundoff));
  if (!error.is_estimate && error.count >= kEnoughElements) {
    const double by_chance = kPartAlongValues * noise.rel_l2;
    const double allowed = std::max({noise.systematic, by_chance, least.systematic * roundoff});
    times = std::max(times, error.rel_l2 * std::abs(error.correlation) / allowed);
  }
  return times;
}

bool NoiseJudge::is_noise(const PairError& error, const JudgedPlace& place, const Trust& inputs) const {
  if (!is_by_measure(place, inputs)) return is_assumed_noise(error, place, inputs);
  const double times = times_measured(error, place, inputs);
  if (times <= thresholds::kTimesMeasured * std::max(1.0, inputs.times_measured)) return true;
  // A few numbers move by little once and by much another time.
  return error.count < thresholds::kEnoughElements && is_assumed_noise(error, place, inputs);
}

bool NoiseJudge::is_assumed_noise(const PairError& error, const JudgedPlace& place, const Trust& inputs) const {
  const auto& [dtype, stage, floor, ignored] = place;
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
    // One number alone may be off by two: neighbours are that far apart just above a power of two.
    const bool is_many = error.count >= thresholds::kEnoughElements;
    if (!is_wide(dtype) && is_many && error.rel_l2 > thresholds::kHalfUnitsL2 * unit_roundoff(dtype)) return false;
  }
  return difference <= std::max(default_tolerance(dtype), inherited);
}

}  // namespace tenscope::compare
