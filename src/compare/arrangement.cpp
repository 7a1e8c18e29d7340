// Overview. Ranks stand in a mesh of up to three axes: all factorisations of their number are tried. Along each axis of
// the mesh, and along the passes of one step, the parts may be the same, joined along an axis of the tensor, or
// summands. Joined parts may lie in pieces: q, k and v of each rank in a fused weight, where q may have more heads, or
// the first and the last chunk of a sequence on the same rank.
#include "compare/arrangement.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tenscope::compare {
namespace {

using How = Fold::How;
using Factors = std::vector<std::int64_t>;
constexpr std::size_t kMostAxes = 3;  // of the mesh

// How many heads of queries share one of keys and values, which lie behind them in a fused weight.
constexpr std::array kQueriesOfKey = {2, 3, 4, 5, 6, 7, 8};

struct Option {
  Fold fold;
  int cost;
  bool is_special = false;  // joined in pieces: along one axis of the mesh at most
};

void factorise(std::int64_t number, Factors& so_far, std::vector<Factors>& all) {
  if (number == 1) {
    all.push_back(so_far);
    return;
  }
  if (so_far.size() == kMostAxes) return;
  for (std::int64_t factor = number; factor >= 2; --factor) {
    if (number % factor != 0) continue;
    so_far.push_back(factor);
    factorise(number / factor, so_far, all);
    so_far.pop_back();
  }
}

std::vector<Factors> meshes(std::size_t ranks) {
  std::vector<Factors> all;
  Factors so_far;
  factorise(static_cast<std::int64_t>(ranks), so_far, all);
  std::ranges::stable_sort(all, {}, &Factors::size);
  return all;
}

std::vector<Option> options(PartKind kind, std::size_t axes, bool is_pass) {
  if (kind == PartKind::Loss)
    return {{{.how = How::Same}, 0}, {{.how = How::Mean}, is_pass ? 2 : 1}, {{.how = How::Sum}, is_pass ? 1 : 2}};
  std::vector<Option> result = {{{.how = How::Same}, 0}};
  for (int axis = 0; axis < static_cast<int>(axes); ++axis) result.push_back({{.how = How::Join, .axis = axis}, 1});
  if (kind == PartKind::Value) result.push_back({{.how = How::Sum}, 4});
  if (is_pass) return result;
  for (int axis = 0; axis < static_cast<int>(axes); ++axis) {
    for (const int pieces : {2, 3}) result.push_back({{.how = How::Join, .axis = axis, .pieces = pieces}, 3, true});
    for (const int queries : kQueriesOfKey)
      result.push_back({{.how = How::Join, .axis = axis, .pieces = 3, .first = queries}, 4, true});
    if (kind != PartKind::Value) continue;
    result.push_back({{.how = How::Join, .axis = axis, .pieces = 2, .is_zigzag = true}, 5, true});
    result.push_back({{.how = How::Join, .axis = axis, .pieces = 0}, 5, true});
  }
  return result;
}

class Lister {
 public:
  Lister(std::size_t ranks, std::size_t passes, std::span<const Shape> shapes, PartKind kind)
      : ranks_(ranks),
        passes_(passes),
        shapes_(shapes.begin(), shapes.end()),
        rank_options_(options(kind, shapes.front().size(), false)),
        pass_options_(options(kind, shapes.front().size(), true)) {}

  std::vector<ShapedArrangement> list() {
    for (const Factors& mesh : meshes(ranks_)) {
      add_all({}, mesh, false);
      if (passes_ > 1 && ranks_ > 1) add_all({}, mesh, true);
    }
    std::ranges::stable_sort(found_, {}, [](const ShapedArrangement& one) { return one.arrangement.cost; });
    return std::move(found_);
  }

 private:
  // Along the axes of the mesh one after the other, the passes before or behind them.
  void add_all(Arrangement so_far, const Factors& mesh, bool are_passes_outside) {
    so_far.are_passes_outside = are_passes_outside;
    if (are_passes_outside)
      with_passes(so_far, [&](const Arrangement& next) { add_ranks(next, mesh, 0, false); });
    else
      add_ranks(so_far, mesh, 0, false);
  }

  template <class Go>
  void with_passes(const Arrangement& so_far, Go go) {
    for (const Option& option : pass_options_) go(extended(so_far, option, static_cast<std::int64_t>(passes_)));
  }

  static Arrangement extended(Arrangement arrangement, const Option& option, std::int64_t size) {
    arrangement.assembly.grid.push_back(size);
    arrangement.assembly.folds.push_back(option.fold);
    arrangement.cost += option.cost + 1;
    return arrangement;
  }

  void add_ranks(const Arrangement& so_far, const Factors& mesh, std::size_t axis, bool is_special_used) {
    if (axis == mesh.size()) {
      if (passes_ > 1 && !so_far.are_passes_outside)
        with_passes(so_far, [&](const Arrangement& next) { finish(next); });
      else
        finish(so_far);
      return;
    }
    for (const Option& option : rank_options_) {
      if (option.is_special && (is_special_used || mesh.size() == kMostAxes)) continue;
      // Two axes that are folded alike are one.
      if (axis > 0 && !option.is_special && so_far.assembly.folds.back() == option.fold) continue;
      add_ranks(extended(so_far, option, mesh[axis]), mesh, axis + 1, is_special_used || option.is_special);
    }
  }

  void finish(const Arrangement& arrangement) {
    const auto shape = shape_of(arrangement.assembly, in_order(arrangement, ranks_, passes_, shapes_));
    if (shape) found_.push_back({arrangement, *shape});
  }

  const std::size_t ranks_, passes_;
  const std::vector<Shape> shapes_;
  const std::vector<Option> rank_options_, pass_options_;
  std::vector<ShapedArrangement> found_;
};

}  // namespace

std::vector<ShapedArrangement> list_arrangements(std::size_t ranks, std::size_t passes, std::span<const Shape> shapes,
                                                 PartKind kind) {
  return Lister(ranks, passes, shapes, kind).list();
}

}  // namespace tenscope::compare
