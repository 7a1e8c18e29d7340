#include "compare/lane_state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

DType dtype_of(const Item& item) {
  if (item.is_tensor()) return item.dtype;
  return item.value == ValueKind::Float ? DType::F32 : DType::I64;  // a Python float often was a float32
}

// A tensor that is computed from equal ones in another dtype is measured by the finer of the two: the change of dtype
// is part of the difference. Where dtypes differed before, the coarser one says what can be expected.
DType judged_dtype(const Item& x, const Item& y, bool are_dtypes_inherited) {
  const DType of_x = dtype_of(x), of_y = dtype_of(y);
  const bool is_x_coarser = unit_roundoff(of_x) > unit_roundoff(of_y);
  return is_x_coarser == are_dtypes_inherited ? of_x : of_y;
}

PairVerdict pair_verdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::Equal:
      return PairVerdict::Equal;
    case Verdict::SameValues:
      return PairVerdict::SameValues;
    case Verdict::Noise:
      return PairVerdict::Noise;
    case Verdict::Unknown:
      return PairVerdict::Unknown;
    case Verdict::Consequence:
      return PairVerdict::Follows;
    case Verdict::Origin:
      return PairVerdict::Starts;
  }
  return PairVerdict::Unknown;
}

// What a module, the loss or the program made, and neither what it was given nor what it is made of.
bool is_result(const Item& item) {
  return item.io == Io::Output || item.io == Io::None || item.io == Io::Local || item.io == Io::Loss ||
         item.io == Io::Other;
}

}  // namespace

LaneState::LaneState(const Alignment& the_alignment, std::size_t the_lane, const Interner& the_interner,
                     const Measures& measures, const NoiseJudge& noise, Findings& findings)
    : alignment(the_alignment),
      lane(the_lane),
      pair(the_alignment.lanes[the_lane]),
      interner(the_interner),
      a(pair.a->items),
      b(pair.b->items),
      observations(list_observations(the_alignment, pair, the_interner)),
      // Where the other run has no modules, those of this one are all there is to tell where something happens.
      frames(the_alignment.tree_a, the_alignment.tree_b.nodes.empty() ? std::vector<int>() : the_alignment.module_to_b),
      modules(the_alignment.tree_a),
      measures_(measures),
      noise_(noise),
      findings_(findings) {
  find_lone_parameters();
  has_parameters_.resize(alignment.tree_a.nodes.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Item& item = a[i];
    const int node = alignment.node_of_a(item);
    if (item.io == Io::Param && pair.to_b[i] != kAlone)
      for (int at = node; at >= 0; at = alignment.tree_a.nodes[static_cast<std::size_t>(at)].parent)
        has_parameters_[static_cast<std::size_t>(at)] = true;
    if (item.io == Io::Grad) {
      double& largest = largest_gradient_[{node, item.step, item.call}];
      largest = std::max(largest, item.abs_max);
    }
    if (item.io == Io::Param && item.phase == Phase::Init)
      parameter_order_.try_emplace({node, item.parameter}, parameter_order_.size());
  }
}

// A parameter that a module has in one run only: in the other it is tied to another module's, and recorded there.
void LaneState::find_lone_parameters() {
  const auto is_initial = [](const Item& item) { return item.io == Io::Param && item.phase == Phase::Init; };
  const bool have_both = std::ranges::any_of(a, is_initial) && std::ranges::any_of(b, is_initial);
  if (!have_both) return;  // a run without parameters has just not recorded them
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int node = alignment.node_of_a(a[i]);
    if (is_initial(a[i]) && pair.to_b[i] == kAlone && node >= 0 &&
        alignment.module_to_b[static_cast<std::size_t>(node)] >= 0)
      lone_parameters.try_emplace(node, Observation{static_cast<std::int64_t>(i), kNothing});
  }
  for (std::size_t j = 0; j < b.size(); ++j) {
    const int node = alignment.node_of_b(b[j]);
    if (is_initial(b[j]) && pair.to_a[j] == kAlone && node >= 0)
      lone_parameters.try_emplace(node, Observation{kNothing, static_cast<std::int64_t>(j)});
  }
}

