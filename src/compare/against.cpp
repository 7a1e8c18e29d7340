// Overview. The reference's values are found by a key: the hash of everything that names an event. Two events of one
// key are compared by their fingerprints, then by their elements. A key is not proof: what differs may be a call that
// the other run made earlier, a mask in another form, an input that nobody uses. So what is found here is a suspicion,
// and may be wrong both ways: a noise that has once arrived excuses more than it should (diff_runs knows which module
// it arrived at), and the gradients are judged by the largest so far.
#include "compare/against.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "compare/event_item.hpp"
#include "compare/sketch_estimate.hpp"
#include "compare/thresholds.hpp"
#include "kernels/summarize.hpp"
#include "store/recorded_part.hpp"

namespace tenscope::compare {
namespace {

// A summary is read from the reference's journal rather than made anew from this size on.
constexpr std::uint64_t kWorthReading = 64 << 10;

std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15 + (seed << 6) + (seed >> 2));
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

std::uint64_t mixed(std::uint64_t seed, std::string_view text) noexcept {
  return mixed(seed, std::hash<std::string_view>()(text));
}

// Where in the model, whatever the step and the call.
template <class Event>
std::uint64_t place_of(const Event& event, std::string_view io, std::string_view phase) noexcept {
  std::uint64_t key = mixed(0, event.name);
  for (const std::string_view text : {std::string_view(event.scope), std::string_view(event.root), io, phase})
    key = mixed(key, text);
  return mixed(key, static_cast<std::uint64_t>(event.kind));
}

std::uint64_t key_of(std::uint64_t place, std::int64_t step, std::int64_t call) noexcept {
  return mixed(mixed(place, static_cast<std::uint64_t>(step)), static_cast<std::uint64_t>(call));
}

std::uint64_t place_of(const EventInfo& info) noexcept { return place_of(info, info.io.text(), info.phase.text()); }

template <class Sizes>
std::uint64_t shape_key(const Sizes& shape) noexcept {
  std::uint64_t key = shape.size();
  for (const std::int64_t size : shape) key = mixed(key, static_cast<std::uint64_t>(size));
  return key;
}

std::uint64_t content_key(const Fingerprint& fingerprint, DType dtype, std::uint64_t shape) noexcept {
  return mixed(mixed(mixed(fingerprint.low, fingerprint.high), static_cast<std::uint64_t>(dtype)), shape);
}

Stage stage_of(Phase phase) noexcept {
  return phase == Phase::Optimizer ? Stage::Optimizer : phase == Phase::Backward ? Stage::Backward : Stage::Forward;
}

bool is_gradient(Io io) noexcept { return io == Io::Grad || io == Io::GradOutput || io == Io::GradInput; }

bool is_value(EventKind kind) noexcept { return kind == EventKind::Value || kind == EventKind::Change; }

bool is_part(const EventInfo& info) noexcept {
  return info.shard != nullptr || info.meta.find("\"shard\"") != std::string_view::npos;
}

}  // namespace

Against::Against(const std::filesystem::path& reference, int rank, std::optional<double> tolerance)
    : reader_(reference, {.check_fingerprints = false, .ranks = {rank}}), rank_(rank), judge_(tolerance) {
  if (const auto path = profile_path(reference); std::filesystem::exists(path)) profile_ = NoiseProfile::read(path);
  for (EventId id = 0; id < reader_.event_count(); ++id)
    if (is_value(reader_.kind(id))) add(id);
}

void Against::add(EventId id) {
  const Event event = reader_.event(id);
  if (std::holds_alternative<std::monostate>(event.value)) return;
  Entry entry{.event = id};
  if (const auto* record = std::get_if<TensorRecord>(&event.value)) {
    entry.is_tensor = true;
    entry.fingerprint = record->fingerprint;
    entry.dtype = record->dtype;
    entry.shape = shape_key(record->shape);
    entry.has_bytes = reader_.has_bytes(id, *record);
  }
  const auto place = static_cast<std::uint32_t>(entries_.size() + 1);
  const std::uint64_t key = key_of(place_of(event, event.io_word(), event.phase_word()), event.step, event.call);
  std::uint32_t& first = by_key_[key];
  entry.next = std::exchange(first, place);
  if (entry.has_bytes) by_content_.try_emplace(content_key(entry.fingerprint, entry.dtype, entry.shape), place);
  entries_.push_back(entry);
}

