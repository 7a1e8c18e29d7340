#include "compare/origin_groups.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

class Grouper {
 public:
  explicit Grouper(LaneState& state) : state_(state) {}

  std::vector<Origin> group() {
    for (Origin& origin : state_.origins) add(std::move(origin));
    state_.origins.clear();
    mark_those_of_all();
    sort();
    std::vector<Origin> origins;
    for (Member& member : result_) origins.push_back(std::move(member.origin));
    return origins;
  }

 private:
  using Rank = std::tuple<bool, std::uint64_t, std::size_t>;
  using Key = std::tuple<std::int64_t, Phase, bool, std::int64_t, std::string>;
  struct Member {
    Origin origin;
    Rank rank;
  };

  const Item& item_of(const Origin& origin) const { return state_.item_of(observed(origin)); }

  static Observation observed(const Origin& origin) {
    return {origin.is_change_in_b ? kNothing : origin.seen.a, origin.seen.b};
  }

  static bool is_groupable(const Origin& origin, const Item& item) {
    if (origin.reason.cause == DiffCause::End) return false;
    return item.io == Io::Param || item.io == Io::Grad || (item.io == Io::Buffer && item.phase == Phase::Init);
  }

  // Of initial values the one that is used first comes first, but those that are another draw of the same distribution
  // come last; of gradients and parameters the first of the model.
  Rank rank(const Origin& origin) const {
    const int node = state_.node_of(observed(origin));
    const bool is_initial = item_of(origin).phase == Phase::Init && node >= 0;
    const std::uint64_t order = is_initial ? state_.alignment.tree_a.nodes[static_cast<std::size_t>(node)].order : 0;
    const std::size_t among_parameters = state_.parameter_order(observed(origin));
    const bool is_another_draw = origin.distribution && origin.distribution->is_another_draw();
    return {is_another_draw, order,
            among_parameters == std::numeric_limits<std::size_t>::max() ? origin.position : among_parameters};
  }

  void add(Origin origin) {
    const Item& item = item_of(origin);
    const Rank own = rank(origin);
    if (!is_groupable(origin, item)) {
      result_.push_back({std::move(origin), own});
      return;
    }
    const bool is_gradient = item.io == Io::Grad;
    // Wrong weights of different modules are different places.
    const auto [place, is_new] =
        groups_.try_emplace(Key{item.step, item.phase, is_gradient, is_gradient ? item.call : 0,
                                item.phase == Phase::Init ? origin.blamed : std::string()},
                            result_.size());
    if (is_new) {
      result_.push_back({std::move(origin), own});
      return;
    }
    Member& head = result_[place->second];
    const std::size_t tensors = head.origin.tensors + 1, position = std::min(head.origin.position, origin.position);
    if (own < head.rank) head = {std::move(origin), own};
    head.origin.tensors = tensors;
    head.origin.position = position;
  }

  // Where all parameters begin to differ together, it is no single module's doing.
  void mark_those_of_all() {
    for (const auto& [key, index] : groups_) {
      Origin& origin = result_[index].origin;
      const Item& item = item_of(origin);
      if (item.phase != Phase::Backward && item.phase != Phase::Optimizer) continue;
      std::vector<double> sizes;
      for (const Item& other : state_.a)
        if (other.io == item.io && other.phase == item.phase && other.step == item.step &&
            (item.io != Io::Grad || other.call == item.call))
          sizes.push_back(other.abs_max);
      // A gradient of nothing but rounding (of a key's bias, say) may agree by chance.
      const double largest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
      const auto telling = static_cast<std::size_t>(std::ranges::count_if(
          sizes, [&](double size) { return item.io != Io::Grad || size > thresholds::kGradientOfNothing * largest; }));
      origin.reason.is_of_all = origin.tensors > 1 && origin.tensors >= telling;
    }
  }

  // By position; initial values of one step stand together, where the first of them stands, in the order of their use.
  void sort() {
    std::map<std::int64_t, std::size_t> initial;  // position of the first, by step
    const auto is_initial = [](const Member& member) { return member.origin.phase == Phase::Init; };
    for (const Member& member : result_)
      if (is_initial(member)) {
        const auto [place, is_new] = initial.try_emplace(member.origin.step, member.origin.position);
        if (!is_new) place->second = std::min(place->second, member.origin.position);
      }
    const auto key = [&](const Member& member) {
      const Origin& origin = member.origin;
      if (!is_initial(member)) return std::tuple(origin.position, false, Rank{});
      return std::tuple(initial.at(origin.step), true, member.rank);
    };
    std::stable_sort(result_.begin(), result_.end(), [&](const Member& x, const Member& y) { return key(x) < key(y); });
  }

  LaneState& state_;
  std::map<Key, std::size_t> groups_;
  std::vector<Member> result_;
};

}  // namespace

std::vector<Origin> group_origins(LaneState& state) { return Grouper(state).group(); }

void sort_origins(std::vector<Origin>& origins) {
  const auto key = [](const Origin& origin) {
    const bool is_initial = origin.phase == Phase::Init && origin.step == 0;
    return std::pair(!is_initial, is_initial ? 0 : origin.position);
  };
  std::stable_sort(origins.begin(), origins.end(), [&](const Origin& x, const Origin& y) { return key(x) < key(y); });
}

}  // namespace tenscope::compare
