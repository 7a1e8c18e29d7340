// diff_ranks: what should be equal across the ranks of one run and is not. Compared are ranks that hold the same part
// of a tensor: the whole one, the same shard of a DTensor, the same pipeline stage, the same part of what was cut by
// hand (hand_made_parts.cpp).
#include "compare/rank_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "compare/hand_made_parts.hpp"
#include "compare/pipeline_stage.hpp"
#include "compare/run_values.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {

namespace fs = std::filesystem;
using compare::Item;

namespace {

// What a tensor was at a moment of a rank's own time; `nth` counts events within a phase of a step.
struct Tensor {
  compare::TextId root, name;
  compare::Io io;
  compare::TextId part;  // which of its parts, or which stage's it is
  auto operator<=>(const Tensor&) const = default;
};
struct Moment {
  Tensor tensor;
  std::int64_t step;
  compare::Phase phase;
  int nth;
  auto operator<=>(const Moment&) const = default;
};

class RankComparison {
 public:
  RankComparison(const Reader& reader, RankCoverage& coverage)
      : timeline_(compare::read_timeline(reader, interner_)),
        source_(reader),
        values_(source_, source_, interner_),
        coverage_(coverage) {}

  std::size_t ranks() const { return timeline_.lanes.size(); }

  std::vector<RankDifference> compare() {
    find_last_gradients();
    hand_made_ = compare::find_hand_made_parts(timeline_);
    for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane) compare_lane(lane);
    for (const auto& [tensor, reference] : references_) {
      if (reference.compared)
        ++coverage_.compared;
      else if (tensor.part != 0)
        coverage_.not_compared.emplace_back(interner_.text(tensor.name));
    }
    auto& names = coverage_.not_compared;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    // Buffers (running statistics) are often each rank's own: they stand last.
    std::stable_sort(result_.begin(), result_.end(), [](const RankDifference& x, const RankDifference& y) {
      return std::pair(x.place.io == "buffer", x.place.step) < std::pair(y.place.io == "buffer", y.place.step);
    });
    return std::move(result_);
  }

 private:
  struct Reference {
    std::size_t lane = 0;  // the first that has this part
    bool compared = false;
  };

  // Gradients that are still being accumulated, or not yet averaged by hand, may differ: what the optimizer is given
  // counts, on every rank the last of a step.
  void find_last_gradients() {
    for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane)
      for (const Item& item : timeline_.lanes[lane].items)
        if (item.io == compare::Io::Grad && item.kind == EventKind::Value)
          last_gradient_[{lane, item.root, item.name, item.step}] = item.event;
  }

  bool is_shared(std::size_t lane, const Item& item) const {
    if (!item.is_tensor()) return false;
    if (item.io == compare::Io::Grad) return last_gradient_.at({lane, item.root, item.name, item.step}) == item.event;
    return item.io == compare::Io::Param || item.io == compare::Io::Buffer;
  }

  void compare_lane(std::size_t lane) {
    const auto stages = compare::stages_of(timeline_.lanes[lane], interner_);
    std::map<Moment, int> counts;
    for (const Item& item : timeline_.lanes[lane].items) {
      if (!is_shared(lane, item)) continue;
      const auto stage = stages.find(item.root);
      const auto made = hand_made_.find({lane, compare::parameter_of(item)});
      const compare::TextId own =
          made == hand_made_.end() ? item.part : interner_.text(fmt::format("part {}", made->second));
      const compare::TextId part =
          stage == stages.end() ? own
                                : interner_.text(fmt::format("stage {} {}", stage->second.stage, interner_.text(own)));
      const Tensor tensor{item.root, item.name, item.io, part};
      Moment moment{tensor, item.step, item.io == compare::Io::Grad ? compare::Phase::None : item.phase, 0};
      moment.nth = counts[moment]++;
      Reference& reference = references_.try_emplace(tensor, Reference{.lane = lane}).first->second;
      if (reference.lane == lane) {
        known_.emplace(moment, &item);
        continue;
      }
      const Item* other = counterpart(moment);
      if (other == nullptr) continue;
      reference.compared = true;
      if (!compare::is_same_value(*other, item)) add(timeline_.lanes[lane].rank, *other, item);
    }
  }

  // Parameters and buffers are recorded when they change: where the other rank has no such event, its last one counts.
  const Item* counterpart(const Moment& moment) const {
    auto after = known_.upper_bound(moment);
    if (after == known_.begin()) return nullptr;
    const auto& [other, item] = *std::prev(after);
    const bool is_earlier = moment.tensor.io != compare::Io::Grad && other.tensor == moment.tensor;
    return other == moment || is_earlier ? item : nullptr;
  }

  void add(int rank, const Item& other, const Item& item) {
    const auto [place, is_new] = found_.try_emplace({item.name, item.io}, result_.size());
    if (is_new) {
      RankDifference difference;
      difference.place = {.root = std::string(interner_.text(item.root)),
                          .module = std::string(interner_.text(item.scope)),
                          .name = std::string(interner_.text(item.name)),
                          .io = std::string(to_string(item.io)),
                          .phase = std::string(to_string(item.phase)),
                          .cls = std::string(interner_.text(item.cls)),
                          .site = {},
                          .step = item.step,
                          .call = item.call,
                          .rank = rank};
      difference.ranks.push_back(rank);
      difference.rel_max = values_.measure(other, item).relative();
      result_.push_back(std::move(difference));
      return;
    }
    RankDifference& difference = result_[place->second];
    if (difference.ranks.back() != rank) difference.ranks.push_back(rank);  // lanes are in the order of ranks
    difference.place.step = std::min(difference.place.step, item.step);
  }

  compare::Interner interner_;
  compare::Timeline timeline_;
  compare::ReaderSource source_;
  compare::RunValues values_;
  RankCoverage& coverage_;
  std::map<std::tuple<std::size_t, compare::TextId, compare::TextId, std::int64_t>, EventId> last_gradient_;
  compare::HandMadeParts hand_made_;
  std::map<Tensor, Reference> references_;
  std::map<Moment, const Item*> known_;                                   // of the lanes that are references
  std::map<std::pair<compare::TextId, compare::Io>, std::size_t> found_;  // by name and role, into result_
  std::vector<RankDifference> result_;
};

}  // namespace

std::vector<RankDifference> diff_ranks(const fs::path& run, RankCoverage* coverage) {
  RankCoverage unused;
  return compare::diff_ranks(Reader(run), coverage != nullptr ? *coverage : unused);
}

std::vector<RankDifference> compare::diff_ranks(const Reader& reader, RankCoverage& coverage) {
  RankComparison comparison(reader, coverage);
  if (comparison.ranks() < 2)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot compare ranks: the run has only one: {}", reader.path().string()));
  return comparison.compare();
}

}  // namespace tenscope
