#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "compare/measure.hpp"
#include "compare/noise_profile.hpp"
#include "tenscope/dtype.hpp"

namespace tenscope::compare {

// What is known of the tensors that a place computes from.
struct Trust {
  double noise = 0;               // the largest relative difference among them; all of it rounding noise
  double times_measured = 0;      // the same in units of the measured noise of its place; infinite: not measured
  bool is_tainted = false;        // one of them differs beyond that
  bool is_suspect = false;        // an input differs, and whether anything comes of it is not known yet
  bool is_unknown = false;        // one of them could not be judged
  std::int64_t other_dtype = -1;  // the first observation of equal values in another dtype; -1: none

  void add(const Trust& other) {
    noise = std::max(noise, other.noise);
    times_measured = std::max(times_measured, other.times_measured);
    is_tainted |= other.is_tainted;
    is_suspect |= other.is_suspect;
    is_unknown |= other.is_unknown;
    if (other_dtype < 0) other_dtype = other.other_dtype;
  }
};

// How much of its inputs' noise a place may hand on enlarged. Gradients cancel more than activations, and an optimizer
// that divides by the gradients' size more than those.
enum class Stage { Forward, Backward, Optimizer };

// Half the distance between neighbouring numbers near 1.
double unit_roundoff(DType dtype) noexcept;

// The largest relative difference that two correct implementations of one module have.
double default_tolerance(DType dtype) noexcept;

// What a difference is judged by.
struct JudgedPlace {
  DType dtype = DType::F32;
  Stage stage = Stage::Forward;
  double floor = 0;                      // the magnitude below which the tensor's own size says nothing
  const PlaceNoise* measured = nullptr;  // how much noise the place has, where that was measured
};

// Rounding noise or a mistake? Judges what a place adds to the differences of its inputs.
class NoiseJudge {
 public:
  // `assumed_noise`: what every tensor may carry as noise of its inputs, as where one run computes in a coarser dtype.
  explicit NoiseJudge(std::optional<double> tolerance, double assumed_noise = 0)
      : tolerance_(tolerance), assumed_noise_(assumed_noise) {}
  double assumed_noise() const { return assumed_noise_; }
  bool has_own_tolerance() const { return tolerance_.has_value(); }
  bool is_noise(const PairError& error, const JudgedPlace& place, const Trust& inputs) const;
  // Whether that is judged by what was measured.
  bool is_by_measure(const JudgedPlace& place, const Trust& inputs) const;
  // The difference in units of the measured noise; infinite where none was measured.
  double times_measured(const PairError& error, const JudgedPlace& place, const Trust& inputs) const;

 private:
  bool is_assumed_noise(const PairError& error, const JudgedPlace& place, const Trust& inputs) const;

  std::optional<double> tolerance_;
  double assumed_noise_;
};

}  // namespace tenscope::compare
