// Overview. For each tensor the arrangements of both runs' parts that give wholes of one shape are tried, the simplest
// first, until the wholes agree. What agrees teaches: tensors of the same name in other layers (blocks.*.attn.output)
// and other steps are laid out alike, unless their shapes say otherwise, and so it is known how those lie that do not
// agree. Three things are never taken for a layout:
//
//   sums that nobody makes   A tensor whose parts would have to be added up, where what the module around it returns
//                            does not agree: the sum over ranks is missing.
//   another layout than kin  A tensor that agrees only in a more far-fetched way than its kin in other layers.
//   one rank of its own      Of parts that should be the same the one that is furthest off counts.
//
// Gradients inside the network are off by a factor where the loss is a mean over a part of the batch: one factor for
// all of them. Parameters, and gradients as the optimizer is given them, are neither parts of sums nor multiplied.
#include "compare/logical_match.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <set>
#include <tuple>

#include "compare/loss_scale.hpp"
#include "compare/measure.hpp"
#include "compare/part_trial.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

bool is_inner_gradient(const SlotKey& key) { return key.io == Io::GradInput || key.io == Io::GradOutput; }

// A model or a module of its own may compute the loss, a single number of each part of the batch.
PartKind kind_of(const SlotKey& key, const PartSet& set) {
  const bool is_number = set.parts.front().shape.empty() && !is_exact(set.parts.front().item->dtype);
  switch (key.io) {
    case Io::Param:
    case Io::Grad:
    case Io::Buffer:
      return PartKind::Parameter;
    case Io::GradInput:
    case Io::GradOutput:
      return PartKind::Value;
    default:
      return key.io == Io::Loss || is_number ? PartKind::Loss : PartKind::Value;
  }
}

// Parameters may be recorded as one row, and in pieces of it (FSDP of torch 1, optimizers that have shards).
std::optional<ShapedArrangement> shaped_as(const ShapedArrangement& row, const Shape& shape, PartKind kind) {
  const bool is_row = kind == PartKind::Parameter && row.shape.size() == 1 && shape.size() > 1 &&
                      row.shape.front() == element_count(shape);
  if (!is_row) return std::nullopt;
  ShapedArrangement result = row;
  result.arrangement.assembly.shaped_as = shape;
  result.arrangement.cost += 1;
  result.shape = shape;
  return result;
}

// How many different parts are added up for each element of the whole.
std::int64_t summands(const Assembly& assembly) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < assembly.grid.size(); ++axis)
    if (assembly.folds[axis].how == Fold::How::Sum) count *= assembly.grid[axis];
  return count;
}

double agreement(DType a, DType b) {
  const bool is_half = item_size(a) < 4 || item_size(b) < 4;
  return is_half ? thresholds::kPartsAgreeHalf : thresholds::kPartsAgree;
}

class SlotMatcher {
 public:
  SlotMatcher(const SlotTable& table, const PartLoader& loader)
      : table_(table), loader_(loader), scale_(std::max(loss_scale(loader.reader(0)), loss_scale(loader.reader(1)))) {}

  std::map<SlotKey, MatchedSlot> match() {
    for (const auto& [key, slot] : table_.slots()) add(key, slot);
    for (const bool are_gradients : {false, true})  // which lie as their parameters do
      for (auto& [key, slot] : slots_)
        if ((key.io == Io::Grad) == are_gradients) search(key, slot, std::nullopt);
    settle_factor();
    settle_by_results();
    settle_by_kin();
    reject_missing_sums();
    return std::move(slots_);
  }

 private:
  using Name = std::tuple<int, TextId, Io>;                 // of a tensor in all steps
  using Kin = std::tuple<TextId, std::string, TextId, Io>;  // of a tensor in all layers of a model
  using Shares = std::map<int, std::vector<std::size_t>>;   // by rank: which part of a whole it has, pass by pass

  // How many pairs of arrangements are tried: fewer of large tensors.
  static std::size_t most_pairs(const MatchedSlot& slot) {
    constexpr std::size_t kElements = std::size_t{1} << 28, kLeast = 64, kMost = 4096;
    std::size_t elements = 1;
    for (const PartTensor& part : slot.sets[0].parts) elements += static_cast<std::size_t>(element_count(part.shape));
    return std::clamp(kElements / elements, kLeast, kMost);
  }

