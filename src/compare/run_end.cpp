// Overview. Behind the last pair of events a lane may have more: the other run ended earlier. Not everything that is
// left over says so: a module that one run alone has, or a tensor that it alone records, may stand last. What does is a
// call of a module that both have, a backward, or one more value of a name that was paired before; unless that run
// makes calls of its own in between as well (an evaluation after each epoch): then one more at the end is another of
// these.
#include "compare/run_end.hpp"

#include <unordered_map>
#include <unordered_set>

namespace tenscope::compare {
namespace {

// The first event behind the last pair by which a run goes on, or kNothing.
class Tail {
 public:
  Tail(const Lane& lane, const std::vector<std::int64_t>& partner, const std::vector<bool>& is_shared,
       const ModuleTree& tree)
      : items_(lane.items), is_shared_(is_shared), tree_(tree) {
    std::unordered_map<std::uint64_t, int> depth;  // by thread
    std::size_t extra_calls = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (item.kind == EventKind::Enter && depth[item.thread]++ == 0 && partner[i] == kAlone && is_shared_call(item))
        ++extra_calls;
      if (item.kind == EventKind::Exit) --depth[item.thread];
      if (partner[i] == kAlone || item.kind == EventKind::Exit) continue;  // a raise ends every call around it
      end_ = i + 1;
      makes_extra_calls_ = extra_calls > 0;
      if (item.root == 0) known_.insert(item.name);
    }
  }

  std::int64_t find() const {
    if (makes_extra_calls_) return kNothing;
    for (std::size_t i = end_; i < items_.size(); ++i)
      if (goes_on(items_[i])) return static_cast<std::int64_t>(i);
    return kNothing;
  }

  bool has_pairs() const { return end_ > 0; }

 private:
  bool goes_on(const Item& item) const {
    if (item.root == 0) return is_value(item) && known_.contains(item.name);
    return (item.kind == EventKind::Enter || item.io == Io::Loss) && is_shared_call(item);
  }

  bool is_shared_call(const Item& item) const {
    const int node = item.root == 0 ? -1 : tree_.find(item.root, item.scope);
    return node >= 0 && is_shared_[static_cast<std::size_t>(node)];
  }

  const std::vector<Item>& items_;
  const std::vector<bool>& is_shared_;
  const ModuleTree& tree_;
  std::size_t end_ = 0;
  bool makes_extra_calls_ = false;    // outermost ones that the other run does not make, before the last pair
  std::unordered_set<TextId> known_;  // names without a module that were paired
};

std::vector<bool> shared(const std::vector<int>& partner) {
  std::vector<bool> result;
  for (const int other : partner) result.push_back(other >= 0);
  return result;
}

// The innermost call that an exception ended at the end of a lane, or kNothing.
std::int64_t raising_call(const Lane& lane) {
  std::int64_t innermost = kNothing;
  for (std::size_t i = lane.items.size(); i-- > 0;) {
    const Item& item = lane.items[i];
    if (item.kind == EventKind::Exit && item.text != 0)
      innermost = static_cast<std::int64_t>(i);
    else if (is_pairable(item))
      break;
  }
  return innermost;
}

}  // namespace

TextId exception_of(const Lane& lane, const Interner& interner) {
  for (auto item = lane.items.rbegin(); item != lane.items.rend(); ++item) {
    if (item->kind == EventKind::Note && interner.text(item->name) == kExceptionNote) return item->text;
    if (item->kind == EventKind::Exit) return item->text;  // 0: the call ended in order
    if (is_value(*item) || item->kind == EventKind::Enter) break;
  }
  return 0;
}

std::optional<Origin> find_end(const LaneState& state) {
  const LanePair& pair = state.pair;
  const std::vector<bool> shared_a = shared(state.alignment.module_to_b),
                          shared_b = shared(state.alignment.module_to_a);
  const Tail tail_a(*pair.a, pair.to_b, shared_a, state.alignment.tree_a),
      tail_b(*pair.b, pair.to_a, shared_b, state.alignment.tree_b);
  if (!tail_a.has_pairs()) return std::nullopt;  // nothing was compared
  const Observation next{tail_a.find(), tail_b.find()};
  const TextId raised[] = {exception_of(*pair.a, state.interner), exception_of(*pair.b, state.interner)};
  if (next.a != kNothing && next.b != kNothing) return std::nullopt;  // both go on, with something else
  DiffReason reason{.cause = DiffCause::End};
  if (next.a == kNothing && next.b == kNothing) {
    if ((raised[0] == 0) == (raised[1] == 0)) return std::nullopt;
    reason.ended = raised[0] != 0 ? 0 : 1;
    reason.exception = state.text(raised[reason.ended]);
    const Observation last{state.last_agreeing != kNothing ? state.last_agreeing : 0, kNothing};
    return state.make_origin(last, "", std::move(reason), {});
  }
  reason.ended = next.a == kNothing ? 0 : 1;
  reason.exception = state.text(raised[reason.ended]);
  const std::int64_t raising = raising_call(reason.ended == 0 ? *pair.a : *pair.b);
  const Observation raised_at = reason.ended == 0 ? Observation{raising, kNothing} : Observation{kNothing, raising};
  const std::string module = state.module_path(state.node_of(raising != kNothing ? raised_at : next));
  reason.module = module;
  return state.make_origin(next, module, std::move(reason), {});
}

}  // namespace tenscope::compare
