#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/dtype.hpp"

// Pieces of NumPy expressions.
namespace tenscope::compare {

std::string numpy_dtype(DType dtype);  // "np.float32", "ml_dtypes.bfloat16"

// The expression in parentheses, unless a method can be called on it as it is.
std::string atom(const std::string& expression);
std::string cast(const std::string& expression, DType dtype);  // "(a + 1).astype(np.float16)"
std::string reshaped(const std::string& expression, const std::vector<std::int64_t>& shape);

std::string list_text(const std::vector<std::int64_t>& numbers);  // "8, 32"

// One half-open range of an axis; the whole axis is ":".
struct AxisRange {
  std::int64_t begin = 0, end = 0, size = 0;
  bool is_single = false;  // an index instead of a range
  bool is_whole() const { return !is_single && begin == 0 && end == size; }
};
// "[2:10, :, 3]", without what follows the last axis that is cut.
std::string index_text(const std::vector<AxisRange>& ranges);

// The shortest text of a number that is no further away than the error.
std::string short_number(double value, double error);
// A number that NumPy reads as the same: "nan" and "inf" by their names.
std::string number_text(double value);

}  // namespace tenscope::compare
