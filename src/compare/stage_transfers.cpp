// Overview. What an outermost module returns on one rank, and what one on another rank is given, is compared call by
// call: the nth call of a step is the nth micro-batch. Backwards the gradient that the receiver makes for its input is
// compared with the one that reaches the sender's output, for the same micro-batch.
//
// Who sends to whom is known where torch.distributed.pipelining runs the stages: then all that differs is told. Else it
// is learnt: an input belongs to the output of another rank that it equals in most calls. Of the other calls those are
// told that have the content of another call, that are near to what was sent, or that stand alone among many that
// agree; the rest may be meant so. Calls are paired only in steps in which both have equally many.
#include "compare/stage_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "compare/measure.hpp"
#include "compare/noise.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/sketch_estimate.hpp"
#include "store/shards.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostMeasured = 64;     // pairs of one link whose elements are compared
constexpr std::size_t kMostOccurrences = 64;  // of one content
constexpr double kUnknown = std::numeric_limits<double>::infinity();

std::string micro_batch(std::size_t nth, std::int64_t step, std::int64_t other_step) {
  return step == other_step ? fmt::format("micro-batch {}", nth) : fmt::format("micro-batch {} of step {}", nth, step);
}

template <class Tensor>
bool is_same(const Tensor& x, const Tensor& y) {
  return x.dtype == y.dtype && x.fingerprint == y.fingerprint;
}

template <class Tensor>
bool is_positional(const Tensor& input) {
  return !input.suffix.empty() && input.suffix.front() >= '0' && input.suffix.front() <= '9';
}

// Whether it can be told that they are not the same.
template <class Tensor>
bool is_seen(const Tensor& x, const Tensor& y) {
  return x.count == y.count && !x.is_part && !y.is_part;
}

std::string difference_in_words(double rel_l2) {
  return std::isfinite(rel_l2) ? fmt::format(" (rel. L2 {:.2g})", rel_l2) : "";
}

}  // namespace

StageTransfers::Stage& StageTransfers::stage_of(EventId id, const Event& event) {
  const std::size_t writer = reader_.writer_index(id);
  const auto [found, is_new] = stage_index_.try_emplace({writer, event.root}, stages_.size());
  if (is_new) stages_.push_back({.writer = writer, .rank = reader_.writers()[writer].rank, .root = event.root});
  return stages_[found->second];
}

void StageTransfers::look_at(EventId id, const Event& event) {
  if (event.root.empty()) return;
  if (event.kind == EventKind::Note && event.name == kPipelineStageNote)
    stage_of(id, event).declared = PipelineStage::parse(event.meta);
  if (event.kind != EventKind::Value || !event.scope.empty()) return;
  const auto* tensor = std::get_if<TensorRecord>(&event.value);
  if (tensor != nullptr && !is_changed_input(event.name, event.scope, event.io))
    add(stage_of(id, event), id, event, *tensor);
}

void StageTransfers::add(Stage& stage, EventId id, const Event& event, const TensorRecord& record) {
  if (event.io != Io::Input && event.io != Io::Output && event.io != Io::GradInput && event.io != Io::GradOutput)
    return;
  const auto dot = event.name.find('.');
  const bool is_float = kind_of(record.dtype) == DTypeKind::Float;
  Tensor tensor{
      .id = id,
      .fingerprint = record.fingerprint,
      .dtype = record.dtype,
      .count = record.stats.count,
      .is_part = store::parse_shard(event.meta).has_value(),
      .is_telling = is_float && record.stats.count >= pairing::kTellingElements && record.stats.min < record.stats.max,
      .suffix = dot == std::string::npos ? "" : event.name.substr(dot + 1)};
  if (event.io == Io::GradInput || event.io == Io::GradOutput) {
    const auto pass = stage.by_call.find(event.call);
    if (pass == stage.by_call.end()) return;
    Pass& of = stage.passes[pass->second];
    (event.io == Io::GradInput ? of.grad_inputs : of.grad_outputs).insert_or_assign(tensor.suffix, std::move(tensor));
    return;
  }
  const auto [found, is_new] = stage.by_call.try_emplace(event.call, stage.passes.size());
  if (is_new) {
    std::vector<std::size_t>& in_step = stage.by_step[event.step];
    stage.passes.push_back({.step = event.step, .call = event.call, .nth = in_step.size()});
    in_step.push_back(found->second);
  }
  Pass& pass = stage.passes[found->second];
  (event.io == Io::Input ? pass.inputs : pass.outputs).push_back(std::move(tensor));
}

