#include "compare/op_diff.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compare/event_item.hpp"
#include "compare/noise.hpp"
#include "compare/operation.hpp"
#include "compare/run_values.hpp"
#include "compare/tensor_source.hpp"
#include "compare/timeline.hpp"

// Overview. Both runs' operations stand in the order in which they ran. A value is known by its content, so an input
// names whatever made these bytes. An operation has an equal where the other run has its very result; else it is
// laid beside those of the same name and shape whose inputs are the same values, and has an equal where the results
// differ by rounding noise. What has no equal although all its inputs have one starts a difference; what has an input
// without one follows from it. The first of each run are compared: the same operation with another result, or
// operations that only one of them makes.

namespace tenscope {
namespace {

using compare::Item;

constexpr std::size_t kMostCandidates = 64;  // that are measured for one operation

struct Op {
  OpPlace place;
  Item item;
  std::vector<std::string> inputs;  // contents
  std::string content;              // fingerprint; empty: a number
  std::string key;                  // dtype, shape and content, or the number
  bool is_input = false;            // no operation: a value that none has made
  bool has_equal = false;
  double noise = 0;          // of its equal
  std::ptrdiff_t call = -1;  // of the module it was made in, in Side::calls; -1: of none
};

struct Call {
  std::string path;
  std::ptrdiff_t outer = -1;  // the call around it
  std::optional<compare::CallingLine> line;
};

// The calls under way, by the threads that make them.
class CallStacks {
 public:
  std::ptrdiff_t& innermost(std::size_t writer, std::uint64_t thread) {
    return innermost_.try_emplace({writer, thread}, -1).first->second;
  }

 private:
  std::map<std::pair<std::size_t, std::uint64_t>, std::ptrdiff_t> innermost_;
};

struct Side {
  Reader reader;
  std::vector<Op> ops;
  std::vector<Call> calls;
  std::unordered_map<std::string, std::vector<std::size_t>> by_key, by_shape, by_input;
  std::unordered_set<std::string> contents;
  std::map<std::string, std::string> optimizer;  // its settings in the step that is looked at, or in the last
  bool is_compiled = false;                      // operations of compiled code were not seen
};

std::string number_text(const Item& item) {
  return fmt::format("{} {} {} {}", static_cast<int>(item.value), item.integer, item.number, item.text);
}

std::string shape_key(const Op& op) {
  return op.place.op + '\n' + std::to_string(op.item.shape) + '\n' + std::to_string(static_cast<int>(op.item.value)) +
         '\n' + std::to_string(op.inputs.size());
}

Op make_op(const Event& event, EventId id, compare::Interner& interner) {
  Op op;
  op.item = compare::make_item(event, id, interner);
  compare::Operation operation = compare::read_operation(event);
  op.place = {.op = std::move(operation.name),
              .full_op = std::move(operation.full_name),
              .args = std::move(operation.args),
              .site = event.site,
              .function = std::move(operation.function),
              .text = std::move(operation.text),
              .assigns = std::move(operation.assigns),
              .module = event.scope,
              .phase = std::string(event.phase_word()),
              .step = event.step,
              .event = id};
  op.inputs = std::move(operation.inputs);
  op.is_input = op.place.full_op.empty();
  if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
    op.content = tensor->fingerprint.hex();
    op.key = std::string(to_string(tensor->dtype)) + ' ' + std::to_string(op.item.shape) + ' ' + op.content;
    // Constant contents are many things: they count as the same where the same operation has made them.
    if (tensor->stats.min == tensor->stats.max) op.key += ' ' + op.place.op;
  } else {
    op.key = op.place.op + ' ' + number_text(op.item);
  }
  return op;
}

// Notes of the recording of operations: what an optimizer was set to, and what was not seen.
void read_note(const Event& event, Side& side) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(event.meta).get(root) != simdjson::SUCCESS) return;
  if (event.name == kNotSeenNote) {
    std::string_view what;
    side.is_compiled |= root["what"].get(what) == simdjson::SUCCESS && what == compare::kOperationsNotSeen;
  } else if (event.name == compare::kOptimizerNote && event.phase == Phase::Optimizer) {
    side.optimizer.clear();
    for (const auto& [key, value] : root) side.optimizer.emplace(key, simdjson::minify(value));
  }
}

void follow_call(const Event& event, std::ptrdiff_t& innermost, Side& side) {
  if (event.kind == EventKind::Enter) {
    side.calls.push_back({event.name, innermost, compare::read_calling_line(event)});
    innermost = std::ssize(side.calls) - 1;
    return;
  }
  while (innermost >= 0) {  // an exception may have left calls without an exit
    const Call& call = side.calls[static_cast<std::size_t>(innermost)];
    innermost = call.outer;
    if (call.path == event.name) return;
  }
}

