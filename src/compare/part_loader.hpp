#pragma once

#include <array>
#include <cstddef>
#include <optional>
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
  bool has_bytes = true;          // of all parts
  std::vector<PartTensor> parts;  // rank by rank, pass by pass
};

// Loads tensors of both runs, and puts parts together.
class PartLoader {
 public:
  explicit PartLoader(const std::array<const Reader*, 2>& readers) : readers_(readers) {}

  const Reader& reader(int run) const { return *readers_[static_cast<std::size_t>(run)]; }
  TensorData load(int run, const PartTensor& part) const;
  // Nothing where a part of a whole that ranks say they have parts of is missing.
  std::optional<PartSet> parts_of(int run, const SlotParts& parts) const;
  std::vector<TensorData> load_all(int run, const PartSet& set) const;  // all have bytes

 private:
  std::array<const Reader*, 2> readers_;
};

// What the loaded parts of a set make together.
HostTensor whole_of(const PartSet& set, const std::vector<TensorData>& parts, const Arrangement& how);

}  // namespace tenscope::compare
