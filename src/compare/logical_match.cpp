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
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "compare/thresholds.hpp"
#include "kernels/compare.hpp"
#include "store/shards.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool is_inner_gradient(const SlotKey& key) { return key.io == Io::GradInput || key.io == Io::GradOutput; }

PartKind kind_of(const SlotKey& key) {
  switch (key.io) {
    case Io::Param:
    case Io::Grad:
    case Io::Buffer:
      return PartKind::Parameter;
    case Io::Loss:
      return PartKind::Loss;
    default:
      return PartKind::Value;
  }
}

bool is_exact(DType dtype) {
  return tenscope::kind_of(dtype) != DTypeKind::Float && tenscope::kind_of(dtype) != DTypeKind::Complex;
}

double agreement(DType a, DType b) {
  const bool is_half = item_size(a) < 4 || item_size(b) < 4;
  return is_half ? thresholds::kPartsAgreeHalf : thresholds::kPartsAgree;
}

// b against a, and the factor by which b would be nearest.
struct Comparison {
  double error = kInfinite;
  double factor = 1, error_by_factor = kInfinite;
};

Comparison compare_wholes(const TensorView& a, const TensorView& b) {
  const kernels::ElementDistance distance = kernels::distance(b, a);
  Comparison result;
  if (distance.differing == 0) return {0, 1, 0};
  if (distance.other_nonfinite > 0 || (is_exact(a.dtype) && is_exact(b.dtype))) return result;
  const double size = distance.reference_l2;
  if (size == 0) return result;
  result.error = distance.difference_l2 / size;
  const double both = distance.dot + size * size;
  const double other = distance.difference_l2 * distance.difference_l2 + 2 * distance.dot + size * size;
  if (other > 0) {
    result.factor = both / other;
    result.error_by_factor = std::sqrt(std::max(0.0, size * size - both * both / other)) / size;
  }
  return result;
}

// The tensors of one slot while arrangements are tried.
class Trial {
 public:
  Trial(const PartLoader& loader, const std::array<PartSet, 2>& sets) : loader_(loader), sets_(sets) {}

  // The largest error over all parts that should be the same; `how` learns which of them has it.
  Comparison compare(std::array<Arrangement, 2>& how) {
    Comparison worst{.error = -1, .factor = 1, .error_by_factor = 0};
    std::array<Arrangement, 2> worst_how = how;
    for (const Arrangement& a : variants(0, how[0]))
      for (const Arrangement& b : variants(1, how[1])) {
        const Comparison one = compare_wholes(whole(0, a).view(), whole(1, b).view());
        if (one.error <= worst.error) continue;
        worst = one;
        worst_how = {a, b};
      }
    how = worst_how;
    return worst;
  }

  bool is_zero() const {
    return std::ranges::all_of(sets_[0].parts, [](const PartTensor& part) { return part.item->abs_max == 0; });
  }
  DType dtype(int run) const { return sets_[static_cast<std::size_t>(run)].parts.front().item->dtype; }

 private:
  static constexpr std::size_t kMostVariants = 64;

  // The arrangement with each of the parts taken that should be the same and are not.
  std::vector<Arrangement> variants(int run, const Arrangement& how) {
    const PartSet& set = sets_[static_cast<std::size_t>(run)];
    std::vector<Arrangement> result = {how};
    result.front().assembly.taken.assign(how.assembly.grid.size(), 0);
    const std::vector<std::size_t> order = positions(set, how);
    std::size_t stride = order.size();
    for (std::size_t axis = 0; axis < how.assembly.grid.size(); ++axis) {
      const auto size = static_cast<std::size_t>(how.assembly.grid[axis]);
      stride /= size;
      if (how.assembly.folds[axis].how != Fold::How::Same || are_same_along(set, order, stride, size)) continue;
      std::vector<Arrangement> more;
      for (const Arrangement& one : result)
        for (std::size_t taken = 0; taken < size && more.size() < kMostVariants; ++taken)
          more.emplace_back(one).assembly.taken[axis] = taken;
      result = std::move(more);
    }
    return result;
  }

