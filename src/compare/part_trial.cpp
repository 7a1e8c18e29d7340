#include "compare/part_trial.hpp"

#include <algorithm>
#include <cmath>

#include "compare/measure.hpp"
#include "compare/sketch_estimate.hpp"
#include "kernels/compare.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostVariants = 64;

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

// An estimate by sketches; else the least that statistics prove.
double error_of(TensorRecord a, TensorRecord b) {
  complete_summaries(a, b);
  const bool has_sketches = a.sketch != nullptr && b.sketch != nullptr;
  const PairError error = has_sketches ? estimate(a, b, *a.sketch, *b.sketch) : measure_statistics(a, b);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (!error.is_comparable || error.has_other_finite) return kInfinite;
  if (is_exact(a.dtype) && is_exact(b.dtype)) return error.differing == 0 ? 0 : kInfinite;
  return error.is_lower_bound ? std::max(error.rel_l2, error.relative()) : error.rel_l2;
}

Comparison compare_summaries(const TensorRecord& a, const TensorRecord& b) {
  if (has_fingerprint(a) && a.fingerprint == b.fingerprint && a.dtype == b.dtype && a.shape == b.shape)
    return {0, 1, 0};
  Comparison result{.error = error_of(a, b)};
  if (is_exact(a.dtype) || is_exact(b.dtype) || !std::isfinite(result.error)) return result;
  const bool has_sketches = a.sketch != nullptr && b.sketch != nullptr;
  const double factor = has_sketches ? dot(*a.sketch, *b.sketch) / dot(*b.sketch, *b.sketch) : a.stats.l2 / b.stats.l2;
  if (!std::isfinite(factor) || factor == 0) return result;
  result.factor = factor;
  result.error_by_factor = error_of(a, scale_summary(b, factor));
  return result;
}

std::vector<std::size_t> positions(const PartSet& set, const Arrangement& how) {
  std::vector<std::size_t> order(set.parts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  return in_order(how, set.ranks, set.passes, order);
}

bool are_same_along(const PartSet& set, const std::vector<std::size_t>& order, std::size_t stride, std::size_t size) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i / stride % size == 0) continue;
    const PartTensor &x = set.parts[order[i]], &y = set.parts[order[i - stride]];
    const bool is_same = !x.is_declared && !y.is_declared && x.item->fingerprint == y.item->fingerprint;
    if (!is_same) return false;
  }
  return true;
}

// What is known of an arrangement, or is made now.
template <class T, class Make>
const T& known_or_made(std::vector<std::pair<Arrangement, std::unique_ptr<T>>>& known, const Arrangement& how,
                       Make make) {
  for (const auto& [one, value] : known)
    if (one == how && one.assembly.taken == how.assembly.taken) return *value;
  return *known.emplace_back(how, std::make_unique<T>(make())).second;
}

}  // namespace

Comparison PartTrial::compare(std::array<Arrangement, 2>& how) {
  Comparison worst{.error = -1, .factor = 1, .error_by_factor = 0};
  std::array<Arrangement, 2> worst_how = how;
  const auto of = [&](const Arrangement& a, const Arrangement& b) -> Comparison {
    if (has_bytes()) return compare_wholes(whole(0, a).view(), whole(1, b).view());
    const auto &x = summary(0, a), &y = summary(1, b);
    return x && y ? compare_summaries(*x, *y) : Comparison();
  };
  for (const Arrangement& a : variants(0, how[0]))
    for (const Arrangement& b : variants(1, how[1])) {
      const Comparison one = of(a, b);
      if (one.error <= worst.error) continue;
      worst = one;
      worst_how = {a, b};
    }
  how = worst_how;
  return worst;
}

bool PartTrial::is_zero() const {
  return std::ranges::all_of(sets_[0].parts, [](const PartTensor& part) { return part.item->abs_max == 0; });
}

bool PartTrial::is_constant() const {
  for (const int run : {0, 1})
    for (const PartTensor& part : sets_[static_cast<std::size_t>(run)].parts)
      for (const EventId event : part.events) {
        const Stats stats = std::get<TensorRecord>(loader_.reader(run).event(event).value).stats;
        // A single number, as a loss is, tells something.
        if (stats.count == 1 || (stats.count > 1 && stats.min != stats.max)) return false;
      }
  return true;
}

// The arrangement with each of the parts taken that should be the same and are not.
std::vector<Arrangement> PartTrial::variants(int run, const Arrangement& how) const {
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

const HostTensor& PartTrial::whole(int run, const Arrangement& how) {
  const auto side = static_cast<std::size_t>(run);
  return known_or_made(wholes_[side], how, [&] {
    if (parts_[side].empty()) parts_[side] = loader_.load_all(run, sets_[side]);
    return whole_of(sets_[side], parts_[side], how);
  });
}

const std::optional<TensorRecord>& PartTrial::summary(int run, const Arrangement& how) {
  const auto side = static_cast<std::size_t>(run);
  return known_or_made(summaries_[side], how, [&] {
    if (sets_[side].has_bytes) return std::optional(summary_of(whole(run, how)));
    if (part_summaries_[side].empty()) part_summaries_[side] = part_summaries(loader_.reader(run), sets_[side]);
    return summary_of(sets_[side], part_summaries_[side], how);
  });
}

}  // namespace tenscope::compare
