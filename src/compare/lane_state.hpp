#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compare/align.hpp"
#include "compare/call_key.hpp"
#include "compare/frames.hpp"
#include "compare/module_state.hpp"
#include "compare/noise.hpp"
#include "compare/observations.hpp"
#include "compare/origin.hpp"
#include "compare/tensor_source.hpp"
#include "compare/update.hpp"

namespace tenscope::compare {

// A parameter at one step of an optimizer, by its events.
struct UpdateItems {
  const Item *before, *after, *gradient;  // the gradient may be missing: nullptr
};

// Nothing where the tensors' bytes were not kept.
using MeasureUpdate = std::function<std::optional<UpdateError>(const UpdateItems& a, const UpdateItems& b)>;

// How much noise the place of two values of a rank has, where that was measured.
using MeasuredNoise = std::function<std::optional<PlaceNoise>(int rank, const Item& a, const Item& b)>;

using IsSameMask = std::function<bool(const Item& a, const Item& b)>;
using MeasureDistribution = std::function<DiffDistribution(const Item& a, const Item& b)>;

struct Measures {
  Measure pair;
  MeasureUpdate update;              // may be empty
  MeasureDistribution distribution;  // may be empty
  IsSameMask is_same_mask;           // may be empty
  Measure estimate;                  // without their bytes, where they were not measured before; may be empty
  MeasuredNoise noise;               // may be empty
  const TensorSource *source_a = nullptr, *source_b = nullptr;  // the tensors themselves, where there are any
  // Called with the lanes of both runs once all of them is judged; may be empty.
  std::function<void(const Lane& a, const Lane& b)> release;
};

enum class Verdict : std::uint8_t { Equal, SameValues, Noise, Unknown, Consequence, Origin };

struct Judged {
  Verdict verdict = Verdict::Equal;
  Trust trust;          // of what depends on the value
  double relative = 0;  // the largest difference as a part of the largest value, where it was measured
  bool is_origin() const { return verdict == Verdict::Origin; }
  bool is_beyond_noise() const { return verdict == Verdict::Consequence || verdict == Verdict::Origin; }
};

// What the walk through one lane of both runs knows so far, and how one observation is judged. The judges of the
// forward, the backward and the optimizer (forward_judge.hpp, ...) share one.
class LaneState {
 public:
  LaneState(const Alignment& alignment, std::size_t lane, const Interner& interner, const Measures& measures,
            const NoiseJudge& noise, Findings& findings);

  // Judges an observation by what it depends on, and counts it.
  Judged judge(const Observation& o, const Trust& inputs, Stage stage, double floor = 0);

  // How many of the tensors judged so far differ because of an origin, and: that many of them are without effect.
  std::size_t consequences() const { return findings_.consequences; }
  void set_idle(std::size_t count);
  // An input that differs, and is known to be without effect; the first of its kind is noted.
  void note_idle(const Observation& o, bool is_first);
  // Masks of different forms that say the same.
  bool is_same_mask(const Observation& o) const;
  // Another use of a difference that is an origin already.
  void count_repeated() { ++findings_.consequences; }

  // Starts an origin at the current position. `inputs` is what the place depends on.
  Origin& blame(const Observation& o, std::string path, DiffReason reason, const Trust& inputs);
  Origin make_origin(const Observation& o, std::string path, DiffReason reason, const Trust& inputs) const;

  // Buffers and parameters are recorded where they have changed: on a side that has no event, the last value holds.
  Observation with_last_value(Observation o) const;

  const Item& item_of(const Observation& o) const {
    return o.a != kNothing ? a[static_cast<std::size_t>(o.a)] : b[static_cast<std::size_t>(o.b)];
  }
  int node_of(const Observation& o) const {
    return o.a != kNothing ? alignment.node_of_a(item_of(o)) : alignment.node_of_b(item_of(o));
  }
  CallKey call_of(const Observation& o) const;
  ParameterKey parameter_of(const Observation& o) const {
    return o.a != kNothing ? alignment.parameter_of_a(item_of(o)) : alignment.parameter_of_b(item_of(o));
  }
  // Where a parameter stands in the model's order; the largest number for what is none.
  std::size_t parameter_order(const Observation& o) const;

  // How the initial values of a parameter or buffer are distributed; nothing for what is no tensor in both runs.
  std::optional<DiffDistribution> distribution_of(const Observation& o) const;
  void count_other_draw() { ++findings_.other_draws; }

  std::string text(TextId id) const { return std::string(interner.text(id)); }
  std::string module_path(int node) const;
  std::string module_of(const Observation& o) const;  // the path of its module, in the first run's names

  // Whether parameters of the module, or of one inside it, are in both runs.
  bool has_parameters(int node) const { return node >= 0 && has_parameters_[static_cast<std::size_t>(node)]; }

  Trust at_hand(int frame) const;  // what the code of a module call has at hand
  double gradient_floor(const Observation& o) const;

  const Alignment& alignment;
  const std::size_t lane;
  const LanePair& pair;
  const Interner& interner;
  const std::vector<Item>& a;
  const std::vector<Item>& b;

  std::vector<Observation> observations;
  std::size_t position = 0;               // of the observation at hand
  std::int64_t last_agreeing = kNothing;  // in a's items
  std::vector<Origin> origins;            // in the order in which they were found

  Frames frames;
  ModuleState modules;
  Trust gradients;                                       // of all parameters, over all backwards so far
  std::unordered_map<int, Observation> lone_parameters;  // that a module of both runs, by node, has in one run only
  std::unordered_map<ParameterKey, Trust, ParameterKeyHash> gradient_trust;
  std::unordered_map<ParameterKey, Observation, ParameterKeyHash> latest_value, latest_gradient;

 private:
  void find_lone_parameters();
  Judged judge_pair(const Observation& o, const Trust& inputs, Stage stage, double floor);
  bool is_noise_of_engines(const PairError& error, const Item& x, const Item& y);
  bool is_wrong_update(const Observation& after) const;
  void note_bit_difference(const Observation& o);
  void note_dtype_change(const Observation& o);
  void note_measured(const Observation& o, const PlaceNoise& noise);

  const Measures& measures_;
  const NoiseJudge& noise_;
  double engine_noise_ = 0, engine_sigma_ = 0;  // the largest so far that was harmless
  Findings& findings_;
  std::unordered_map<ParameterKey, std::size_t, ParameterKeyHash> parameter_order_;
  std::vector<bool> has_parameters_;  // by node
  struct Backward {
    int node;
    std::int64_t step, call;
    friend bool operator==(const Backward&, const Backward&) = default;
  };
  struct BackwardHash {
    std::size_t operator()(const Backward& key) const noexcept {
      return mix_hash(CallKeyHash{}({key.node, key.call}), static_cast<std::uint64_t>(key.step));
    }
  };
  std::unordered_map<Backward, double, BackwardHash> largest_gradient_;  // of a module's parameters
};

}  // namespace tenscope::compare