CallKey LaneState::call_of(const Observation& o) const {
  const bool is_in_a = o.a != kNothing;
  return {node_of(o), is_in_a ? item_of(o).call : pair.number_of_b(static_cast<std::size_t>(o.b)).call};
}

std::size_t LaneState::parameter_order(const Observation& o) const {
  const auto found = parameter_order_.find(parameter_of(o));
  return found == parameter_order_.end() ? std::numeric_limits<std::size_t>::max() : found->second;
}

std::string LaneState::module_path(int node) const {
  return node < 0 ? std::string() : alignment.tree_a.nodes[static_cast<std::size_t>(node)].path;
}

std::string LaneState::module_of(const Observation& o) const {
  const int node = node_of(o);
  return node < 0 ? text(item_of(o).scope) : module_path(node);
}

Trust LaneState::at_hand(int frame) const {
  Trust trust = frames[frame].forward;
  trust.add(modules.of(frames[frame].node));
  return trust;
}

double LaneState::gradient_floor(const Observation& o) const {
  const Item& item = item_of(o);
  const auto found = largest_gradient_.find({node_of(o), item.step, item.call});
  return found == largest_gradient_.end() ? 0 : thresholds::kGradientFloor * found->second;
}

Observation LaneState::with_last_value(Observation o) const {
  const auto last = latest_value.find(parameter_of(o));
  if (last == latest_value.end()) return o;
  if (o.a == kNothing) o.a = last->second.a;
  if (o.b == kNothing) o.b = last->second.b;
  return o;
}

Judged LaneState::judge(const Observation& o, const Trust& inputs, Stage stage, double floor) {
  const Judged judged = judge_pair(o, inputs, stage, floor);
  if (o.is_on_both_sides() && pair.to_b[static_cast<std::size_t>(o.a)] == o.b)
    findings_.pairs[lane][static_cast<std::size_t>(o.a)] = pair_verdict(judged.verdict);
  const Item& item = item_of(o);
  if (o.is_on_both_sides() && is_result(item) && !item.is_description) ++findings_.compared_results;
  const int node = node_of(o);
  if (node < 0) return judged;
  ModuleVerdict& module = findings_.modules[static_cast<std::size_t>(node)];
  module.is_compared = true;
  if (judged.verdict != Verdict::Equal) module.is_bit_equal = false;
  if (judged.verdict == Verdict::Unknown) module.is_unknown = true;
  const bool agrees = !judged.is_beyond_noise() && judged.verdict != Verdict::Unknown;
  if (agrees && o.is_on_both_sides() && item.is_tensor()) ++module.agreeing;
  if (judged.is_beyond_noise() && module.is_within_tolerance) {
    module.is_within_tolerance = false;
    module.step = item.step;
    module.phase = item.phase;
  }
  return judged;
}