  void add(const SlotKey& key, const Slot& slot) {
    if (slot.runs[0].is_missing() || slot.runs[1].is_missing()) return;
    for (const SlotParts& parts : slot.runs)
      if (!std::ranges::all_of(parts.items, &Item::is_tensor)) return;
    auto a = loader_.parts_of(0, slot.runs[0]), b = loader_.parts_of(1, slot.runs[1]);
    if (!a || !b) return;
    const PartKind kind = kind_of(key, *a);
    slots_.emplace(key, MatchedSlot{.sets = {std::move(*a), std::move(*b)}, .kind = kind, .choice = {}});
  }

  const std::vector<ShapedArrangement>& arrangements(const PartSet& set, PartKind kind) {
    std::vector<Shape> shapes;
    for (const PartTensor& part : set.parts) shapes.push_back(part.shape);
    const auto [place, is_new] = listed_.try_emplace({set.ranks, set.passes, shapes, kind});
    if (is_new) place->second = list_arrangements(set.ranks, set.passes, shapes, kind);
    return place->second;
  }

  // The factors that means over parts of the batch, and losses that are scaled, can make.
  bool is_factor_of_means(double factor) const {
    const auto most = static_cast<double>(64 * std::max(table_.most_passes(0), table_.most_passes(1)));
    const double nearest = factor >= 1 ? std::round(factor) : 1 / std::round(1 / factor);
    return factor > 0 && std::abs(factor / nearest - 1) < thresholds::kFactorOfMeans &&
           std::max(nearest, 1 / nearest) <= most * scale_;
  }

  // What the wholes say of a pair of arrangements. `factor`: that of gradients inside the network; nothing: any may be.
  Choice judged(const SlotKey& key, PartTrial& trial, std::array<Arrangement, 2> how,
                std::optional<double> factor) const {
    Choice choice{.how = std::move(how)};
    const Comparison comparison = trial.compare(choice.how);
    const double limit = agreement(trial.dtype(0), trial.dtype(1));
    choice.error = comparison.error;
    choice.agrees = comparison.error <= limit;
    if (!is_inner_gradient(key)) return choice;
    if (factor) choice.factor = *factor;
    if (choice.agrees && (factor.value_or(1) == 1 || trial.is_zero())) return choice;
    const double nearest =
        comparison.factor >= 1 ? std::round(comparison.factor) : 1 / std::round(1 / comparison.factor);
    const bool is_wanted = factor ? std::abs(nearest / *factor - 1) < thresholds::kFactorOfMeans : true;
    choice.agrees = is_wanted && is_factor_of_means(comparison.factor) && comparison.error_by_factor <= limit;
    if (!choice.agrees) return choice;
    choice.factor = nearest;
    choice.error = comparison.error_by_factor;
    return choice;
  }

  // How it lies in another step; a gradient, as its parameter does.
  std::optional<std::array<Arrangement, 2>> known_as(const SlotKey& key, const MatchedSlot& slot) const {
    auto known = known_.find({key.node, key.tail, key.io});
    if (known == known_.end() && key.io == Io::Grad)
      known = known_.find({key.node, slot.sets[0].parts.front().item->parameter, Io::Param});
    return known == known_.end() ? std::nullopt : std::optional(known->second);
  }

