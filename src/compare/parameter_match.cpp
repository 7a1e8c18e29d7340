// Overview. Names do not suffice for parameters and their gradients in two cases.
//
// A tied parameter is recorded once, under the first of its names, and which is the first may differ: embed.weight in
// one run, head.weight in the other. Parameters of equal initial numbers that no other parameter of their run has are
// the same one.
//
// The gradients of one step may be made by one backward() in one run and by several in the other. The losses and the
// gradients in between are other things then; the gradients after the last backward() of the step are the same.
#include "compare/parameter_match.hpp"

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "compare/call_key.hpp"

namespace tenscope::compare {
namespace {

bool is_of_parameter(const Item& item) { return item.io == Io::Param || item.io == Io::Grad; }

bool is_of_backward(const Item& item) {
  return item.io == Io::Loss || (item.io == Io::Grad && item.phase == Phase::Backward);
}

class ParameterMatch {
 public:
  ParameterMatch(const Alignment& alignment, LanePair& pair)
      : alignment_(alignment), pair_(pair), a_(pair.a->items), b_(pair.b->items) {}

  void match() {
    match_aliases();
    match_uneven_backwards();
  }

 private:
  using Parameter = std::pair<int, TextId>;                                     // node of its own run, name in it
  using Moment = std::tuple<Parameter, Io, Phase, std::int64_t, std::int64_t>;  // step, call

  void join(std::size_t i, std::size_t j) {
    pair_.to_b[i] = static_cast<std::int64_t>(j);
    pair_.to_a[j] = static_cast<std::int64_t>(i);
  }

  Parameter parameter_of_a(const Item& item) const {
    return {alignment_.tree_a.find(item.root, item.scope), item.parameter};
  }
  Parameter parameter_of_b(const Item& item) const {
    return {alignment_.tree_b.find(item.root, item.scope), item.parameter};
  }

  // Initial parameters without a partner, by their numbers; kAlone where several have the same.
  static std::map<std::pair<std::uint64_t, std::uint64_t>, std::int64_t> lone_initial(
      const std::vector<Item>& items, const std::vector<std::int64_t>& partner) {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::int64_t> found;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      if (item.io != Io::Param || item.phase != Phase::Init || item.root == 0 || !item.is_tensor()) continue;
      if (partner[i] != kAlone || item.abs_max == 0) continue;
      const auto [place, is_new] =
          found.try_emplace({item.fingerprint.low, item.fingerprint.high}, static_cast<std::int64_t>(i));
      if (!is_new) place->second = kAlone;
    }
    return found;
  }

  void match_aliases() {
    const auto lone_a = lone_initial(a_, pair_.to_b), lone_b = lone_initial(b_, pair_.to_a);
    std::map<Parameter, Parameter> alias;
    for (const auto& [numbers, i] : lone_a) {
      const auto other = lone_b.find(numbers);
      if (other == lone_b.end() || i == kAlone || other->second == kAlone) continue;
      const Item &x = a_[static_cast<std::size_t>(i)], &y = b_[static_cast<std::size_t>(other->second)];
      if (is_same_value(x, y)) alias.emplace(parameter_of_a(x), parameter_of_b(y));
    }
    if (alias.empty()) return;
    std::map<Moment, std::size_t> in_b;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      const CallNumber number = pair_.number_of_b(j);
      if (pair_.to_a[j] == kAlone && is_of_parameter(b_[j]) && number.has_partner)
        in_b.emplace(Moment{parameter_of_b(b_[j]), b_[j].io, b_[j].phase, number.step, number.call}, j);
    }
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (pair_.to_b[i] != kAlone || !is_of_parameter(a_[i])) continue;
      const auto found = alias.find(parameter_of_a(a_[i]));
      if (found == alias.end()) continue;
      const auto other = in_b.find(Moment{found->second, a_[i].io, a_[i].phase, a_[i].step, a_[i].call});
      if (other == in_b.end()) continue;
      join(i, other->second);
      in_b.erase(other);
    }
  }

  std::int64_t step_of_b(std::size_t j) const { return pair_.number_of_b(j).step; }

  // Steps that both have, with another number of backwards.
  std::set<std::int64_t> uneven_steps() const {
    std::map<std::int64_t, std::set<std::int64_t>> calls_a, calls_b;
    for (const Item& item : a_)
      if (is_of_backward(item)) calls_a[item.step].insert(item.call);
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (is_of_backward(b_[j])) calls_b[step_of_b(j)].insert(b_[j].call);
    std::set<std::int64_t> uneven;
    for (const auto& [step, calls] : calls_a) {
      const auto other = calls_b.find(step);
      if (other != calls_b.end() && other->second.size() != calls.size()) uneven.insert(step);
    }
    return uneven;
  }

  void match_uneven_backwards() {
    pair_.uneven_steps = uneven_steps();
    if (pair_.uneven_steps.empty()) return;
    std::map<Moment, std::size_t> last_a, last_b;  // of each parameter and step
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (!is_unmade(a_[i], a_[i].step)) continue;
      if (pair_.to_b[i] != kAlone) pair_.to_a[static_cast<std::size_t>(pair_.to_b[i])] = kAlone;
      pair_.to_b[i] = kAlone;
      const int node = alignment_.node_of_a(a_[i]);
      if (a_[i].io == Io::Grad && node >= 0)
        last_a[{{node, a_[i].parameter}, Io::Grad, a_[i].phase, a_[i].step, 0}] = i;
    }
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (!is_unmade(b_[j], step_of_b(j))) continue;
      if (pair_.to_a[j] != kAlone) pair_.to_b[static_cast<std::size_t>(pair_.to_a[j])] = kAlone;
      pair_.to_a[j] = kAlone;
      const int node = alignment_.node_of_b(b_[j]);
      if (b_[j].io == Io::Grad && node >= 0)
        last_b[{{node, b_[j].parameter}, Io::Grad, b_[j].phase, step_of_b(j), 0}] = j;
    }
    for (const auto& [moment, i] : last_a)
      if (const auto other = last_b.find(moment); other != last_b.end()) join(i, other->second);
  }

  bool is_unmade(const Item& item, std::int64_t step) const {
    return (is_of_backward(item) || item.io == Io::Grad) && pair_.uneven_steps.contains(step);
  }

  const Alignment& alignment_;
  LanePair& pair_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;
};

}  // namespace

void match_parameters(const Alignment& alignment, LanePair& pair) { ParameterMatch(alignment, pair).match(); }

}  // namespace tenscope::compare