const Against::Entry* Against::find(std::uint64_t key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &entries_[found->second - 1];
}

WatchedTensor Against::saw(const EventInfo& info, const TensorView& tensor, const Fingerprint& fingerprint) noexcept {
  if (!is_value(info.kind)) return {};
  try {
    const std::uint64_t shape = shape_key(tensor.shape);
    const auto is_same = [&](const Entry& entry) {
      return entry.is_tensor && entry.fingerprint == fingerprint && entry.dtype == tensor.dtype && entry.shape == shape;
    };
    const Entry* partner = find(key_of(place_of(info), info.step, info.call));
    for (const Entry* entry = partner; entry != nullptr; entry = next(*entry))
      if (is_same(*entry)) {
        count(Verdict::Equal, info);
        return known(info, *entry, size_bytes(tensor));
      }
    if (partner == nullptr) {
      count(Verdict::NotThere, info);
      const auto found = by_content_.find(content_key(fingerprint, tensor.dtype, shape));
      if (found == by_content_.end() || !is_same(entries_[found->second - 1])) return {};
      return known(info, entries_[found->second - 1], size_bytes(tensor));
    }
    count(partner->is_tensor ? judge(info, tensor, *partner) : Verdict::Differs, info);
  } catch (const std::exception&) {  // nothing is known of it: diff_runs will say why
    count(Verdict::Unknown, info);
  }
  return {};
}

void Against::saw(const EventInfo& info, const EventValue& value) noexcept {
  if (!is_value(info.kind) || std::holds_alternative<std::monostate>(value)) return;
  try {
    const Entry* partner = find(key_of(place_of(info), info.step, info.call));
    if (partner == nullptr) return count(Verdict::NotThere, info);
    Verdict verdict = Verdict::Unknown;
    for (const Entry* entry = partner; entry != nullptr; entry = next(*entry))
      verdict = std::min(verdict, judge_value(value, reader_.event(entry->event).value));
    count(verdict, info);
  } catch (const std::exception&) {
    count(Verdict::Unknown, info);
  }
}

WatchedTensor Against::known(const EventInfo& info, const Entry& entry, std::uint64_t size_bytes) const {
  WatchedTensor result{.keep_bytes = false, .stats = {}, .sketch = {}};
  if (size_bytes < kWorthReading || is_part(info)) return result;
  const Event event = reader_.event(entry.event);
  if (event.meta.find("\"shard\"") != std::string::npos) return result;
  const auto& record = std::get<TensorRecord>(event.value);
  result.stats = record.stats;
  result.sketch = record.sketch;
  if (!result.sketch && record.sketch_of)
    if (const auto sketch = reader_.sketch(entry.event)) result.sketch = std::make_shared<const Sketch>(*sketch);
  return result;
}

PairError Against::measure(const EventInfo& info, const TensorView& tensor, const Entry& entry) const {
  if (entry.has_bytes) return compare::measure(reader_.tensor(entry.event).view, tensor);
  const Event event = reader_.event(entry.event);
  const auto& theirs = std::get<TensorRecord>(event.value);
  const store::RecordedPart part(info, tensor);
  Sketch sketch;
  const Summary summary = kernels::summarize(tensor, nullptr, &sketch, part.part());
  TensorRecord mine;
  mine.dtype = tensor.dtype;
  mine.shape.assign(tensor.shape.begin(), tensor.shape.end());
  mine.fingerprint = summary.fingerprint;
  mine.stats = summary.stats;
  const auto other = reader_.sketch(entry.event);
  const bool are_alike =
      mine.shape == theirs.shape && other && part.is_sketched() && part.id() == store::part_id(reader_, entry.event);
  return are_alike ? estimate(theirs, mine, *other, sketch) : measure_statistics(theirs, mine);
}

