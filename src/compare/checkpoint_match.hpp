#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compare/checkpoint.hpp"
#include "compare/layout.hpp"

namespace tenscope::compare {

// How two weights were found to be the same thing.
enum class WeightHow : std::uint8_t {
  Name,     // they have the same name
  Map,      // the user said so
  Content,  // their values agree
  Part,     // one is a part of the other
  Rule,     // the names of others say so
  Tied,     // their values agree, and so do those of others: one tensor that is stored several times
  Left,     // they are what is left over of their size: less sure
};
std::string_view to_string(WeightHow how) noexcept;

struct WeightMatch {
  std::size_t a = 0, b = 0;  // places in the checkpoints
  Layout layout;
  LayoutDistance distance;
  bool has_layout = true;  // false: their shapes have nothing to do with each other
  WeightHow how = WeightHow::Content;
};

// Tensors of equal numbers, of which nothing tells which is which: those of one number (norms as they are initialised,
// biases of zero), as many on both sides, and tied ones (an output that is the embedding).
struct AlikeWeights {
  std::vector<std::size_t> a, b;
};

// A tensor that has the numbers of another one of its checkpoint, and no partner for that.
struct WeightCopy {
  bool is_in_a = false;
  std::size_t tensor = 0, of = 0;
};

struct CheckpointMatch {
  std::vector<WeightMatch> pairs;  // in the order of a; a whole and its parts are several
  std::vector<WeightCopy> copies;
  std::vector<AlikeWeights> alike;
  std::vector<std::size_t> alone_a, alone_b;
};

// A checkpoint with the statistics of its tensors.
struct Weights {
  const Checkpoint& checkpoint;
  Lane lane;
  std::vector<TensorRecord> records;
};

// What the rounding of a type does to weights: |rounded - exact| / |exact|, Euclidean. 0 for types that hold float32.
double rounding_of(const StoredTensor& tensor) noexcept;
// The same of a pair: the coarser type's where the types differ.
double rounding_of(const StoredTensor& a, const StoredTensor& b) noexcept;
// The most that rounding explains.
double rounding_limit(const StoredTensor& a, const StoredTensor& b) noexcept;

// Sizes that rows may be split into where they are heads: checkpoints do not tell.
const AxisSizes& head_sizes();

// Pairs the tensors of two checkpoints: by the rules of a map, by equal names, then by content. Overview in the source.
// Throws NotFound for a rule that fits nothing.
CheckpointMatch match_checkpoints(const Weights& a, const Weights& b, const Interner& interner,
                                  const std::vector<std::string>& map);

// One tensor of one side that is made of several of the other, along its first or last axis: q, k and v in one, experts
// in one. `free_a` and `free_b` say which are left; what is found is taken from them. `may_be_changed`: one of the
// parts may have other values, where nothing else that is left fits into its place.
std::vector<WeightMatch> match_parts(const Weights& a, const Weights& b, const AxisSizes& sizes,
                                     std::vector<bool>& free_a, std::vector<bool>& free_b, bool may_be_changed);

}  // namespace tenscope::compare