  // The simplest pair of arrangements whose wholes agree; else the simplest than which none is much nearer.
  void search(const SlotKey& key, MatchedSlot& slot, std::optional<double> factor) {
    PartTrial trial(loader_, slot.sets);
    const Name name{key.node, key.tail, key.io};
    slot.choice.reset();
    const bool is_loss = slot.kind == PartKind::Loss;
    if (const auto known = known_as(key, slot); !is_loss && known && fits(slot, *known)) {
      slot.choice = judged(key, trial, *known, factor);
      slot.choice->is_by_kin = true;
      if (slot.choice->agrees || key.io == Io::Param) return;
    }
    struct Pair {
      int cost;
      const ShapedArrangement *a, *b;
    };
    std::vector<Pair> pairs;
    std::deque<ShapedArrangement> shaped;
    const auto add = [&](const ShapedArrangement& a, const ShapedArrangement& b) {
      pairs.push_back({a.arrangement.cost + b.arrangement.cost, &a, &b});
    };
    for (const ShapedArrangement& a : arrangements(slot.sets[0], slot.kind))
      for (const ShapedArrangement& b : arrangements(slot.sets[1], slot.kind)) {
        if (a.shape == b.shape) {
          if (may_be(key, slot, a.arrangement, b.arrangement)) add(a, b);
        } else if (const auto as_b = shaped_as(a, b.shape, slot.kind)) {
          add(shaped.emplace_back(*as_b), b);
        } else if (const auto as_a = shaped_as(b, a.shape, slot.kind)) {
          add(a, shaped.emplace_back(*as_a));
        }
      }
    std::ranges::stable_sort(pairs, {}, &Pair::cost);
    if (const std::size_t most = most_pairs(slot); pairs.size() > most) pairs.resize(most);
    std::optional<Choice> best;
    for (const Pair& pair : pairs) {
      Choice choice = judged(key, trial, {pair.a->arrangement, pair.b->arrangement}, factor);
      if (choice.agrees && (is_refuted(key, 0, slot, choice.how[0]) || is_refuted(key, 1, slot, choice.how[1])))
        continue;
      if (choice.agrees) {
        choice.is_constant = trial.is_constant();
        if (!choice.is_constant) known_[name] = choice.how;
        // Ranks' losses are nearly the same at first, so that of these the one that agrees best counts.
        const bool is_nearest = !slot.choice || choice.error < thresholds::kMuchNearerLoss * slot.choice->error;
        if (is_nearest) slot.choice = std::move(choice);
        if (!is_loss) return;
        continue;
      }
      const bool has_summands =
          choice.how[0].assembly.has(Fold::How::Sum) || choice.how[1].assembly.has(Fold::How::Sum);
      const bool is_nearer = best && !has_summands && choice.error < thresholds::kMuchNearer * best->error;
      if (!best || is_nearer) best = std::move(choice);
    }
    if (!slot.choice) slot.choice = std::move(best);
  }

