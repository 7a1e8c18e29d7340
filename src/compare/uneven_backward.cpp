#include "compare/uneven_backward.hpp"

#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace tenscope::compare {
namespace {

using Steps = std::map<std::int64_t, std::set<std::int64_t>>;  // calls of backward(), by step
using Moment = std::tuple<int, TextId, Phase, std::int64_t>;   // node, parameter, step

bool is_of_backward(const Item& item) {
  return item.io == Io::Loss || (item.io == Io::Grad && item.phase == Phase::Backward);
}

// How far a run came.
struct Reached {
  std::int64_t step = std::numeric_limits<std::int64_t>::min();
  bool is_updated = false;  // the optimizer's step was made there

  void add(const Item& item, std::int64_t at) {
    if (at < step || !item.is_tensor()) return;
    if (at > step) *this = {at, false};
    is_updated |= item.phase == Phase::Optimizer && item.io == Io::Param;
  }
  // Whether it ended in the midst of this step, while the other went on: there may have been more backwards to come.
  bool is_cut_in(std::int64_t in, const Reached& other) const {
    return step == in && !is_updated && (other.step > in || other.is_updated);
  }
};

}  // namespace

void match_uneven_backwards(const Alignment& alignment, LanePair& pair) {
  const std::vector<Item>&a = pair.a->items, &b = pair.b->items;
  const auto step_of_b = [&](std::size_t j) { return pair.number_of_b(j).step; };
  Steps calls_a, calls_b;
  Reached reached_a, reached_b;
  for (const Item& item : a) {
    if (is_of_backward(item)) calls_a[item.step].insert(item.call);
    reached_a.add(item, item.step);
  }
  for (std::size_t j = 0; j < b.size(); ++j) {
    if (is_of_backward(b[j])) calls_b[step_of_b(j)].insert(b[j].call);
    reached_b.add(b[j], step_of_b(j));
  }
  for (const auto& [step, calls] : calls_a) {
    const auto other = calls_b.find(step);
    if (other == calls_b.end() || other->second.size() == calls.size()) continue;
    const bool is_b_fewer = other->second.size() < calls.size();
    const bool is_cut = is_b_fewer ? reached_b.is_cut_in(step, reached_a) : reached_a.is_cut_in(step, reached_b);
    if (!is_cut) pair.uneven_steps.insert(step);
  }
  if (pair.uneven_steps.empty()) return;

  const auto is_unmade = [&](const Item& item, std::int64_t step) {
    return (item.io == Io::Loss || item.io == Io::Grad) && pair.uneven_steps.contains(step);
  };
  std::map<Moment, std::size_t> last_a, last_b;  // gradients of each parameter and step
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!is_unmade(a[i], a[i].step)) continue;
    if (pair.to_b[i] != kAlone) pair.to_a[static_cast<std::size_t>(pair.to_b[i])] = kAlone;
    pair.to_b[i] = kAlone;
    const ParameterKey key = alignment.parameter_of_a(a[i]);
    if (a[i].io == Io::Grad && key.node >= 0) last_a[{key.node, key.name, a[i].phase, a[i].step}] = i;
  }
  for (std::size_t j = 0; j < b.size(); ++j) {
    if (!is_unmade(b[j], step_of_b(j))) continue;
    if (pair.to_a[j] != kAlone) pair.to_b[static_cast<std::size_t>(pair.to_a[j])] = kAlone;
    pair.to_a[j] = kAlone;
    const ParameterKey key = alignment.parameter_of_b(b[j]);
    if (b[j].io == Io::Grad && key.node >= 0) last_b[{key.node, key.name, b[j].phase, step_of_b(j)}] = j;
  }
  for (const auto& [moment, i] : last_a)
    if (const auto other = last_b.find(moment); other != last_b.end()) {
      pair.to_b[i] = static_cast<std::int64_t>(other->second);
      pair.to_a[other->second] = static_cast<std::int64_t>(i);
    }
}

}  // namespace tenscope::compare
