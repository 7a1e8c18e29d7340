#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/layout.hpp"
#include "compare/timeline.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// What pairing by content needs of the two runs (side 0 and 1) besides their timelines.
struct ContentSource {
  std::function<TensorRecord(int side, const Item& item)> record;
  std::function<TensorData(int side, const Item& item)> data;
  std::function<std::string(int side, const Item& item)> meta;
  std::function<void(const Item& a, const Item& b, const Layout& layout)> keep;  // for what compares them later
  AxisSizes sizes;  // that axes may be split into, besides those that the tensors have
};

// How two tensors were found to be the same thing.
enum class ContentHow : std::uint8_t {
  Content,   // their values agree
  Operands,  // they are made with the same weight
  Part,      // one is a slice or a part of the other
  Rule,      // names that were paired by content say so
  Order,     // what is left between others, in its order: the least certain
};
std::string_view to_string(ContentHow how) noexcept;

struct ContentPair {
  std::size_t a = 0, b = 0;  // items of the lanes
  Layout layout;
  double error = 0;  // |b - a| / |a|, Euclidean
  ContentHow how = ContentHow::Content;
};

// A parameter that has the values of another one than its name says.
struct Contradiction {
  std::size_t a = 0, b = 0;  // items of equal values
  std::size_t expected = 0;  // the item of b that the names of other pairs say
  std::size_t votes = 0;     // how many pairs say so
};

// A parameter that lies otherwise than others do.
struct OddLayout {
  std::size_t a = 0, b = 0;   // items
  std::string layout, usual;  // in words
  std::size_t votes = 0;      // how many lie as usual
};

struct ContentMatch {
  std::vector<ContentPair> pairs;  // in the order of a; several of one item where it holds several of b, or the reverse
  double weight_error = 0;         // the median error of paired parameters: the coarser engine's precision
  std::vector<Contradiction> contradictions;
  std::vector<OddLayout> odd_layouts;
  // Parameters whose names say that they are the same, and whose values do not, though what is made with them agrees.
  std::vector<std::pair<std::size_t, std::size_t>> other_forms;
};

// Pairs tensors of two lanes that have no partner yet (partner < 0), with no help from names. Overview in the source.
ContentMatch match_by_content(const Lane& a, const Lane& b, const std::vector<std::int64_t>& partner_a,
                              const std::vector<std::int64_t>& partner_b, const Interner& interner,
                              const ContentSource& source);

}  // namespace tenscope::compare