  // Which part of the whole each rank has, in all its passes; empty where all have the same, or none has that of
  // another.
  static Shares shares(const PartSet& set, const Arrangement& how) {
    const Assembly& assembly = how.assembly;
    bool is_same = false, is_joined = false;
    for (std::size_t axis = 0; axis < assembly.grid.size(); ++axis) {
      is_same |= assembly.grid[axis] > 1 && assembly.folds[axis].how == Fold::How::Same;
      is_joined |= assembly.grid[axis] > 1 && assembly.folds[axis].how == Fold::How::Join;
    }
    Shares result;
    if (!is_same || !is_joined || std::ranges::any_of(set.parts, &PartTensor::is_declared)) return result;
    std::vector<std::size_t> places(set.parts.size());
    std::iota(places.begin(), places.end(), 0);
    const std::vector<std::size_t> order = in_order(how, set.ranks, set.passes, places);
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::size_t rest = i, share = 0;
      for (std::size_t axis = assembly.grid.size(); axis-- > 0;) {
        const auto size = static_cast<std::size_t>(assembly.grid[axis]);
        share = share * size + (assembly.folds[axis].how == Fold::How::Same ? 0 : rest % size);
        rest /= size;
      }
      places[order[i]] = share;
    }
    for (std::size_t i = 0; i < places.size(); ++i) result[set.parts[i].ranks.front()].push_back(places[i]);
    return result;
  }

  // Where ranks share the work on the same data (tensor parallel), each of them makes something of its own, and what
  // they put together is the same on all of them. Data lies in another way where those that have the same do all the
  // same, and those that have other data have results in common.
  bool is_refuted(const SlotKey& input, int run, const MatchedSlot& slot, const Arrangement& how) {
    const PartSet& set = slot.sets[static_cast<std::size_t>(run)];
    const bool is_data = input.node >= 0 && input.io == Io::Input &&
                         (parent_of(input.node) < 0 || is_exact(set.parts.front().item->dtype));
    if (!is_data) return false;
    Shares share_of = shares(set, how);
    if (share_of.empty()) return false;
    const auto [place, is_new] = have_in_common_.try_emplace({run, std::move(share_of)});
    if (is_new) place->second = have_results_in_common(run, place->first.second);
    return place->second;
  }

  // In any step: what ranks should have in common drifts apart later.
  bool have_results_in_common(int run, const Shares& share_of) const {
    struct Results {
      std::size_t total = 0, in_common = 0;
      bool do_all_the_same = true;
    };
    std::map<std::int64_t, Results> by_step;
    for (const auto& [key, output] : table_.slots()) {
      if (key.io != Io::Output || parent_of(key.node) < 0) continue;
      Results& results = by_step[key.step];
      const SlotParts& parts = output.runs[static_cast<std::size_t>(run)];
      std::map<std::vector<std::size_t>, Fingerprint> made;  // by share
      for (std::size_t i = 0; i < parts.ranks.size(); ++i) {
        const auto share = share_of.find(parts.ranks[i]);
        const Item& item = *parts.items[i * parts.passes];
        if (share == share_of.end() || !item.is_tensor() || item.part != 0 || item.abs_max == 0) continue;
        const auto [known, is_first] = made.emplace(share->second, item.fingerprint);
        results.do_all_the_same &= is_first || known->second == item.fingerprint;
      }
      if (made.size() < 2) continue;
      ++results.total;
      std::vector<Fingerprint> values;
      for (const auto& [share, value] : made)
        if (std::ranges::find(values, value) == values.end()) values.push_back(value);
      results.in_common += values.size() < made.size() ? 1 : 0;
    }
    return std::ranges::any_of(by_step, [](const auto& entry) {
      const Results& results = entry.second;
      const double least = thresholds::kResultsInCommon * static_cast<double>(results.total);
      return results.do_all_the_same && results.in_common > 0 && static_cast<double>(results.in_common) >= least;
    });
  }

  // What the model is given, and integers, are no summands. Two runs of as many summands that have the same sum and
  // nothing else in common have exchanged their parts.
  bool may_be(const SlotKey& key, const MatchedSlot& slot, const Arrangement& a, const Arrangement& b) const {
    const bool has_a = a.assembly.has(Fold::How::Sum), has_b = b.assembly.has(Fold::How::Sum);
    if ((!has_a && !has_b) || slot.kind == PartKind::Loss) return true;
    if (has_a && has_b && summands(a.assembly) == summands(b.assembly)) return false;
    const bool is_of_program = key.io == Io::Input && parent_of(key.node) < 0;
    return !is_of_program && !is_exact(slot.sets[0].parts.front().item->dtype);
  }

  static bool fits(const MatchedSlot& slot, const std::array<Arrangement, 2>& how) {
    std::array<Shape, 2> shapes;
    for (const std::size_t run : {0U, 1U}) {
      const PartSet& set = slot.sets[run];
      std::vector<Shape> parts;
      for (const PartTensor& part : set.parts) parts.push_back(part.shape);
      const Assembly& assembly = how[run].assembly;
      const auto shape = shape_of(assembly, in_order(how[run], set.ranks, set.passes, parts));
      if (!shape) return false;
      shapes[run] = *shape;
    }
    return shapes[0] == shapes[1];
  }

  // One factor for all gradients inside the network: that of most of them.
  void settle_factor() {
    std::map<double, std::size_t> votes;
    for (const auto& [key, slot] : slots_)
      if (is_inner_gradient(key) && slot.choice && slot.choice->agrees && !PartTrial(loader_, slot.sets).is_zero())
        ++votes[slot.choice->factor];
    if (votes.empty()) return;
    factor_ = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; })->first;
    for (auto& [key, slot] : slots_) {
      if (!is_inner_gradient(key) || !slot.choice || slot.choice->factor == factor_) continue;
      known_.erase({key.node, key.tail, key.io});
      search(key, slot, factor_);
    }
  }

  Kin kin_of(const SlotKey& key) const {
    if (key.node < 0) return {0, "", key.tail, key.io};
    const ModuleNode& node = table_.tree().nodes[static_cast<std::size_t>(key.node)];
    return {node.root, without_numbers(node.path), key.tail, key.io};
  }

  static int cost(const std::array<Arrangement, 2>& how) { return how[0].cost + how[1].cost; }

  // Tensors that have kin in other layers and steps are laid out as most of these, where their shapes allow it.
  void settle_by_kin() {
    struct Vote {
      std::array<Arrangement, 2> how;
      std::size_t count = 0;
    };
    std::map<Kin, std::vector<Vote>> votes;
    for (const auto& [key, slot] : slots_) {
      if (!slot.choice || !slot.choice->agrees || slot.choice->is_constant) continue;
      std::vector<Vote>& of_kin = votes[kin_of(key)];
      const auto found = std::ranges::find(of_kin, slot.choice->how, &Vote::how);
      ++(found == of_kin.end() ? of_kin.emplace_back(Vote{slot.choice->how}) : *found).count;
    }
    for (auto& [kin, of_kin] : votes)
      std::ranges::stable_sort(of_kin, [](const Vote& x, const Vote& y) {
        return x.count != y.count ? x.count > y.count : cost(x.how) < cost(y.how);
      });
    for (auto& [key, slot] : slots_) {
      const auto found = votes.find(kin_of(key));
      const bool is_settled = slot.kind == PartKind::Loss && slot.choice && slot.choice->agrees;
      if (found == votes.end() || is_settled) continue;
      for (const Vote& vote : found->second) {
        if (slot.choice &&
            (slot.choice->how == vote.how || (slot.choice->agrees && cost(slot.choice->how) <= cost(vote.how))))
          break;
        if (!fits(slot, vote.how)) continue;
        PartTrial trial(loader_, slot.sets);
        slot.choice = judged(key, trial, vote.how, factor_);
        slot.choice->is_by_kin = true;
        break;
      }
    }
  }

  // Do the tensors of a module agree in a step? Nothing: there are none.
  std::optional<bool> do_agree(int node, std::int64_t step, Io io) const {
    std::optional<bool> result;
    for (auto it = slots_.lower_bound({.node = node}); it != slots_.end() && it->first.node == node; ++it) {
      const auto& [key, slot] = *it;
      if (key.io == io && key.step == step && slot.choice) result = result.value_or(true) && slot.choice->agrees;
    }
    return result;
  }

  // A parameter may have been cut in a simpler way than it should be: q, k and v of a fused weight behind each other.
  // It then agrees in that way, and so does what it makes; what the module around it makes of that does not. Kin in
  // other layers that lie in another way say that it is the parameter.
  void settle_by_results() {
    std::map<Kin, std::vector<std::array<Arrangement, 2>>> ways;
    for (const auto& [key, slot] : slots_) {
      const bool is_asked = key.io == Io::Param || key.io == Io::Output;
      if (!is_asked || !slot.choice || !slot.choice->agrees || slot.choice->is_constant) continue;
      auto& of_kin = ways[kin_of(key)];
      if (std::ranges::find(of_kin, slot.choice->how) == of_kin.end()) of_kin.push_back(slot.choice->how);
    }
    for (auto& [key, slot] : slots_) {
      const int around = parent_of(key.node);
      const auto found = around >= 0 ? ways.find(kin_of(key)) : ways.end();
      if (found == ways.end() || found->second.size() != 2 || !slot.choice || !slot.choice->agrees) continue;
      const auto& other = found->second[slot.choice->how == found->second[0] ? 1 : 0];
      const bool is_simpler = cost(slot.choice->how) < cost(other);
      const auto given = do_agree(around, key.step, Io::Input), made = do_agree(around, key.step, Io::Output);
      if (!is_simpler || !fits(slot, other) || !given.value_or(false) || made.value_or(true)) continue;
      PartTrial trial(loader_, slot.sets);
      slot.choice = judged(key, trial, other, factor_);
      slot.choice->is_by_kin = true;
    }
  }

  bool is_sum_over_ranks(const MatchedSlot& slot) const {
    for (const std::size_t run : {0U, 1U}) {
      const Arrangement& how = slot.choice->how[run];
      for (std::size_t axis = 0; axis < how.assembly.folds.size(); ++axis) {
        const bool is_pass =
            slot.sets[run].passes > 1 && axis == (how.are_passes_outside ? 0 : how.assembly.folds.size() - 1);
        if (!is_pass && how.assembly.folds[axis].how == Fold::How::Sum && how.assembly.grid[axis] > 1) return true;
      }
    }
    return false;
  }

  // Does what is made of a sum agree? Nothing: there is none to see.
  std::optional<bool> is_sum_made(const SlotKey& key) const {
    const bool is_backward = is_inner_gradient(key);
    const Io io = is_backward ? Io::GradInput : Io::Output;
    // An input of a module may be added up in it; so may the gradient that arrives at it.
    const bool may_be_own = key.io == Io::Input || key.io == Io::GradOutput;
    int node = may_be_own ? key.node : parent_of(key.node);
    for (; node >= 0; node = parent_of(node)) {
      std::optional<bool> made;
      if (parent_of(node) < 0 && has_stages()) break;  // what comes out of a stage is not what comes out of the model
      for (auto it = slots_.lower_bound({.node = node}); it != slots_.end() && it->first.node == node; ++it) {
        const auto& [other, slot] = *it;
        if (other.io != io || other.step != key.step || !slot.choice) continue;
        if (!slot.choice->agrees) return false;
        if (!is_sum_over_ranks(slot)) made = true;
      }
      if (made) return made;
    }
    return std::nullopt;
  }

  bool has_stages() const { return !table_.partial_ranks(0).empty() || !table_.partial_ranks(1).empty(); }

  int parent_of(int node) const { return node < 0 ? -1 : table_.tree().nodes[static_cast<std::size_t>(node)].parent; }

  void reject_missing_sums() {
    std::set<Kin> made, missing;
    for (const auto& [key, slot] : slots_) {
      if (!slot.choice || !slot.choice->agrees || slot.kind != PartKind::Value || !is_sum_over_ranks(slot)) continue;
      const auto is_made = is_sum_made(key);
      if (is_made) (*is_made ? made : missing).insert(kin_of(key));
    }
    for (auto& [key, slot] : slots_) {
      if (!slot.choice || slot.kind != PartKind::Value || !is_sum_over_ranks(slot)) continue;
      if (const Kin kin = kin_of(key); made.contains(kin) || !missing.contains(kin)) continue;
      PartTrial trial(loader_, slot.sets);
      for (const ShapedArrangement& a : arrangements(slot.sets[0], slot.kind)) {
        const auto b = std::ranges::find_if(arrangements(slot.sets[1], slot.kind), [&](const ShapedArrangement& one) {
          return one.shape == a.shape && !one.arrangement.assembly.has(Fold::How::Sum);
        });
        if (a.arrangement.assembly.has(Fold::How::Sum) || b == arrangements(slot.sets[1], slot.kind).end()) continue;
        Choice choice{.how = {a.arrangement, b->arrangement}};
        choice.error = trial.compare(choice.how).error;
        choice.factor = is_inner_gradient(key) ? factor_ : 1;
        choice.is_sum_missing = slot.choice->agrees;
        slot.choice = choice;
        break;
      }
    }
  }

  const SlotTable& table_;
  const PartLoader& loader_;
  const double scale_;  // of losses
  std::map<SlotKey, MatchedSlot> slots_;
  std::map<std::tuple<std::size_t, std::size_t, std::vector<Shape>, PartKind>, std::vector<ShapedArrangement>> listed_;
  std::map<Name, std::array<Arrangement, 2>> known_;
  std::map<std::pair<int, Shares>, bool> have_in_common_;
  double factor_ = 1;
};

}  // namespace

std::string without_numbers(std::string_view path) {
  std::string result;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, end);
    const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!result.empty()) result += '.';
    result += is_number ? "*" : part;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return result;
}

std::map<SlotKey, MatchedSlot> match_slots(const SlotTable& table, const PartLoader& loader) {
  return SlotMatcher(table, loader).match();
}

double part_that_agrees(const std::map<SlotKey, MatchedSlot>& slots) {
  std::size_t all = 0, agreeing = 0;
  for (const auto& [key, slot] : slots) {
    if (key.io != Io::Input && key.io != Io::Output) continue;
    ++all;
    agreeing += slot.choice && slot.choice->agrees ? 1 : 0;
  }
  return all == 0 ? 0 : static_cast<double>(agreeing) / static_cast<double>(all);
}

}  // namespace tenscope::compare