Against::Verdict Against::judge(const EventInfo& info, const TensorView& tensor, const Entry& entry) {
  const PairError error = measure(info, tensor, entry);
  if (error.is_comparable && error.differing == 0 && !error.is_lower_bound && !error.is_estimate) return Verdict::Noise;
  const bool is_exact_type = is_exact(tensor.dtype) || is_exact(entry.dtype);
  const DType dtype =
      is_exact_type || unit_roundoff(tensor.dtype) > unit_roundoff(entry.dtype) ? tensor.dtype : entry.dtype;
  const std::lock_guard guard(mutex_);
  double floor = 0;
  if (is_gradient(info.io)) {
    if (info.step != std::exchange(gradient_step_, info.step)) gradient_ = 0;
    gradient_ = std::max(gradient_, std::isfinite(error.scale) ? error.scale : 0);
    floor = thresholds::kGradientFloor * gradient_;
  }
  const JudgedPlace place{.dtype = dtype,
                          .stage = stage_of(info.phase),
                          .floor = floor,
                          .measured = profile_ ? profile_->find({.rank = rank_,
                                                                 .name = info.name,
                                                                 .io = to_string(info.io),
                                                                 .phase = to_string(info.phase),
                                                                 .step = info.step,
                                                                 .call = info.call})
                                               : nullptr};
  const auto is_noise = [&](const PairError& difference) { return judge_.is_noise(difference, place, arrived_); };
  if (!is_noise(error.at_least())) return Verdict::Differs;
  if (error.is_lower_bound || (error.is_estimate && !is_noise(error.at_most()))) return Verdict::Unknown;
  const double relative = error.relative(floor);
  if (!is_exact_type && std::isfinite(relative))
    arrived_.add({.noise = relative, .times_measured = judge_.times_measured(error, place, arrived_)});
  return Verdict::Noise;
}

Against::Verdict Against::judge_value(const EventValue& mine, const EventValue& theirs) const {
  Interner interner;
  const auto item = [&](const EventValue& value) {
    Event event;
    event.value = value;
    return make_item(event, 0, interner);
  };
  const Item x = item(theirs), y = item(mine);
  if (is_same_value(x, y)) return Verdict::Equal;
  if (x.is_tensor() || y.is_tensor()) return Verdict::Unknown;  // a number here may be a tensor of one there
  const PairError error = measure_values(x, y, interner);
  if (!error.is_comparable || error.has_other_finite) return Verdict::Differs;
  if (error.differing == 0) return Verdict::Noise;  // True and 1, 2 and 2.0
  const bool are_floats = x.value == ValueKind::Float && y.value == ValueKind::Float;
  return are_floats && error.relative() <= default_tolerance(DType::F32) ? Verdict::Noise : Verdict::Differs;
}

void Against::count(Verdict verdict, const EventInfo& info) noexcept {
  try {
    const std::lock_guard guard(mutex_);
    switch (verdict) {
      case Verdict::Equal:
        ++counts_.equal;
        return;
      case Verdict::Noise:
        ++counts_.noise;
        break;
      case Verdict::Differs:
        ++counts_.differs;
        break;
      case Verdict::Unknown:
        ++counts_.unknown;
        break;
      case Verdict::NotThere:
        ++counts_.not_in_reference;
        break;
    }
    const std::uint64_t place = place_of(info);
    const bool is_grave = verdict == Verdict::Differs && !excused_.contains(place);
    const Suspicion suspicion = is_grave ? Suspicion::Differs : Suspicion::Bits;
    if (is_grave) suspected_.push_back(place);
    if (suspicion <= suspect_.suspicion) return;
    suspect_ = {.suspicion = suspicion, .name = std::string(info.name), .step = info.step, .call = info.call};
    suspicion_.store(suspicion, std::memory_order_relaxed);
  } catch (const std::exception&) {
    suspicion_.store(Suspicion::Differs, std::memory_order_relaxed);
  }
}

Suspect Against::take() {
  const std::lock_guard guard(mutex_);
  suspicion_.store(Suspicion::None, std::memory_order_relaxed);
  return std::exchange(suspect_, {});
}

void Against::excuse() {
  const std::lock_guard guard(mutex_);
  excused_.insert(suspected_.begin(), suspected_.end());
  suspected_.clear();
}

AgainstCounts Against::counts() const {
  const std::lock_guard guard(mutex_);
  return counts_;
}

}  // namespace tenscope::compare
