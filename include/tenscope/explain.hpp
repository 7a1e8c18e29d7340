#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenscope/tensor_view.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

// Numbers that an expression refers to by name, where they are too many to be written out.
struct ExplanationArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // in C order
  bool is_integer = false;     // positions, not numbers
};

// How a tensor b follows from a tensor a. It holds for every element.
struct Explanation {
  std::string relation;  // in a word: "equal", "scaled", "flipped"; "nothing": none was found (docs/explain.md)
  std::string words;     // "b is a, flipped along axis 1"
  // A statement of NumPy that makes one of the other: "b = np.flip(a, 1)", "a = b[0:64]". It may name `arrays`; where
  // elements are free to choose (those that a mask leaves out) it asks b for them. Empty where nothing was found.
  std::string numpy;
  std::vector<ExplanationArray> arrays;

  bool found() const noexcept { return relation != "nothing" && !relation.empty(); }
};

// Looks for a simple relation between two tensors, whose shapes and dtypes need not be the same. Says only what
// explains the data far beyond chance; docs/explain.md has the list and the rule. Throws InvalidArgument for a view
// that is none.
Explanation explain(const TensorView& a, const TensorView& b);

}  // namespace tenscope
#pragma GCC visibility pop
