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
#include "compare/part_loader.hpp"

namespace tenscope::compare {

// How the parts of both runs make wholes that can be compared.
struct Choice {
  std::array<Arrangement, 2> how;
  double error = 0;   // |b - a| / |a|, Euclidean, of the parts that are furthest apart
  double factor = 1;  // by which b is multiplied: gradients inside the network, where losses are means over less
  bool agrees = false;
  bool is_constant = false;     // all elements are the same, so that they agree in any way that the shapes allow
  bool is_by_kin = false;       // tensors of the same name in other layers or steps lie so, and agree
  bool is_sum_missing = false;  // it would agree if the parts were added up, which nothing that follows has done
};

struct MatchedSlot {
  std::array<PartSet, 2> sets;
  PartKind kind = PartKind::Value;
  std::optional<Choice> choice;  // nothing: there is no way to compare them
};

// "blocks.*.attn" of "blocks.11.attn".
std::string without_numbers(std::string_view path);

// Finds out, for all slots of two runs, how their parts make wholes. See the source for how.
std::map<SlotKey, MatchedSlot> match_slots(const SlotTable& table, const PartLoader& loader);

// Of the inputs and outputs of modules, from 0 to 1.
double part_that_agrees(const std::map<SlotKey, MatchedSlot>& slots);

}  // namespace tenscope::compare
