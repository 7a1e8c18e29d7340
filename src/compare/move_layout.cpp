// Axes permuted and flipped; split, permuted and merged. Overview in move_search.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "compare/move_search.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kMostAtoms = 6;

Shape divisors(std::int64_t n) {  // but 1 and n
  Shape found;
  for (std::int64_t d = 2; d * d <= n; ++d) {
    if (n % d != 0) continue;
    found.push_back(d);
    if (d * d != n) found.push_back(n / d);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_identity(const Shape& order) {
  for (std::size_t k = 0; k < order.size(); ++k)
    if (order[k] != static_cast<std::int64_t>(k)) return false;
  return true;
}

// "with axes 0 and 1 exchanged", "with its axes in the order (2, 0, 1)"
std::string order_words(const Shape& order) {
  Shape moved;
  for (std::size_t k = 0; k < order.size(); ++k)
    if (order[k] != static_cast<std::int64_t>(k)) moved.push_back(static_cast<std::int64_t>(k));
  if (moved.size() == 2) return fmt::format("with axes {} and {} exchanged", moved[0], moved[1]);
  return fmt::format("with its axes in the order ({})", list_text(order));
}

std::string transposed(const std::string& source, const Shape& order) {
  return order == Shape{1, 0} ? source + ".T" : fmt::format("{}.transpose({})", source, list_text(order));
}

// Calls f with the shape whose axes are split once, then twice (two axes, or one into three), until it returns true.
template <class F>
bool for_each_split(const Shape& shape, const F& f) {
  std::vector<Shape> once;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    for (const std::int64_t part : divisors(shape[axis])) {
      Shape split = shape;
      split[axis] /= part;
      split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis) + 1, part);
      once.push_back(std::move(split));
    }
  for (const Shape& split : once)
    if (split.size() <= kMostAtoms && f(split)) return true;
  for (const Shape& first : once)
    for (std::size_t axis = 0; axis < first.size() && first.size() < kMostAtoms; ++axis)
      for (const std::int64_t part : divisors(first[axis])) {
        Shape split = first;
        split[axis] /= part;
        split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis) + 1, part);
        if (f(split)) return true;
      }
  return false;
}

}  // namespace

Explanation MoveSearch::layout() {
  if (shape_a_ != shape_b_) {
    Strided plain{{count_a_}, {1}, 0};
    if (is_strided(plain)) return said_of(plain);
  }
  if (Explanation found = of_permuted_axes(); found.found()) return found;
  return of_split_axes();
}