Judged LaneState::judge_pair(const Observation& o, const Trust& trust, Stage stage, double floor) {
  Trust inputs = trust;
  inputs.noise = std::max(inputs.noise, noise_.assumed_noise());
  findings_.compared += o.is_on_both_sides() ? 1 : 0;
  constexpr double kNotMeasured = std::numeric_limits<double>::infinity();
  const auto beyond_noise = [&](double relative) -> Judged {
    if (!inputs.is_tainted && !inputs.is_suspect) return {Verdict::Origin, {.is_tainted = true}, relative};
    findings_.consequences += o.is_on_both_sides() ? 1 : 0;
    return {Verdict::Consequence, {.is_tainted = inputs.is_tainted, .is_suspect = !inputs.is_tainted}, relative};
  };
  if (!o.is_on_both_sides()) {
    note_bit_difference(o);
    return beyond_noise(kNotMeasured);
  }
  const Item &x = a[static_cast<std::size_t>(o.a)], &y = b[static_cast<std::size_t>(o.b)];
  if (is_same_value(x, y) && x.is_description) {  // of what, is not known
    --findings_.compared;
    ++findings_.descriptions;
    if (findings_.first_description.empty()) findings_.first_description = text(x.name);
    return {};
  }
  if (is_same_value(x, y)) {
    ++findings_.bit_equal;
    if (x.is_tensor()) last_agreeing = o.a;
    return {};
  }
  if (inputs.is_tainted) {
    note_bit_difference(o);
    return beyond_noise(kNotMeasured);
  }
  const PairError error = measures_.pair(x, y);
  const bool are_equal = error.is_comparable && error.differing == 0 && !error.is_lower_bound;
  if (!are_equal || !pair.is_by_content) note_bit_difference(o);  // another engine's layout is no difference
  if (are_equal) {
    ++findings_.same_values;
    last_agreeing = o.a;
    if (dtype_of(x) == dtype_of(y)) return {Verdict::SameValues, {}};
    note_dtype_change(o);
    return {Verdict::SameValues, {.other_dtype = static_cast<std::int64_t>(position)}};
  }
  const DType dtype = judged_dtype(x, y, inputs.noise > 0);
  const bool is_update = stage == Stage::Optimizer && x.phase == Phase::Optimizer && x.io == Io::Param;
  const std::optional<PlaceNoise> measured =
      measures_.noise && !pair.is_by_content ? measures_.noise(pair.a->rank, x, y) : std::nullopt;
  const JudgedPlace place{.dtype = dtype, .stage = stage, .floor = floor, .measured = measured ? &*measured : nullptr};
  const auto is_noise = [&](const PairError& difference) {
    return pair.is_by_content && x.is_tensor() && !is_exact(dtype) && !noise_.has_own_tolerance()
               ? is_noise_of_engines(difference, x, y)
               : noise_.is_noise(difference, place, inputs);
  };
  if (noise_.is_by_measure(place, inputs)) note_measured(o, *place.measured);
  if (!is_noise(error.at_least()) || (is_update && !noise_.has_own_tolerance() && is_wrong_update(o)))
    return beyond_noise(error.relative());
  if (error.is_lower_bound || (error.is_estimate && !is_noise(error.at_most()))) {
    ++findings_.unknown;
    if (!findings_.first_unknown) findings_.first_unknown = make_origin(o, text(item_of(o).scope), {}, inputs);
    return {
        Verdict::Unknown,
        {.noise = error.relative(), .times_measured = noise_.times_measured(error, place, inputs), .is_unknown = true},
        error.relative()};
  }
  ++findings_.noise;
  last_agreeing = o.a;
  return {Verdict::Noise,
          {.noise = is_exact(dtype) ? 1.0 : error.relative(),
           .times_measured = noise_.times_measured(error, place, inputs)},
          error.relative()};
}

// Every tensor of another engine is off by some roundings of its own, and these add up.
bool LaneState::is_noise_of_engines(const PairError& error, const Item& x, const Item& y) {
  using namespace thresholds;
  if (!error.is_comparable || error.has_other_finite) return false;
  const double roundoff = std::max(unit_roundoff(dtype_of(x)), unit_roundoff(dtype_of(y)));
  const double allowed = std::max({kEngineNoise, 2 * pair.weight_error, roundoff});
  if (x.io == Io::Param) return error.rel_l2 <= kEngineGrowth * allowed;
  const double cosine = std::abs(error.correlation);
  const double deviations = cosine * std::sqrt(static_cast<double>(error.count));
  if (error.rel_l2 > kEngineGrowth * std::max(allowed, engine_noise_)) return false;
  if (error.rel_l2 > kEngineNoise) {
    if (cosine > kEngineCosine && deviations > kEngineSigma && deviations > 2 * engine_sigma_) return false;
    engine_sigma_ = std::max(engine_sigma_, deviations);
  }
  engine_noise_ = std::max(engine_noise_, error.rel_l2);
  std::optional<DiffEngineNoise>& found = findings_.engine_noise;
  if (!found || error.rel_l2 > found->largest) found = {pair.weight_error, error.rel_l2, text(x.name)};
  return true;
}