// A step that one of them did not finish, since the run ended, is compared as far as it goes. Where a stage has missed
// the end of a step, its steps are counted otherwise: then calls go by their order in the whole run, if that agrees
// better.
std::vector<StageTransfers::Pair> StageTransfers::pairs_of(const Stage& sender, const Stage& receiver,
                                                           bool is_declared) {
  std::vector<Pair> pairs, in_order;
  for (const auto& [step, received] : receiver.by_step) {
    const auto sent = sender.by_step.find(step);
    if (sent == sender.by_step.end()) continue;
    const bool is_last = step == std::min(receiver.by_step.rbegin()->first, sender.by_step.rbegin()->first);
    if (sent->second.size() != received.size() && !(is_declared && is_last)) continue;
    for (std::size_t i = 0; i < std::min(received.size(), sent->second.size()); ++i)
      pairs.push_back({&sender.passes[sent->second[i]], &receiver.passes[received[i]]});
  }
  if (pairs.size() == receiver.passes.size() || sender.passes.size() != receiver.passes.size()) return pairs;
  for (std::size_t i = 0; i < sender.passes.size(); ++i) in_order.push_back({&sender.passes[i], &receiver.passes[i]});
  return agreeing(in_order) > agreeing(pairs) ? in_order : pairs;
}

std::size_t StageTransfers::agreeing(const std::vector<Pair>& pairs) {
  std::size_t count = 0;
  for (const Pair& pair : pairs)
    for (std::size_t i = 0; i < std::min(pair.sent->outputs.size(), pair.received->inputs.size()); ++i)
      count += is_same(pair.sent->outputs[i], pair.received->inputs[i]) ? 1 : 0;
  return count;
}

// A recording that does not say which rank has the stage before has it at the same place among the ranks of that stage,
// unless the contents of another agree better.
void StageTransfers::find_declared_links() {
  for (std::size_t receiver = 0; receiver < stages_.size(); ++receiver) {
    const auto& declared = stages_[receiver].declared;
    if (!declared || declared->stage == 0 || stages_[receiver].passes.empty()) continue;
    std::vector<std::size_t> senders, alike;  // of the stage before; of the same stage
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const auto& other = stages_[i].declared;
      if (!other || other->stages != declared->stages) continue;
      const bool is_asked = declared->receives_from < 0 || declared->receives_from == stages_[i].rank;
      if (other->stage == declared->stage - 1 && is_asked) senders.push_back(i);
      if (other->stage == declared->stage) alike.push_back(i);
    }
    if (senders.empty()) continue;
    const auto place = static_cast<std::size_t>(std::ranges::find(alike, receiver) - alike.begin());
    std::size_t best = senders[declared->receives_from < 0 && place < senders.size() ? place : 0];
    const auto votes = [&](std::size_t sender) { return agreeing(pairs_of(stages_[sender], stages_[receiver], true)); };
    for (const std::size_t sender : senders)
      if (votes(sender) > votes(best)) best = sender;
    // What a stage is given by keyword is its own. Positional arguments are recorded first.
    const auto inputs = static_cast<std::size_t>(
        std::ranges::count_if(stages_[receiver].passes.front().inputs, &is_positional<Tensor>));
    if (stages_[best].passes.empty() || stages_[best].passes.front().outputs.size() != inputs) continue;
    for (std::size_t i = 0; i < inputs; ++i)
      links_.push_back({.sender = best, .output = i, .receiver = receiver, .input = i, .is_declared = true});
  }
}

void StageTransfers::find_links_by_content() {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    for (std::size_t pass = 0; pass < stages_[stage].passes.size(); ++pass) {
      const std::vector<Tensor>& outputs = stages_[stage].passes[pass].outputs;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!outputs[i].is_telling || outputs[i].is_part) continue;
        auto& places = outputs_[{outputs[i].fingerprint.low, outputs[i].fingerprint.high}];
        if (places.size() < kMostOccurrences) places.push_back({stage, pass, i});
      }
    }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    if (!stages_[stage].declared && !stages_[stage].passes.empty())
      for (std::size_t i = 0; i < stages_[stage].passes.front().inputs.size(); ++i) link_by_content(stage, i);
}