Explanation MoveSearch::of_permuted_axes() {
  const Shape shape = without_ones(shape_a_), strides = c_strides(shape);
  const std::size_t rank = shape.size();
  if (rank == 0 || rank > kMostAtoms) return {};
  if (!pays(search_bits_ + std::lgamma(static_cast<double>(rank) + 1) / std::log(2.0) + static_cast<double>(rank)))
    return {};
  Shape order(rank);
  std::iota(order.begin(), order.end(), 0);
  do {
    for (std::uint32_t flips = 0; flips < 1U << rank; ++flips) {
      if (flips == 0 && is_identity(order)) continue;
      Strided strided;
      std::vector<bool> is_flipped;
      for (std::size_t k = 0; k < rank; ++k) {
        const auto axis = static_cast<std::size_t>(order[k]);
        is_flipped.push_back((flips >> k & 1U) != 0);
        strided.sizes.push_back(shape[axis]);
        strided.strides.push_back(is_flipped[k] ? -strides[axis] : strides[axis]);
        if (is_flipped[k]) strided.offset += (shape[axis] - 1) * strides[axis];
      }
      if (is_strided(strided)) return said_of_axes(order, is_flipped);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return {};
}

// In every such layout the first element of b is the first of a, and the last is the last.
Explanation MoveSearch::of_split_axes() {
  if (!fits(at_a_[0], at_b_[0]) || !fits(at_a_[count_a_ - 1], at_b_[count_b_ - 1])) return {};
  if (!pays(search_bits_ + std::log2(static_cast<double>(kMostLayouts)))) return {};
  std::int64_t tried = 0;
  Explanation found;
  // The axes of a, or of b, are split; the other tensor has the parts in another order.
  for (const bool is_of_a : {true, false}) {
    const auto try_parts = [&](const Shape& parts) {
      Shape order(parts.size());
      std::iota(order.begin(), order.end(), 0);
      while (std::next_permutation(order.begin(), order.end())) {
        if (++tried > kMostLayouts || passes_ <= 0) return true;
        Strided strided;
        if (is_of_a) {
          const Shape strides = c_strides(parts);
          for (const std::int64_t k : order) {
            strided.sizes.push_back(parts[static_cast<std::size_t>(k)]);
            strided.strides.push_back(strides[static_cast<std::size_t>(k)]);
          }
        } else {
          strided.sizes = parts;
          strided.strides.resize(parts.size());
          std::int64_t stride = 1;
          for (std::size_t k = order.size(); k-- > 0;) {
            strided.strides[static_cast<std::size_t>(order[k])] = stride;
            stride *= parts[static_cast<std::size_t>(order[k])];
          }
        }
        if (!is_strided(strided)) continue;
        found = said_of(std::move(strided));
        return true;
      }
      return false;
    };
    const Shape shape = without_ones(is_of_a ? shape_a_ : shape_b_);
    if (shape.empty() || shape.size() > kMostAtoms) continue;
    if (!is_of_a && try_parts(shape)) break;
    if (for_each_split(shape, try_parts)) break;
  }
  return found;
}

Explanation MoveSearch::said_of_axes(const Shape& order, const std::vector<bool>& is_flipped) const {
  const Shape shape = without_ones(shape_a_);
  std::string text = source(shape), words = "b is a";
  if (shape != shape_a_ && shape != shape_b_) words += fmt::format(", seen as [{}]", list_text(shape));
  Shape after, flips;
  for (std::size_t k = 0; k < order.size(); ++k) {
    after.push_back(shape[static_cast<std::size_t>(order[k])]);
    if (is_flipped[k]) flips.push_back(static_cast<std::int64_t>(k));
  }
  if (!is_identity(order)) {
    words += ", " + order_words(order);
    text = transposed(text, order);
  }
  if (flips.size() == 1) {
    words += fmt::format(", flipped along axis {}", flips[0]);
    text = fmt::format("np.flip({}, {})", text, flips[0]);
  } else if (!flips.empty()) {
    words += fmt::format(", flipped along axes {}", fmt::join(flips, " and "));
    text = fmt::format("np.flip({}, ({}))", text, list_text(flips));
  }
  if (after != without_ones(shape_b_)) words += fmt::format(", reshaped to [{}]", list_text(shape_b_));
  return said(is_identity(order) ? "flipped" : "transposed", words, text, after);
}

// As few axes as it takes: those that stay beside each other are one.
Explanation MoveSearch::said_of(Strided strided) const {
  struct Atom {
    std::int64_t size, stride;
  };
  std::vector<Atom> atoms;
  for (std::size_t k = 0; k < strided.sizes.size(); ++k) {
    if (strided.sizes[k] == 1) continue;
    if (!atoms.empty() && atoms.back().stride == strided.sizes[k] * strided.strides[k])
      atoms.back() = {atoms.back().size * strided.sizes[k], strided.strides[k]};
    else
      atoms.push_back({strided.sizes[k], strided.strides[k]});
  }
  if (atoms.size() < 2) return said("reshaped", fmt::format("b is a, reshaped to [{}]", list_text(shape_b_)), "a", {});
  std::vector<Atom> in_a = atoms;
  std::sort(in_a.begin(), in_a.end(), [](const Atom& x, const Atom& y) { return x.stride > y.stride; });
  Shape parts, order, after;
  for (const Atom& atom : in_a) parts.push_back(atom.size);
  for (const Atom& atom : atoms) {
    const auto same = [&](const Atom& x) { return x.stride == atom.stride; };
    order.push_back(std::find_if(in_a.begin(), in_a.end(), same) - in_a.begin());
    after.push_back(atom.size);
  }
  const std::string text = transposed(source(parts), order);
  if (const std::string words = rotary_words(parts, order); !words.empty())
    return said("interleaved", "b is a, " + words, text, after);
  std::string words = parts == shape_a_ ? "b is a" : fmt::format("b is a, reshaped to [{}]", list_text(parts));
  words += ", " + order_words(order);
  if (after != shape_b_) words += fmt::format(", reshaped to [{}]", list_text(shape_b_));
  return said("rearranged", words, text, after);
}

// Pairs beside each other on one side, in two halves on the other: as rotary embeddings do.
std::string MoveSearch::rotary_words(const Shape& atoms, const Shape& order) const {
  if (shape_a_ != shape_b_) return {};
  std::size_t at = 0;
  while (at < order.size() && order[at] == static_cast<std::int64_t>(at)) ++at;
  Shape exchanged(order.size());
  std::iota(exchanged.begin(), exchanged.end(), 0);
  if (at + 1 >= order.size()) return {};
  std::swap(exchanged[at], exchanged[at + 1]);
  if (order != exchanged || (atoms[at] != 2 && atoms[at + 1] != 2)) return {};
  const std::int64_t block = atoms[at] * atoms[at + 1], inner = c_strides(atoms)[at + 1];
  const Shape strides = c_strides(shape_a_);
  for (std::size_t axis = 0; axis < shape_a_.size(); ++axis) {
    if (strides[axis] != inner || shape_a_[axis] % block != 0) continue;
    const std::string where =
        shape_a_[axis] == block ? fmt::format("axis {}", axis) : fmt::format("every {} along axis {}", block, axis);
    return atoms[at] == 2 ? fmt::format("with the halves of {} interleaved", where)
                          : fmt::format("with the pairs of {} taken apart into halves", where);
  }
  return {};
}

}  // namespace tenscope::compare