Side read_side(const std::filesystem::path& path, const OpDiffOptions& options, compare::Interner& interner) {
  Side side{.reader = Reader(path, {.ranks = options.rank ? std::vector{*options.rank} : std::vector<int>{}}),
            .ops = {},
            .calls = {},
            .by_key = {},
            .by_shape = {},
            .by_input = {},
            .contents = {},
            .optimizer = {}};
  CallStacks stacks;
  for (EventId id = 0; id < side.reader.event_count(); ++id) {
    const EventKind kind = side.reader.kind(id);
    if (kind == EventKind::Note) read_note(side.reader.event(id), side);
    if (kind == EventKind::Enter || kind == EventKind::Exit) {
      const Event event = side.reader.event(id);
      follow_call(event, stacks.innermost(side.reader.writer_index(id), event.thread), side);
    }
    if (kind != EventKind::Value || (options.step && side.reader.step(id) != *options.step)) continue;
    const Event event = side.reader.event(id);
    if (!compare::is_operation(event)) continue;
    Op& op = side.ops.emplace_back(make_op(event, id, interner));
    op.call = stacks.innermost(side.reader.writer_index(id), event.thread);
    if (!op.content.empty()) op.item.has_bytes = side.reader.has_bytes(id, std::get<TensorRecord>(event.value));
    const std::size_t index = side.ops.size() - 1;
    side.by_key[op.key].push_back(index);
    side.by_shape[shape_key(op)].push_back(index);
    for (const std::string& input : op.inputs) side.by_input[input].push_back(index);
    side.contents.insert(op.content);
  }
  return side;
}

class OpMatcher {
 public:
  OpMatcher(Side& a, Side& b, compare::Interner& interner, const OpDiffOptions& options)
      : a_(a),
        b_(b),
        source_a_(a.reader),
        source_b_(b.reader),
        options_(options),
        values_(source_a_, source_b_, interner) {}

  OpDiff match() {
    OpDiff diff;
    diff.total_a = count(a_);
    diff.total_b = count(b_);
    diff.is_compiled_a = a_.is_compiled;
    diff.is_compiled_b = b_.is_compiled;
    if (diff.total_a == 0 || diff.total_b == 0) return diff;
    for (Op& op : a_.ops) find_equal(op);
    for (Op& op : b_.ops) op.has_equal = op.has_equal || a_.by_key.contains(op.key);
    const Op* x = first_origin(a_, b_, noise_of_a_);
    const Op* y = first_origin(b_, a_, noise_of_b_);
    if (x == nullptr && y == nullptr) {
      diff.verdict = noise_of_a_.empty() ? OpVerdict::Same : OpVerdict::Noise;
      return diff;
    }
    tell(x, y, diff);
    return diff;
  }

 private:
  using NoisyValues = std::unordered_map<std::string, std::map<std::string, double>>;

  static std::size_t count(const Side& side) {
    return static_cast<std::size_t>(
        std::count_if(side.ops.begin(), side.ops.end(), [](const Op& op) { return !op.is_input; }));
  }

  // How far apart two inputs are, where they are the same value; else nothing.
  std::optional<double> noise_between(const std::string& a, const std::string& b) const {
    if (a == b || a.empty() || b.empty()) return 0;
    const auto found = noise_of_a_.find(a);
    if (found == noise_of_a_.end()) return {};
    const auto partner = found->second.find(b);
    return partner == found->second.end() ? std::nullopt : std::optional(partner->second);
  }

  std::optional<double> noise_of_inputs(const Op& x, const Op& y) const {
    double noise = 0;
    for (std::size_t i = 0; i < x.inputs.size(); ++i) {
      const auto between = noise_between(x.inputs[i], y.inputs[i]);
      if (!between) return {};
      noise = std::max(noise, *between);
    }
    return noise;
  }

  void find_equal(Op& x) {
    if (b_.by_key.contains(x.key)) {
      x.has_equal = true;
      return;
    }
    const auto found = b_.by_shape.find(shape_key(x));
    if (found == b_.by_shape.end()) return;
    std::size_t tried = 0;
    for (const std::size_t index : found->second) {
      Op& y = b_.ops[index];
      if (y.is_input != x.is_input || a_.by_key.contains(y.key) || tried >= kMostCandidates) continue;
      const auto noise = noise_of_inputs(x, y);
      if (!noise) continue;
      ++tried;
      if (x.is_input && y.has_equal) continue;
      const compare::PairError error = values_.measure(x.item, y.item);
      if (!is_noise(error, x, *noise)) continue;
      x.has_equal = true;
      for (const std::size_t same : b_.by_key.at(y.key)) b_.ops[same].has_equal = true;  // made again of the same
      const double difference = std::max(*noise, error.relative());
      noise_of_a_[x.content].emplace(y.content, difference);
      noise_of_b_[y.content].emplace(x.content, difference);
      return;
    }
  }

