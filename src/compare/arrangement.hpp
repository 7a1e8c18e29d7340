#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compare/assembly.hpp"

namespace tenscope::compare {

// What a tensor is, as far as that says how its parts may make a whole.
enum class PartKind : std::uint8_t {
  Parameter,  // also its gradient as the optimizer is given it, and buffers: never a part of a sum
  Value,      // an input or output of a module, and the gradients inside the network
  Loss,       // one number
};

// One way in which the parts that ranks have, in each of their passes through the model, may make a whole.
struct Arrangement {
  Assembly assembly;
  bool are_passes_outside = false;  // the passes vary slower than the ranks; else faster
  int cost = 0;                     // how far-fetched it is

  friend bool operator==(const Arrangement& x, const Arrangement& y) {
    return x.are_passes_outside == y.are_passes_outside && x.assembly == y.assembly;
  }
};

struct ShapedArrangement {
  Arrangement arrangement;
  Shape shape;  // of the whole
};

// All arrangements that the shapes allow, the simplest first. The parts are given rank by rank, pass by pass.
std::vector<ShapedArrangement> list_arrangements(std::size_t ranks, std::size_t passes, std::span<const Shape> shapes,
                                                 PartKind kind);

// Parts that are given rank by rank, in the order of the arrangement.
template <class T>
std::vector<T> in_order(const Arrangement& arrangement, std::size_t ranks, std::size_t passes,
                        const std::vector<T>& parts) {
  if (!arrangement.are_passes_outside) return parts;
  std::vector<T> result;
  for (std::size_t pass = 0; pass < passes; ++pass)
    for (std::size_t rank = 0; rank < ranks; ++rank) result.push_back(parts[rank * passes + pass]);
  return result;
}

}  // namespace tenscope::compare
