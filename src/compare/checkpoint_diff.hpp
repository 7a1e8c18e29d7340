#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Two checkpoints of one model, whose tensors may have other names, shapes, orders and types: which is which, and does
// what is paired agree?

struct CheckpointDiffOptions {
  std::vector<std::string> map;                  // "model.layers.*.mlp.up_proj.weight=blk.*.ffn_up.weight"
  std::function<void(double done)> on_progress;  // 0 to 1
};

struct WeightTensor {
  std::string name;
  std::string type;  // as it is stored: "bfloat16", "q4_K"
  std::vector<std::int64_t> shape;
};

// A tensor and what it is on the other side.
struct WeightPair {
  WeightTensor a, b;
  std::string how;      // "name", "map", "content", "part", "rule", "tied", "left" (over: less sure)
  std::string layout;   // how b lies in a: "transposed", "rows permuted in heads (rotary)"; empty: in the same order
  double error = 0;     // |b - a| / |a|, Euclidean; NaN: they cannot be compared
  std::string coarser;  // the coarser of the two types, where they differ
  double rounding = 0;  // what is normal for it; 0: there should be no difference
  bool is_changed = false;  // rounding does not explain the difference, or others of its kind lie in another order
  std::string finding;      // a sentence: why it is changed, or in whose place it lies
};

// Names that follow from each other: "model.layers.{i}.mlp.up_proj.weight" and "blk.{i}.ffn_up.weight".
struct WeightRule {
  std::string a, b;
  std::size_t count = 0;
  std::string layout, type_a, type_b;
  double error = 0, rounding = 0;  // the largest error
};

struct CheckpointDiff {
  std::string a, b;  // paths
  DiffVerdict verdict = DiffVerdict::Nothing;
  std::size_t total_a = 0, total_b = 0;    // tensors
  std::size_t paired_a = 0, paired_b = 0;  // of them, those that have a partner
  std::vector<WeightPair> pairs;           // in the order of a
  std::vector<WeightRule> rules;
  std::vector<std::string> joined;          // sentences: a tensor of one side is made of several of the other, and how
  std::vector<std::string> contradictions;  // sentences: a tensor lies where by the rules another should be
  std::vector<WeightTensor> only_a, only_b;
  std::vector<std::string> notes;  // what is tied, cannot be told apart, or is of a type that is not read

  bool is_different() const noexcept { return verdict == DiffVerdict::Differs; }
};

// Are two paths to be compared as checkpoints? Not where both are runs, or where their names pair most of the tensors,
// tensors are left over on no more than one side, and none is quantised: a plain comparison of files says more of each
// element. Throws as Checkpoint does.
bool are_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b);

// Throws as Checkpoint does; NotFound for a rule of the map that fits nothing.
CheckpointDiff diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                const CheckpointDiffOptions& options = {});

}  // namespace tenscope::compare