  static std::vector<std::size_t> positions(const PartSet& set, const Arrangement& how) {
    std::vector<std::size_t> order(set.parts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    return in_order(how, set.ranks, set.passes, order);
  }

  static bool are_same_along(const PartSet& set, const std::vector<std::size_t>& order, std::size_t stride,
                             std::size_t size) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i / stride % size == 0) continue;
      const PartTensor &x = set.parts[order[i]], &y = set.parts[order[i - stride]];
      const bool is_same = !x.is_declared && !y.is_declared && x.item->fingerprint == y.item->fingerprint;
      if (!is_same) return false;
    }
    return true;
  }

  const HostTensor& whole(int run, const Arrangement& how) {
    const auto side = static_cast<std::size_t>(run);
    for (const auto& [known, tensor] : wholes_[side])
      if (known == how && known.assembly.taken == how.assembly.taken) return *tensor;
    if (parts_[side].empty()) parts_[side] = loader_.load_all(run, sets_[side]);
    auto tensor = std::make_unique<HostTensor>(whole_of(sets_[side], parts_[side], how));
    return *wholes_[side].emplace_back(how, std::move(tensor)).second;
  }

  const PartLoader& loader_;
  const std::array<PartSet, 2>& sets_;
  std::array<std::vector<TensorData>, 2> parts_;
  std::array<std::vector<std::pair<Arrangement, std::unique_ptr<HostTensor>>>, 2> wholes_;
};

class SlotMatcher {
 public:
  SlotMatcher(const SlotTable& table, const PartLoader& loader) : table_(table), loader_(loader) {}

  std::map<SlotKey, MatchedSlot> match() {
    for (const auto& [key, slot] : table_.slots()) add(key, slot);
    for (auto& [key, slot] : slots_) search(key, slot, std::nullopt);
    settle_factor();
    settle_by_kin();
    reject_missing_sums();
    return std::move(slots_);
  }

