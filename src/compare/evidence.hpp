#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenscope/dtype.hpp"

namespace tenscope::compare {

// How much a set of values says that agrees with what a relation predicts. Overview in relation.cpp.
struct Evidence {
  double bits = 0;           // all of them
  double most = 0;           // the one that says most: what a fitted number takes away
  std::size_t distinct = 0;  // values that can be told apart
};
Evidence weigh(std::vector<double> values, double tolerance);

inline constexpr double kEvidenceMargin = 40;  // bits that must be left when everything fitted is paid for

std::vector<std::int64_t> fixed_sample(std::int64_t count);  // up to 512 positions, the same for the same count

int precision_of(DType dtype);           // bits of the mantissa; 0: no floating-point number
double relative_tolerance(DType dtype);  // as a part of the largest value: of the result of a few operations
bool is_integer_kind(DType dtype);       // neither floating point nor complex
std::uint64_t mix(std::uint64_t x);      // a hash

}  // namespace tenscope::compare