  bool is_noise(const compare::PairError& error, const Op& x, double noise) const {
    if (!error.is_comparable || error.is_lower_bound) return false;
    const auto stage = x.place.phase == to_string(Phase::Backward) ? compare::Stage::Backward : compare::Stage::Forward;
    compare::Trust trust;
    trust.noise = noise;
    return judge_.is_noise(error, {.dtype = x.item.dtype, .stage = stage}, trust);
  }

  // Do all inputs have an equal in the other run? Sets whether one is a value that no operation has made.
  bool has_equal_inputs(const Op& op, const Side& own, const Side& other, const NoisyValues& noisy,
                        bool* is_unmade) const {
    bool all = true;
    for (const std::string& input : op.inputs) {
      if (input.empty() || other.contents.contains(input) || noisy.contains(input)) continue;
      all = false;
      *is_unmade = *is_unmade || unmade(own).contains(input);
    }
    return all;
  }

  const std::set<std::string>& unmade(const Side& side) const {
    auto& found = &side == &a_ ? unmade_a_ : unmade_b_;
    if (!found) {
      found.emplace();
      for (const Op& op : side.ops)
        if (op.is_input && !op.has_equal) found->insert(op.content);
    }
    return *found;
  }

  const Op* first_origin(const Side& own, const Side& other, const NoisyValues& noisy) const {
    for (const Op& op : own.ops) {
      if (op.is_input || op.has_equal) continue;
      bool is_unmade = false;
      if (has_equal_inputs(op, own, other, noisy, &is_unmade) || is_unmade) return &op;
    }
    return nullptr;
  }

  bool is_of_other_input(const Op* op, const Side& own, const Side& other, const NoisyValues& noisy) const {
    bool is_unmade = false;
    return op != nullptr && !has_equal_inputs(*op, own, other, noisy, &is_unmade);
  }

  // Is the same operation as `op`, with the same arguments, made in `side` of what `of` gives, directly or later?
  static bool is_made_of(const Op& op, const Op& of, const Side& side) {
    std::unordered_set<std::string> from = {of.content};
    for (const Op& each : side.ops) {
      if (each.place.event <= of.place.event) continue;
      const bool follows = std::any_of(each.inputs.begin(), each.inputs.end(),
                                       [&](const std::string& input) { return from.contains(input); });
      if (!follows) continue;
      if (each.place.full_op == op.place.full_op && each.place.args == op.place.args &&
          each.item.shape == op.item.shape)
        return true;
      from.insert(each.content);
    }
    return false;
  }

  // Does something that both runs make come after `x` in its run, and before `y` in the other?
  static bool is_before(const Op& x, const Side& own, const Op& y, const Side& other) {
    const auto first = static_cast<std::size_t>(&x - own.ops.data()) + 1;
    for (std::size_t i = first; i < own.ops.size(); ++i) {
      const Op& op = own.ops[i];
      const auto found = other.by_key.find(op.key);
      if (op.is_input || found == other.by_key.end()) continue;
      if (own.by_key.at(op.key).front() >= first && other.ops[found->second.front()].place.event < y.place.event)
        return true;
    }
    return false;
  }

  // The run that makes `y` lacks `x`: it comes to `y` later, or makes that of what the other makes of `x`.
  static bool is_only(const Op& x, const Side& own, const Op& y, const Side& other) {
    const bool is_first = is_before(x, own, y, other);
    if (is_first != is_before(y, other, x, own)) return is_first;
    return x.place.full_op != y.place.full_op && is_made_of(y, x, own);
  }

  // Of an operation whose inputs agree, and one of the other run that is made of something else: did the first run
  // before the second, which then only follows from it, by a way that was not recorded?
  static bool is_earlier(const Op& first, const Side& own, const Op& second, const Side& other) {
    const auto moment = [](const Op& op) {
      constexpr std::array kPhases = {Phase::Forward, Phase::Backward, Phase::Optimizer};
      const auto phase = std::ranges::find_if(kPhases, [&](Phase one) { return op.place.phase == to_string(one); });
      return std::pair(op.place.step, phase - kPhases.begin());
    };
    const bool have_phases = !first.place.phase.empty() && !second.place.phase.empty();
    if (have_phases && moment(first) != moment(second)) return moment(first) < moment(second);
    return is_before(first, own, second, other);
  }

