#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compare/content_group.hpp"
#include "compare/layout.hpp"

namespace tenscope::compare {

// How many bits the agreement of two tensors is worth, of `count` elements each and `error` apart: chance gives some.
double bits_of_evidence(std::int64_t count, double error);

// Two groups that belong together. A group may be in several: q, k and v joined in one tensor.
struct GroupPair {
  std::size_t a = 0, b = 0;
  FoundLayout found;
  ContentHow how = ContentHow::Content;
  std::set<std::size_t> items_a;      // of a's group: only these, since their values say nothing; empty: all of them
  std::optional<std::size_t> item_b;  // of b's group: this one, in the layout that was found for it
};

// The groups of both runs, and those that are paired so far: what every way of pairing works on.
class ContentPairs {
 public:
  ContentPairs(ContentSide a, ContentSide b, const ContentSource& source);

  ContentSide a, b;

  const std::vector<GroupPair>& pairs() const { return pairs_; }
  const ContentSource& source() const { return source_; }
  const AxisSizes& sizes() const { return sizes_; }

  void pair(std::size_t group_a, std::size_t group_b, FoundLayout found, ContentHow how,
            std::set<std::size_t> items_a = {});
  // Of what may have diverged the values tell the layout only where they still agree well. Pairs that agree do, where
  // they have the same shapes.
  void pair_if_alike(std::size_t group_a, std::size_t group_b, ContentHow how, std::set<std::size_t> items_a = {});

  // Two items alone, whatever their groups are paired with; a's is no longer among those that other pairs speak of.
  void pair_one(std::size_t group_a, std::size_t group_b, FoundLayout found, std::size_t item_a, std::size_t item_b);

  // `places` of pairs(), in ascending order. Their groups stay taken.
  void take_apart(const std::vector<std::size_t>& places);

  TensorData data(const ContentSide& side, const Content& content) const;
  // The best layout; its error may exceed the limit (see find_layout).
  std::optional<FoundLayout> layout(const Content& x, const Content& y, double limit,
                                    double most = std::numeric_limits<double>::infinity()) const;
  // The median error of paired parameters: the coarser engine's precision.
  double weight_error() const;
  // The same order, or a layout of others with the same shapes, or with axes in the same order (NCHW and NHWC).
  std::optional<FoundLayout> likely_layout(const Content& x, const Content& y) const;

 private:
  const ContentSource& source_;
  AxisSizes sizes_;
  std::vector<GroupPair> pairs_;
  std::map<std::pair<Shape, Shape>, std::vector<Layout>> learned_;
  std::set<std::vector<int>> permutations_;  // of whole axes, of what is no parameter
};

// How a part lies in a whole, by the axes of the tensors without those of size 1.
Layout layout_of_part(const Shape& whole, const Shape& part, const Layout::Range& range, bool is_whole_in_a);

// Pairs tensors of which one is a part of the other: one slice of it, or several of them joined or stacked.
void match_parts(ContentPairs& pairs);

// Pairs parameters of which one is all of several others but for one, that has other values.
void match_changed_parts(ContentPairs& pairs, const Interner& interner);

// Pairs parameters that content cannot tell apart, where both runs have as many of them: the first with the first.
void match_ties(ContentPairs& pairs);

// Pairs what is left between pairs, in its order.
void match_order(ContentPairs& pairs, const Interner& interner);

}  // namespace tenscope::compare
