#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compare/content_match.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {

// What the journal says of one tensor's content.
struct Content {
  std::size_t item = 0;
  Shape shape;  // without axes of size 1
  std::int64_t count = 0, filled = 0;
  double sum = 0, l2 = 0, high = 0, low = 0;
  Fingerprint fingerprint;
  bool is_integer = false, is_parameter = false;
  bool is_constant = false;  // one number everywhere
};

// How far the statistics of two tensors are apart, of the order of the noise between the tensors.
double distance(const Content& a, const Content& b);

// Tensors of one run with the same content (an output and the next one's input): they are paired together.
struct ContentGroup {
  std::vector<Content> members;  // in the order of recording
  bool is_tie = false;           // several parameters: content cannot tell them apart
  bool has_parameter = false;
  const Content& first() const { return members.front(); }
};

struct ContentSide {
  int number = 0;  // of the run: 0 or 1
  const Lane& lane;
  std::vector<ContentGroup> groups;
  std::unordered_map<std::size_t, std::size_t> group_of;  // by item
  std::vector<bool> is_taken;                             // by group

  // Whether a group may be paired by its content alone; a tie is left to rules.
  bool is_free(std::size_t group) const { return !is_taken[group] && !groups[group].is_tie; }
};

// Groups the tensors of a lane that have no partner yet (partner < 0). Gradients are left out.
ContentSide group_by_content(int number, const Lane& lane, const std::vector<std::int64_t>& partner,
                             const ContentSource& source);

}  // namespace tenscope::compare
