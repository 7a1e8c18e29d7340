#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/arrangement.hpp"
#include "compare/logical_slots.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// A part of a tensor: what one rank recorded, or what several did that say themselves how they belong together.
struct PartTensor {
  std::vector<EventId> events;
  const Item* item = nullptr;  // of the first of them
  std::vector<int> ranks;      // who recorded them
  Shape shape;
  bool is_declared = false;  // the events say which parts of it they are
};

// The parts of a tensor in one run.
struct PartSet {
  std::size_t ranks = 0, passes = 1;
  bool has_bytes = true;          // else there is one part, which all ranks have alike
  std::vector<PartTensor> parts;  // rank by rank, pass by pass
};

// How the parts of both runs make wholes that can be compared.
struct Choice {
  std::array<Arrangement, 2> how;
  double error = 0;   // |b - a| / |a|, Euclidean, of the parts that are furthest apart
  double factor = 1;  // by which b is multiplied: gradients inside the network, where losses are means over less
  bool agrees = false;
  bool is_by_kin = false;       // tensors of the same name in other layers or steps lie so, and agree
  bool is_sum_missing = false;  // it would agree if the parts were added up, which nothing that follows has done
};

struct MatchedSlot {
  std::array<PartSet, 2> sets;
  PartKind kind = PartKind::Value;
  std::optional<Choice> choice;  // nothing: there is no way to compare them
};

// Loads tensors of both runs, and puts parts together.
class PartLoader {
 public:
  explicit PartLoader(const std::array<const Reader*, 2>& readers) : readers_(readers) {}

  const Reader& reader(int run) const { return *readers_[static_cast<std::size_t>(run)]; }
  TensorData load(int run, const PartTensor& part) const;
  // Nothing where a rank's part, or the bytes of one that has to be put together, are missing.
  std::optional<PartSet> parts_of(int run, const SlotParts& parts) const;
  std::vector<TensorData> load_all(int run, const PartSet& set) const;

 private:
  std::array<const Reader*, 2> readers_;
};

// What the loaded parts of a set make together.
HostTensor whole_of(const PartSet& set, const std::vector<TensorData>& parts, const Arrangement& how);

// "blocks.*.attn" of "blocks.11.attn".
std::string without_numbers(std::string_view path);

// Finds out, for all slots of two runs, how their parts make wholes. See the source for how.
std::map<SlotKey, MatchedSlot> match_slots(const SlotTable& table, const PartLoader& loader);

// Of the inputs and outputs of modules, from 0 to 1.
double part_that_agrees(const std::map<SlotKey, MatchedSlot>& slots);

}  // namespace tenscope::compare