 private:
  using Name = std::tuple<int, TextId, Io>;         // of a tensor in all steps
  using Kin = std::tuple<std::string, TextId, Io>;  // of a tensor in all layers

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
    slots_.emplace(key, MatchedSlot{.sets = {std::move(*a), std::move(*b)}, .kind = kind_of(key), .choice = {}});
  }

  const std::vector<ShapedArrangement>& arrangements(const PartSet& set, PartKind kind) {
    std::vector<Shape> shapes;
    for (const PartTensor& part : set.parts) shapes.push_back(part.shape);
    const auto [place, is_new] = listed_.try_emplace({set.ranks, set.passes, shapes, kind});
    if (is_new) place->second = list_arrangements(set.ranks, set.passes, shapes, kind);
    return place->second;
  }

  // The factors that means over parts of the batch can make.
  bool is_factor_of_means(double factor) const {
    const std::size_t most = 64 * std::max(table_.most_passes(0), table_.most_passes(1));
    const double nearest = factor >= 1 ? std::round(factor) : 1 / std::round(1 / factor);
    return factor > 0 && std::abs(factor / nearest - 1) < thresholds::kFactorOfMeans &&
           std::max(nearest, 1 / nearest) <= static_cast<double>(most);
  }

  // What the wholes say of a pair of arrangements. `factor`: that of gradients inside the network; nothing: any may be.
  Choice judged(const SlotKey& key, Trial& trial, std::array<Arrangement, 2> how, std::optional<double> factor) const {
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

  // The simplest pair of arrangements whose wholes agree; else the simplest than which none is much nearer.
  void search(const SlotKey& key, MatchedSlot& slot, std::optional<double> factor) {
    if (!slot.sets[0].has_bytes || !slot.sets[1].has_bytes) {
      compare_summaries(slot);
      return;
    }
    Trial trial(loader_, slot.sets);
    const Name name{key.node, key.tail, key.io};
    slot.choice.reset();
    if (const auto known = known_.find(name); known != known_.end() && fits(slot, known->second)) {
      slot.choice = judged(key, trial, known->second, factor);
      slot.choice->is_by_kin = true;
      if (slot.choice->agrees || key.io == Io::Param) return;
    }
    struct Pair {
      int cost;
      const ShapedArrangement *a, *b;
    };
    std::vector<Pair> pairs;
    for (const ShapedArrangement& a : arrangements(slot.sets[0], slot.kind))
      for (const ShapedArrangement& b : arrangements(slot.sets[1], slot.kind))
        if (a.shape == b.shape && may_be(key, slot, a.arrangement, b.arrangement))
          pairs.push_back({a.arrangement.cost + b.arrangement.cost, &a, &b});
    std::ranges::stable_sort(pairs, {}, &Pair::cost);
    if (const std::size_t most = most_pairs(slot); pairs.size() > most) pairs.resize(most);
    std::optional<Choice> best;
    for (const Pair& pair : pairs) {
      Choice choice = judged(key, trial, {pair.a->arrangement, pair.b->arrangement}, factor);
      if (choice.agrees) {
        known_[name] = choice.how;
        slot.choice = std::move(choice);
        return;
      }
      const bool has_summands =
          choice.how[0].assembly.has(Fold::How::Sum) || choice.how[1].assembly.has(Fold::How::Sum);
      const bool is_nearer = best && !has_summands && choice.error < thresholds::kMuchNearer * best->error;
      if (!best || is_nearer) best = std::move(choice);
    }
    if (!slot.choice) slot.choice = std::move(best);
  }

  // What the model is given, and integers, are no summands. Two runs of as many parts that have the same sum and
  // nothing else in common have exchanged their parts.
  bool may_be(const SlotKey& key, const MatchedSlot& slot, const Arrangement& a, const Arrangement& b) const {
    const bool has_a = a.assembly.has(Fold::How::Sum), has_b = b.assembly.has(Fold::How::Sum);
    if ((!has_a && !has_b) || slot.kind == PartKind::Loss) return true;
    if (has_a && has_b && slot.sets[0].parts.size() == slot.sets[1].parts.size()) return false;
    const bool is_of_program = key.io == Io::Input && parent_of(key.node) < 0;
    return !is_of_program && !is_exact(slot.sets[0].parts.front().item->dtype);
  }

  // Without bytes nothing can be put together: what all ranks have alike is compared as it is.
  static void compare_summaries(MatchedSlot& slot) {
    const auto is_alone = [](const PartSet& set) {
      return std::ranges::all_of(set.parts, [&](const PartTensor& part) {
        return !part.is_declared && part.item->fingerprint == set.parts.front().item->fingerprint;
      });
    };
    const PartTensor &a = slot.sets[0].parts.front(), &b = slot.sets[1].parts.front();
    if (!is_alone(slot.sets[0]) || !is_alone(slot.sets[1]) || a.shape != b.shape) return;
    Choice& choice = slot.choice.emplace();
    for (const std::size_t run : {0U, 1U}) {
      const auto parts = static_cast<std::int64_t>(slot.sets[run].parts.size());
      choice.how[run].assembly = {.grid = {parts}, .folds = {Fold{}}, .taken = {}};
    }
    choice.agrees = a.item->fingerprint == b.item->fingerprint;
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
      if (is_inner_gradient(key) && slot.choice && slot.choice->agrees && !Trial(loader_, slot.sets).is_zero())
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
    const std::string path = key.node < 0 ? "" : table_.tree().nodes[static_cast<std::size_t>(key.node)].path;
    return {without_numbers(path), key.tail, key.io};
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
      if (!slot.choice || !slot.choice->agrees) continue;
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
      if (found == votes.end() || !slot.sets[0].has_bytes || !slot.sets[1].has_bytes) continue;
      for (const Vote& vote : found->second) {
        if (slot.choice &&
            (slot.choice->how == vote.how || (slot.choice->agrees && cost(slot.choice->how) <= cost(vote.how))))
          break;
        if (!fits(slot, vote.how)) continue;
        Trial trial(loader_, slot.sets);
        slot.choice = judged(key, trial, vote.how, factor_);
        slot.choice->is_by_kin = true;
        break;
      }
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
      Trial trial(loader_, slot.sets);
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
  std::map<SlotKey, MatchedSlot> slots_;
  std::map<std::tuple<std::size_t, std::size_t, std::vector<Shape>, PartKind>, std::vector<ShapedArrangement>> listed_;
  std::map<Name, std::array<Arrangement, 2>> known_;
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

TensorData PartLoader::load(int run, const PartTensor& part) const {
  return part.is_declared ? store::assemble(reader(run), part.events) : reader(run).tensor(part.events.front());
}

std::optional<PartSet> PartLoader::parts_of(int run, const SlotParts& slot) const {
  PartSet set{.ranks = slot.ranks.size(), .passes = slot.passes, .parts = {}};
  const bool is_declared = std::ranges::any_of(slot.items, [](const Item* item) { return item->part != 0; });
  const DType dtype = slot.items.front()->dtype;
  if (!std::ranges::all_of(slot.items, [&](const Item* item) { return item->dtype == dtype; })) return std::nullopt;
  if (!std::ranges::all_of(slot.items, &Item::has_bytes)) {
    const Item& first = *slot.items.front();
    if (is_declared || !std::ranges::all_of(slot.items, [&](const Item* item) { return is_same_value(*item, first); }))
      return std::nullopt;
    const auto record = std::get<TensorRecord>(reader(run).event(first.event).value);
    return PartSet{
        .ranks = 1, .passes = 1, .has_bytes = false, .parts = {{{first.event}, &first, slot.ranks, record.shape}}};
  }
  if (!is_declared) {
    for (std::size_t i = 0; i < slot.items.size(); ++i) {
      const Item& item = *slot.items[i];
      const auto record = std::get<TensorRecord>(reader(run).event(item.event).value);
      set.parts.push_back({{item.event}, &item, {slot.ranks[i / slot.passes]}, record.shape, false});
    }
    return set;
  }
  // In each pass, parts that say themselves how they belong together; more than one whole where there are replicas.
  std::vector<std::vector<PartTensor>> by_pass(slot.passes);
  for (std::size_t pass = 0; pass < slot.passes; ++pass) {
    std::map<TextId, std::size_t> seen;  // how often each part was met
    std::vector<PartTensor>& wholes = by_pass[pass];
    for (std::size_t rank = 0; rank < slot.ranks.size(); ++rank) {
      const Item& item = *slot.items[rank * slot.passes + pass];
      const std::size_t whole = seen[item.part]++;
      if (whole == wholes.size()) wholes.push_back({{}, &item, {}, {}, true});
      wholes[whole].events.push_back(item.event);
      wholes[whole].ranks.push_back(slot.ranks[rank]);
    }
    for (PartTensor& whole : wholes) {
      const auto shard = store::parse_shard(reader(run).event(whole.events.front()).meta);
      if (!shard) return std::nullopt;
      whole.shape = shard->shape;
      try {
        (void)load(run, whole);
      } catch (const Error&) {
        return std::nullopt;
      }
    }
    if (wholes.size() != by_pass.front().size()) return std::nullopt;
  }
  set.ranks = by_pass.front().size();
  for (std::size_t whole = 0; whole < set.ranks; ++whole)
    for (std::vector<PartTensor>& pass : by_pass) set.parts.push_back(std::move(pass[whole]));
  return set;
}

std::vector<TensorData> PartLoader::load_all(int run, const PartSet& set) const {
  std::vector<TensorData> data;
  for (const PartTensor& part : set.parts) data.push_back(load(run, part));
  return data;
}

HostTensor whole_of(const PartSet& set, const std::vector<TensorData>& parts, const Arrangement& how) {
  std::vector<TensorView> views;
  for (const TensorData& one : parts) views.push_back(one.view);
  return assemble(how.assembly, in_order(how, set.ranks, set.passes, views));
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