  // Where an operation in a call of the module `called` has its reason: on the line that makes the call.
  static OpPlace place_of(const Op& op, const Side& side, const std::optional<std::string>& called) {
    OpPlace place = op.place;
    if (!called || place.phase != to_string(Phase::Forward)) return place;
    for (std::ptrdiff_t at = op.call; at >= 0;) {
      const Call& call = side.calls[static_cast<std::size_t>(at)];
      at = call.outer;
      if (call.path != *called) continue;
      if (!call.line || call.line->site == place.site) break;
      place.inside = std::exchange(place.site, call.line->site);
      place.function = call.line->function;
      place.text = call.line->text;
      place.assigns = call.line->assigns;
      place.module = at < 0 ? "" : side.calls[static_cast<std::size_t>(at)].path;
      break;
    }
    return place;
  }

  void tell(const Op* x, const Op* y, OpDiff& diff) const {
    if (x != nullptr && y != nullptr) {
      const bool x_follows = is_of_other_input(x, a_, b_, noise_of_a_),
                 y_follows = is_of_other_input(y, b_, a_, noise_of_b_);
      if (y_follows && !x_follows && is_earlier(*x, a_, *y, b_)) y = nullptr;
      if (x_follows && !y_follows && is_earlier(*y, b_, *x, a_)) x = nullptr;
    }
    const bool is_pair = x != nullptr && y != nullptr && x->place.op == y->place.op && x->item.shape == y->item.shape &&
                         x->item.is_tensor() == y->item.is_tensor();
    if (is_of_other_input(x, a_, b_, noise_of_a_) || is_of_other_input(y, b_, a_, noise_of_b_)) {
      diff.verdict = OpVerdict::OtherInput;
    } else if (is_pair && x->inputs.size() == y->inputs.size() && noise_of_inputs(*x, *y)) {
      diff.verdict = OpVerdict::Differs;
    } else if (y == nullptr || (x != nullptr && is_only(*x, a_, *y, b_))) {
      diff.verdict = OpVerdict::OnlyInA;
      if (y != nullptr) diff.next_b = y->place;
      y = nullptr;
    } else if (x == nullptr || is_only(*y, b_, *x, a_)) {
      diff.verdict = OpVerdict::OnlyInB;
      if (x != nullptr) diff.next_a = x->place;
      x = nullptr;
    } else {
      diff.verdict = is_pair ? OpVerdict::Differs : OpVerdict::Other;
      diff.are_inputs_exchanged = is_pair;
    }
    if (x != nullptr) diff.a = place_of(*x, a_, options_.called_a);
    if (y != nullptr) diff.b = place_of(*y, b_, options_.called_b);
    const std::optional<OpPlace>& blamed = diff.a ? diff.a : diff.b;
    if (blamed && blamed->phase == to_string(Phase::Optimizer)) diff.options = other_options();
    if (is_pair && diff.a && diff.b) diff.metrics = values_.describe(x->item, y->item);
    for (const Op* op : {x, y}) {
      const NoisyValues& noisy = op == x ? noise_of_a_ : noise_of_b_;
      if (op == nullptr) continue;
      for (const std::string& input : op->inputs)
        if (noisy.contains(input)) diff.are_inputs_equal = false;
    }
  }

  std::vector<OptimizerOption> other_options() const {
    std::vector<OptimizerOption> found;
    for (const auto& [name, value] : a_.optimizer) {
      const auto other = b_.optimizer.find(name);
      if (other == b_.optimizer.end())
        found.push_back({name, value, {}});
      else if (other->second != value)
        found.push_back({name, value, other->second});
    }
    for (const auto& [name, value] : b_.optimizer)
      if (!a_.optimizer.contains(name)) found.push_back({name, {}, value});
    return found;
  }

  Side& a_;
  Side& b_;
  compare::ReaderSource source_a_, source_b_;
  const OpDiffOptions& options_;
  mutable compare::RunValues values_;
  compare::NoiseJudge judge_{std::nullopt};
  NoisyValues noise_of_a_, noise_of_b_;  // contents that have an equal but for noise: the other side's, and how much
  mutable std::optional<std::set<std::string>> unmade_a_, unmade_b_;
};

}  // namespace

std::string_view to_string(OpVerdict verdict) noexcept {
  constexpr std::array<std::string_view, 8> kNames = {"nothing", "same",      "noise",     "differs",
                                                      "other",   "only_in_a", "only_in_b", "other_input"};
  return kNames[static_cast<std::size_t>(verdict)];
}

OpDiff diff_operations(const std::filesystem::path& a, const std::filesystem::path& b, const OpDiffOptions& options) {
  compare::Interner interner;
  Side side_a = read_side(a, options, interner), side_b = read_side(b, options, interner);
  return OpMatcher(side_a, side_b, interner, options).match();
}

}  // namespace tenscope