// What a process made itself it did not receive.
void StageTransfers::link_by_content(std::size_t receiver, std::size_t input) {
  const Stage& stage = stages_[receiver];
  std::map<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>> votes;  // all, in the same call
  std::size_t calls = 0;
  for (const Pass& pass : stage.passes) {
    if (input >= pass.inputs.size()) continue;
    ++calls;
    const Tensor& tensor = pass.inputs[input];
    const auto found = outputs_.find({tensor.fingerprint.low, tensor.fingerprint.high});
    if (found == outputs_.end() || tensor.is_part) continue;
    const auto is_own = [&](const Place& place) { return stages_[place.stage].writer == stage.writer; };
    if (std::ranges::any_of(found->second, is_own)) continue;
    std::set<std::pair<std::size_t, std::size_t>> seen;
    for (const Place& place : found->second) {
      const Pass& other = stages_[place.stage].passes[place.pass];
      const std::pair slot(place.stage, place.output);
      if (stages_[place.stage].declared || stages_[place.stage].rank == stage.rank) continue;
      auto& [all, aligned] = votes[slot];
      all += seen.insert(slot).second ? 1 : 0;
      aligned += other.step == pass.step && other.nth == pass.nth ? 1 : 0;
    }
  }
  const auto best = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  if (best == votes.end() || best->second.first < pairing::kLearntFromCalls || 2 * best->second.first <= calls) return;
  links_.push_back({.sender = best->first.first, .output = best->first.second, .receiver = receiver, .input = input});
}

// Relative, Euclidean. Infinite where it is not known.
double StageTransfers::distance(const Tensor& sent, const Tensor& received, bool* is_rounding) const {
  const auto record = [&](EventId id) { return std::get<TensorRecord>(reader_.event(id).value); };
  const TensorRecord a = record(sent.id), b = record(received.id);
  PairError error;
  if (a.has_bytes() && b.has_bytes() && reader_.has_bytes(sent.id, a) && reader_.has_bytes(received.id, b)) {
    const TensorData x = reader_.tensor(sent.id);
    TensorData y = reader_.tensor(received.id);
    y.view.shape = x.view.shape;  // it may have been flattened on its way
    error = measure(x.view, y.view);
  } else {
    const auto x = reader_.sketch(sent.id), y = reader_.sketch(received.id);
    error = x && y ? estimate(a, b, *x, *y) : measure_statistics(a, b);
  }
  if (is_rounding != nullptr) *is_rounding = error.is_comparable && error.relative() <= pairing::kSixteenBits;
  return error.is_comparable && !error.is_lower_bound && !error.has_other_finite ? error.rel_l2 : kUnknown;
}

std::string StageTransfers::who(std::size_t stage) const {
  const Stage& of = stages_[stage];
  return of.declared ? fmt::format("rank {} (stage {})", of.rank, of.declared->stage) : fmt::format("rank {}", of.rank);
}

void StageTransfers::report(const Pass& pass, const Tensor& tensor, bool is_gradient, double rel_l2,
                            std::string message) {
  found_.push_back({.place = place_of(reader_, tensor.id, reader_.event(tensor.id)),
                    .is_gradient = is_gradient,
                    .micro_batch = pass.nth,
                    .rel_l2 = rel_l2,
                    .message = std::move(message)});
}

void StageTransfers::compare_link(const Link& link, double most) {
  const Stage &sender = stages_[link.sender], &receiver = stages_[link.receiver];
  std::vector<Pair> agreeing, differing;
  for (const Pair& pair : pairs_of(sender, receiver, link.is_declared)) {
    if (link.output >= pair.sent->outputs.size() || link.input >= pair.received->inputs.size()) continue;
    const Tensor &sent = pair.sent->outputs[link.output], &received = pair.received->inputs[link.input];
    if (is_same(sent, received))
      agreeing.push_back(pair);
    else if (is_seen(sent, received))
      differing.push_back(pair);
  }
  const std::size_t calls = agreeing.size() + differing.size();
  compared_ += calls;
  const bool is_sure =
      link.is_declared || (agreeing.size() > pairing::kLearntFromCalls && 4 * agreeing.size() >= 3 * calls);

  // Where no call agrees, values may have been rounded on their way, and that is no mistake.
  bool is_rounded = agreeing.empty();
  std::size_t measured = 0;
  std::vector<std::pair<Pair, double>> distances;
  for (const Pair& pair : differing) {
    bool is_rounding = true;
    double rel_l2 = kUnknown;
    if (measured++ < kMostMeasured)
      rel_l2 = distance(pair.sent->outputs[link.output], pair.received->inputs[link.input], &is_rounding);
    is_rounded &= is_rounding;
    const bool is_other_dtype = pair.sent->outputs[link.output].dtype != pair.received->inputs[link.input].dtype;
    if (is_other_dtype && is_rounding)
      agreeing.push_back(pair);
    else
      distances.emplace_back(pair, rel_l2);
  }
  if (is_rounded) {
    for (const auto& [pair, rel_l2] : distances) agreeing.push_back(pair);
    distances.clear();
  }
  for (const auto& [pair, rel_l2] : distances) {
    const Tensor& received = pair.received->inputs[link.input];
    const Pass* origin = nullptr;  // another call that sent this
    for (const Pass& pass : sender.passes)
      if (link.output < pass.outputs.size() && is_same(pass.outputs[link.output], received) && received.is_telling)
        if (origin == nullptr || pass.step <= pair.received->step) origin = &pass;
    if (origin != nullptr && !link.is_declared) {
      // The micro-batches may be taken in another order. Then their gradients go back in it.
      const auto made = pair.received->grad_inputs.find(received.suffix);
      const auto& arrived = origin->grad_outputs;
      if (made != pair.received->grad_inputs.end() &&
          std::ranges::any_of(arrived, [&](const auto& gradient) { return is_same(gradient.second, made->second); }))
        continue;
    }
    if (rel_l2 <= most || (origin == nullptr && !is_sure && !(rel_l2 <= pairing::kSpoilt))) continue;
    const std::string mine = micro_batch(pair.received->nth, pair.received->step, pair.received->step);
    report(*pair.received, received, false, rel_l2,
           origin != nullptr
               ? fmt::format("{} received for {} what {} sent for {}", who(link.receiver), mine, who(link.sender),
                             micro_batch(origin->nth, origin->step, pair.received->step))
               : fmt::format("what {} received for {} is not what {} sent{}", who(link.receiver), mine,
                             who(link.sender), difference_in_words(rel_l2)));
  }
  compare_gradients(link, agreeing, most);
}