std::optional<DiffDistribution> LaneState::distribution_of(const Observation& o) const {
  if (!measures_.distribution || !o.is_on_both_sides()) return std::nullopt;
  const Item &x = a[static_cast<std::size_t>(o.a)], &y = b[static_cast<std::size_t>(o.b)];
  if (!x.is_tensor() || !y.is_tensor() || x.shape != y.shape) return std::nullopt;
  return measures_.distribution(x, y);
}

bool LaneState::is_wrong_update(const Observation& after) const {
  const ParameterKey key = parameter_of(after);
  const auto before = latest_value.find(key), gradient = latest_gradient.find(key);
  if (!measures_.update || before == latest_value.end() || gradient == latest_gradient.end()) return false;
  if (!before->second.is_on_both_sides() || !gradient->second.is_on_both_sides()) return false;
  const auto items = [&](const std::vector<Item>& run, std::int64_t Observation::* side) {
    const auto at = [&](const Observation& o) { return &run[static_cast<std::size_t>(o.*side)]; };
    return UpdateItems{at(before->second), at(after), at(gradient->second)};
  };
  const std::optional<UpdateError> error = measures_.update(items(a, &Observation::a), items(b, &Observation::b));
  return error && error->is_mistake();
}

void LaneState::note_bit_difference(const Observation& o) {
  std::optional<Origin>& first = findings_.first_bit_difference;
  if (first && (first->lane == lane || first->position <= position)) return;
  first = make_origin(o, text(item_of(o).scope), {}, {});
}

void LaneState::note_measured(const Observation& o, const PlaceNoise& noise) {
  ++findings_.judged_by_profile;
  if (!(noise.rel_l2 > thresholds::kNoiseHidesAll)) return;
  if (findings_.hidden_by_noise++ == 0) findings_.first_hidden = {lane, o};
}

void LaneState::note_dtype_change(const Observation& o) {
  if (findings_.dtype_change)
    ++findings_.dtype_change->count;
  else
    findings_.dtype_change = {.lane = lane, .observation = o};
}

Origin LaneState::make_origin(const Observation& o, std::string path, DiffReason reason, const Trust& inputs) const {
  const Item& item = item_of(o);
  if (inputs.is_unknown) reason.doubt = DiffDoubt::NotKept;
  reason.noise_before = inputs.noise;
  reason.is_partial = pair.is_by_content;
  if (inputs.other_dtype >= 0)
    reason.other_dtype = text(item_of(observations[static_cast<std::size_t>(inputs.other_dtype)]).name);
  return {.lane = lane,
          .position = position,
          .seen = o,
          .shown = o,
          .blamed = std::move(path),
          .reason = std::move(reason),
          .last_agreeing = last_agreeing,
          .step = item.step,
          .phase = item.phase};
}

void LaneState::set_idle(std::size_t count) {
  findings_.consequences -= count;
  findings_.idle += count;
}

void LaneState::note_idle(const Observation& o, bool is_first) {
  ++findings_.idle;
  if (is_first) findings_.idle_inputs.push_back({lane, o});
}

bool LaneState::is_same_mask(const Observation& o) const {
  const Item &x = a[static_cast<std::size_t>(o.a)], &y = b[static_cast<std::size_t>(o.b)];
  return measures_.is_same_mask && x.is_neutral && y.is_neutral && measures_.is_same_mask(x, y);
}

Origin& LaneState::blame(const Observation& o, std::string path, DiffReason reason, const Trust& inputs) {
  return origins.emplace_back(make_origin(o, std::move(path), std::move(reason), inputs));
}

}  // namespace tenscope::compare
