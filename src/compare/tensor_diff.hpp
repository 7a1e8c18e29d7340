#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_writer.hpp"
#include "kernels/compare.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope {

struct DiffOptions {
  // Where neither is given, the types' defaults hold; where one is given, the other is 0.
  std::optional<double> atol;
  std::optional<double> rtol;
  std::optional<std::uint64_t> ulps;  // given alone: atol and rtol are 0
  bool equal_nan = false;
  int threads = 0;
  std::function<void(std::int64_t)> progress;  // elements done so far, by one thread
};

// docs/compare.md has the table.
kernels::Tolerance default_tolerance(DType dtype) noexcept;
kernels::Tolerance tolerance_for(DType a, DType b, const DiffOptions& options) noexcept;

enum class Verdict : std::uint8_t { Identical, Close, Different };  // same bits; within the tolerance; not
std::string_view to_string(Verdict verdict) noexcept;               // "identical", "close", "different"

// One element of both tensors, with its values as text.
struct ElementPair {
  std::vector<std::int64_t> index;
  std::string a;
  std::string b;
};

// The indices along one axis whose slices hold mismatches, as ranges [begin, end); at most kMaxRanges of them are kept.
struct AxisPlaces {
  static constexpr std::size_t kMaxRanges = 16;
  std::int64_t size = 0;
  std::int64_t indices = 0;  // how many indices have mismatches (an upper bound on an axis beyond 4096)
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  std::int64_t end = 0;  // one past the last such index
  bool is_truncated = false;
};

struct UlpDistance {
  std::uint64_t median = 0;
  std::uint64_t p90 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t max = 0;
};

// How a tensor b differs from the reference a. What is not measured because the shapes differ is left out: has_elements
// is false.
struct TensorDiff {
  Verdict verdict = Verdict::Identical;
  DType a_dtype = DType::F32;
  DType b_dtype = DType::F32;
  std::vector<std::int64_t> a_shape;
  std::vector<std::int64_t> b_shape;
  kernels::Tolerance tolerance;
  std::optional<std::uint64_t> max_ulps_allowed;

  bool has_elements = false;
  std::int64_t count = 0;
  std::int64_t mismatches = 0;
  double max_abs = 0;
  double mean_abs = 0;
  double max_rel = 0;  // relative measures are as parts of a
  double mean_rel = 0;
  double cosine = 0;
  double relative_l2 = 0;
  std::int64_t nan_only_a = 0;
  std::int64_t nan_only_b = 0;
  std::int64_t nan_both = 0;
  std::int64_t inf_only_a = 0;
  std::int64_t inf_only_b = 0;
  std::optional<UlpDistance> ulps;
  std::optional<ElementPair> first;  // mismatch, in C order
  std::optional<ElementPair> worst;  // the largest error
  std::string where;                 // "all in [:, 64:128]"; empty where nothing mismatches
  std::vector<AxisPlaces> places;    // one for each axis
  std::int64_t zero_error = 0;
  std::array<std::int64_t, kernels::kErrorBins> error_histogram{};
  std::string relation;        // how b follows from a (explain.hpp); empty: not looked for, or none was found
  std::string relation_numpy;  // the same as a statement of NumPy

  bool is_different() const noexcept { return verdict == Verdict::Different; }
};

// Elements agree where |b - a| <= atol + rtol * |a|.
TensorDiff diff_tensors(const TensorView& a, const TensorView& b, const DiffOptions& options = {});

// The elements at an index in C order; nothing where it is negative.
std::optional<ElementPair> pair_at(const TensorView& a, const TensorView& b, std::int64_t flat_index);

// One element as text that reads back as the same number: "1.5", "-7", "nan", "(1+2j)".
std::string element_text(const TensorView& view, std::int64_t flat_index);

std::string summary_line(const TensorDiff& diff);  // the answer; report/value_diff.hpp has every measure
void write_json(JsonWriter& json, const TensorDiff& diff);

}  // namespace tenscope
