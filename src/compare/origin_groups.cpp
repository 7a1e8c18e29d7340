#include "compare/origin_groups.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace tenscope::compare {
namespace {

class Grouper {
 public:
  Grouper(const LaneWalker& walker, const ModuleTree& tree) : walker_(walker), tree_(tree) {}

  std::vector<Origin> group(std::vector<Origin> origins) {
    for (Origin& origin : origins) add(std::move(origin));
    std::stable_sort(result_.begin(), result_.end(), [&](const Origin& x, const Origin& y) {
      const bool are_initial = x.phase == Phase::Init && y.phase == Phase::Init && x.step == y.step;
      return are_initial ? rank(x) < rank(y) : x.position < y.position;
    });
    return std::move(result_);
  }

 private:
  using Key = std::tuple<std::int64_t, Phase, bool, std::int64_t, std::string>;

  const Item& item_of(const Origin& origin) const {
    return walker_.item_of({origin.is_change_in_b ? kNothing : origin.a, origin.b});
  }

  static bool is_groupable(const Item& item) {
    return item.io == Io::Param || item.io == Io::Grad || (item.io == Io::Buffer && item.phase == Phase::Init);
  }

  // Of initial values the one that is used first comes first, of gradients and parameters the first of the model.
  std::tuple<std::uint64_t, std::size_t> rank(const Origin& origin) const {
    const Item& item = item_of(origin);
    const int node = item.root == 0 ? -1 : tree_.find(item.root, item.scope);
    const std::uint64_t order =
        item.phase == Phase::Init && node >= 0 ? tree_.nodes[static_cast<std::size_t>(node)].order : 0;
    const std::size_t among_parameters = walker_.parameter_order(item);
    return {order, among_parameters == std::numeric_limits<std::size_t>::max() ? origin.position : among_parameters};
  }

  void add(Origin origin) {
    const Item& item = item_of(origin);
    if (!is_groupable(item)) {
      result_.push_back(std::move(origin));
      return;
    }
    const bool is_gradient = item.io == Io::Grad;
    // Wrong weights of different modules are different places.
    const auto [place, is_new] =
        groups_.try_emplace(Key{item.step, item.phase, is_gradient, is_gradient ? item.call : 0,
                                item.phase == Phase::Init ? origin.blamed : std::string()},
                            result_.size());
    if (is_new) {
      result_.push_back(std::move(origin));
      return;
    }
    Origin& head = result_[place->second];
    const std::size_t tensors = head.tensors + 1, position = std::min(head.position, origin.position);
    if (rank(origin) < rank(head)) head = std::move(origin);
    head.tensors = tensors;
    head.position = position;
  }

  const LaneWalker& walker_;
  const ModuleTree& tree_;
  std::map<Key, std::size_t> groups_;
  std::vector<Origin> result_;
};

}  // namespace

std::vector<Origin> group_origins(std::vector<Origin> origins, const LaneWalker& walker, const ModuleTree& tree) {
  return Grouper(walker, tree).group(std::move(origins));
}

void drop_what_other_ranks_caused(std::vector<Origin>& origins) {
  struct Forward {
    std::size_t lane;
    std::int64_t step;
  };
  std::vector<Forward> forward;
  for (const Origin& origin : origins)
    if (origin.phase == Phase::Forward) forward.push_back({origin.lane, origin.step});
  std::erase_if(origins, [&](const Origin& origin) {
    const bool is_exchanged = origin.phase == Phase::Backward || origin.phase == Phase::Optimizer;
    return is_exchanged && std::any_of(forward.begin(), forward.end(), [&](const Forward& cause) {
             return cause.lane != origin.lane && cause.step <= origin.step;
           });
  });
}

}  // namespace tenscope::compare
