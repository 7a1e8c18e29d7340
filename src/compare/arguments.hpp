#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"

namespace tenscope::compare {

// What an argument of a module call is called. The same argument is recorded as "input.3" where it is given by position
// and as "input.mask" where it is given by keyword.
enum class Naming : std::uint8_t { ByName, AsRecorded, ByPosition };

// Names of the inputs of one run's modules, and of their gradients, by the signatures that were recorded.
class ArgumentNames {
 public:
  ArgumentNames(const ModuleTree& tree, Interner& interner) : tree_(tree), interner_(interner) {}

  // The item's name in its module. Where the signature is not known, and for what is no input, that is item.tail.
  TextId tail(const Item& item, Naming naming);

  // The argument that the item is, or is part of; 0: not known.
  TextId argument(const Item& item);

  // Whether the module of the item takes an argument of that name.
  bool takes(const Item& item, TextId argument) const;

 private:
  struct Names {
    TextId by_name = 0, by_position = 0, argument = 0;
  };
  const Names* names(const Item& item);
  Names make_names(const Item& item, const std::vector<TextId>& arguments);

  const ModuleTree& tree_;
  Interner& interner_;
  std::unordered_map<std::uint64_t, Names> known_;  // by node and tail
};

}  // namespace tenscope::compare
