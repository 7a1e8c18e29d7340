#include "compare/observations.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compare/call_key.hpp"

namespace tenscope::compare {
namespace {

bool is_gradient(const Item& item) {
  return item.io == Io::Grad || item.io == Io::GradOutput || item.io == Io::GradInput;
}

bool is_initial(const Item& item) { return item.io == Io::Param && item.phase == Phase::Init; }

class Lister {
  using CallSet = std::unordered_set<CallKey, CallKeyHash>;

 public:
  Lister(const Alignment& alignment, const LanePair& pair, const Interner& interner)
      : alignment_(alignment), pair_(pair), interner_(interner), a_(pair.a->items), b_(pair.b->items) {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (pair.to_b[i] == kAlone) continue;
      last_paired_a_ = i;
      last_paired_b_ = std::max(last_paired_b_, static_cast<std::size_t>(pair.to_b[i]));
      if (a_[i].io == Io::Param && a_[i].phase == Phase::Optimizer) updated_steps_.insert(a_[i].step);
    }
    for (std::size_t i = 0; i < a_.size(); ++i)
      if (is_initial(a_[i]) && pair.to_b[i] == kAlone) lone_parameters_.insert(alignment.parameter_of_a(a_[i]));
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (is_initial(b_[j]) && pair.to_a[j] == kAlone) lone_parameters_.insert(alignment.parameter_of_b(b_[j]));
  }

  std::vector<Observation> list() {
    std::unordered_map<std::size_t, std::vector<std::int64_t>> only_b;  // after which item of a
    std::size_t after = 0;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (pair_.to_a[j] != kAlone)
        after = static_cast<std::size_t>(pair_.to_a[j]);
      else if (j < last_paired_b_ && is_telling(b_[j], pair_.number_of_b(j).step, key_of_b(j)))
        only_b[after].push_back(static_cast<std::int64_t>(j));
    }
    std::vector<Observation> observations;
    observations.reserve(a_.size());
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const bool is_paired = pair_.to_b[i] != kAlone;
      if (is_paired || a_[i].kind == EventKind::Enter || a_[i].kind == EventKind::Exit ||
          (i < last_paired_a_ && is_telling(a_[i], a_[i].step, key_of_a(i))))
        observations.push_back({static_cast<std::int64_t>(i), pair_.to_b[i]});
      if (const auto more = pair_.further.find(i); more != pair_.further.end())
        for (const std::int64_t j : more->second) observations.push_back({static_cast<std::int64_t>(i), j});
      if (only_b.empty()) continue;
      if (const auto found = only_b.find(i); found != only_b.end())
        for (const std::int64_t j : found->second) observations.push_back({kNothing, j});
    }
    return observations;
  }

 private:
  // The module call of an event; node -1 where the module is not in both runs.
  CallKey key_of_a(std::size_t i) const {
    return {alignment_.is_shared(a_[i]) ? alignment_.node_of_a(a_[i]) : -1, a_[i].call};
  }

  CallKey key_of_b(std::size_t j) const {
    const CallNumber number = pair_.number_of_b(j);
    return {number.has_partner ? alignment_.node_of_b(b_[j]) : -1, number.call};
  }

  // An event on one side only, of a module of both.
  bool is_telling(const Item& item, std::int64_t step, const CallKey& key) const {
    if (!item.is_tensor() || key.node < 0) return false;
    if (Alignment::is_of_parameter(item) && lone_parameters_.contains({key.node, item.parameter})) return false;
    if (item.io == Io::Grad) return !pair_.uneven_steps.contains(step);
    if (is_gradient(item)) return true;
    if (item.io == Io::Param) return item.phase == Phase::Optimizer && updated_steps_.contains(item.step);
    const bool is_changed_buffer = item.io == Io::Buffer && item.phase != Phase::Init;
    if (item.io != Io::Input && !is_changed_buffer && !is_changed_input(item, interner_)) return false;
    return paired_calls().contains(key);
  }

  const CallSet& paired_calls() const {
    if (paired_calls_.empty())
      for (std::size_t i = 0; i < a_.size(); ++i)
        if (a_[i].kind == EventKind::Enter && pair_.to_b[i] != kAlone) paired_calls_.insert(key_of_a(i));
    return paired_calls_;
  }

  const Alignment& alignment_;
  const LanePair& pair_;
  const Interner& interner_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;
  std::size_t last_paired_a_ = 0, last_paired_b_ = 0;
  std::unordered_set<std::int64_t> updated_steps_;  // after which both have updated parameters
  // That one run alone has, or that cannot be told from others: its gradients are in that run alone too.
  std::unordered_set<ParameterKey, ParameterKeyHash> lone_parameters_;
  mutable CallSet paired_calls_;  // filled when it is first asked for
};

}  // namespace

std::vector<Observation> list_observations(const Alignment& alignment, const LanePair& pair, const Interner& interner) {
  return Lister(alignment, pair, interner).list();
}

bool is_changed_input(const Item& item, const Interner& interner) {
  return item.is_tensor() && tenscope::is_changed_input(interner.text(item.tail), {}, item.io);
}

}  // namespace tenscope::compare
