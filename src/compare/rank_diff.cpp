// diff_ranks: what should be equal across the ranks of one run and is not.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compare/run_values.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {

namespace fs = std::filesystem;
using compare::Item;

std::vector<RankDifference> diff_ranks(const fs::path& run) {
  const Reader reader(run);
  compare::Interner interner;
  const compare::Timeline timeline = compare::read_timeline(reader, interner);
  if (timeline.lanes.size() < 2)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot compare ranks: the run has only one: {}", run.string()));
  compare::RunValues values(reader, reader, interner);

  // What a tensor was at a moment of a rank's own time; `nth` counts events within a phase of a step.
  struct Key {
    compare::TextId root, name;
    compare::Io io;
    std::int64_t step;
    compare::Phase phase;
    int nth;
    auto operator<=>(const Key&) const = default;
    bool is_of(const Key& other) const { return root == other.root && name == other.name && io == other.io; }
  };
  std::map<Key, const Item*> reference;
  // Gradients that are still being accumulated may differ: the last backward of a step counts.
  std::map<std::int64_t, std::int64_t> last_backward;
  for (const compare::Lane& lane : timeline.lanes)
    for (const Item& item : lane.items)
      if (item.io == compare::Io::Grad) last_backward[item.step] = std::max(last_backward[item.step], item.call);
  const auto is_shared = [&](const Item& item) {
    if (!item.is_tensor()) return false;
    if (item.io == compare::Io::Grad) return item.call == last_backward[item.step];
    return item.io == compare::Io::Param || item.io == compare::Io::Buffer;
  };
  std::map<Key, int> counts;
  const auto key_of = [&](const Item& item) {
    Key key{item.root, item.name, item.io, item.step, item.phase, 0};
    key.nth = counts[key]++;
    return key;
  };
  for (const Item& item : timeline.lanes[0].items)
    if (is_shared(item)) reference.emplace(key_of(item), &item);
  // Parameters and buffers are recorded when they change: where the other rank has no such event, its last one counts.
  const auto counterpart = [&](const Key& key) -> const Item* {
    auto after = reference.upper_bound(key);
    if (after == reference.begin()) return nullptr;
    const auto& [other, item] = *std::prev(after);
    return other == key || (key.io != compare::Io::Grad && other.is_of(key)) ? item : nullptr;
  };

  std::map<std::pair<compare::TextId, compare::Io>, std::size_t> found;  // by name and role, into result
  std::vector<RankDifference> result;
  for (std::size_t lane = 1; lane < timeline.lanes.size(); ++lane) {
    counts.clear();
    for (const Item& item : timeline.lanes[lane].items) {
      if (!is_shared(item)) continue;
      const Item* other = counterpart(key_of(item));
      if (other == nullptr || compare::is_same_value(*other, item)) continue;
      const auto [place, is_new] = found.try_emplace({item.name, item.io}, result.size());
      const int rank = timeline.lanes[lane].rank;
      if (is_new) {
        RankDifference difference;
        difference.place = {.root = std::string(interner.text(item.root)),
                            .module = std::string(interner.text(item.scope)),
                            .name = std::string(interner.text(item.name)),
                            .io = std::string(to_string(item.io)),
                            .phase = std::string(to_string(item.phase)),
                            .cls = std::string(interner.text(item.cls)),
                            .site = {},
                            .step = item.step,
                            .call = item.call,
                            .rank = rank};
        difference.ranks.push_back(rank);
        difference.rel_max = values.measure(*other, item).relative();
        result.push_back(std::move(difference));
        continue;
      }
      RankDifference& difference = result[place->second];
      if (std::find(difference.ranks.begin(), difference.ranks.end(), rank) == difference.ranks.end())
        difference.ranks.push_back(rank);
      if (item.step < difference.place.step) difference.place.step = item.step;
    }
  }
  // Buffers (running statistics) are often each rank's own: they stand last.
  std::stable_sort(result.begin(), result.end(), [](const RankDifference& x, const RankDifference& y) {
    return std::pair(x.place.io == "buffer", x.place.step) < std::pair(y.place.io == "buffer", y.place.step);
  });
  return result;
}

}  // namespace tenscope
