#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "tenscope/diff.hpp"

namespace tenscope::compare {

// What modules add to the error, as sums over calls, so that those of several ranks can be added up.
struct BudgetSums {
  struct Module {
    std::string cls;
    std::size_t order = 0;                            // of its first result among those of its rank
    std::size_t calls = 0, assumed = 0, unknown = 0;  // calls that were judged, of these those by assumption; others
    double arriving = 0, leaving = 0, adds = 0, handed_on = 0;  // squares of relative errors
    double share = 0;                                           // over the outermost module's calls
  };
  struct Root {
    std::size_t order = 0;
    std::size_t calls = 0, left_out = 0;
    std::size_t with_error = 0;  // calls that an error leaves
    double leaving = 0;          // squares
    double from_inputs = 0, not_traced = 0;
  };
  using Key = std::tuple<std::string, std::string, bool>;  // root, module, is it the module's own code?
  std::map<Key, Module> modules;
  std::map<std::string, Root> roots;

  void add(const BudgetSums& other);
  DiffBudget result() const;
};

}  // namespace tenscope::compare