// Where an output goes to several places, the gradient that reaches it is the sum of what comes back.
bool StageTransfers::is_alone(const Link& link) const {
  return std::ranges::count_if(links_, [&](const Link& other) {
           return other.sender == link.sender && other.output == link.output;
         }) == 1;
}

void StageTransfers::compare_gradients(const Link& link, const std::vector<Pair>& pairs, double most) {
  if (!is_alone(link)) return;
  struct Gradients {
    const Pass* sent;
    const Tensor *made, *arrived;
    double rel_l2 = kUnknown;
  };
  std::vector<Gradients> differing;
  std::size_t agreeing = 0, measured = 0;
  for (const Pair& pair : pairs) {
    const std::string& output = pair.sent->outputs[link.output].suffix;
    const auto made = pair.received->grad_inputs.find(pair.received->inputs[link.input].suffix);
    const auto arrived = pair.sent->grad_outputs.find(output.empty() ? "0" : output);
    if (made == pair.received->grad_inputs.end() || arrived == pair.sent->grad_outputs.end()) continue;
    Gradients gradients{pair.sent, &made->second, &arrived->second};
    if (!is_same(*gradients.made, *gradients.arrived)) {
      if (!is_seen(*gradients.made, *gradients.arrived) || measured++ >= kMostMeasured) continue;
      gradients.rel_l2 = distance(*gradients.made, *gradients.arrived);
      const DType dtype = gradients.made->dtype, other = gradients.arrived->dtype;
      if (gradients.rel_l2 > pairing::kTransferGradientUnits * std::max(unit_roundoff(dtype), unit_roundoff(other))) {
        differing.push_back(gradients);
        continue;
      }
    }
    ++agreeing;
  }
  compared_ += agreeing + differing.size();
  // What a program adds to the gradient, or multiplies it by, before it goes on is its own affair.
  if (!link.is_declared && (agreeing < pairing::kLearntFromCalls || agreeing <= differing.size())) return;
  for (const Gradients& gradients : differing) {
    if (gradients.rel_l2 <= most) continue;
    const Pass& sent = *gradients.sent;
    const Pass* origin = nullptr;  // the call whose gradient it is
    for (const Pass& pass : stages_[link.receiver].passes)
      for (const auto& [suffix, made] : pass.grad_inputs)
        if (is_same(made, *gradients.arrived) && made.is_telling) origin = &pass;
    const std::string mine = micro_batch(sent.nth, sent.step, sent.step);
    report(sent, *gradients.arrived, true, gradients.rel_l2,
           origin != nullptr
               ? fmt::format("{} received for {} the gradient that {} sent for {}", who(link.sender), mine,
                             who(link.receiver), micro_batch(origin->nth, origin->step, sent.step))
               : fmt::format("the gradient that {} received for {} is not what {} sent{}", who(link.sender), mine,
                             who(link.receiver), difference_in_words(gradients.rel_l2)));
  }
}

std::vector<WrongTransfer> StageTransfers::find(double most) {
  find_declared_links();
  find_links_by_content();
  for (const Link& link : links_) compare_link(link, most);
  std::ranges::stable_sort(found_, {}, [](const WrongTransfer& one) {
    return std::tuple(one.place.step, one.is_gradient, one.micro_batch, one.place.rank);
  });
  return std::move(found_);
}

}  // namespace tenscope::compare
