#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tenscope/tensor_view.hpp"
#include "viewer/answer.hpp"

namespace tenscope::viewer {

// A tensor and its partner in the other run, where there is one with the same shape.
struct TensorPair {
  TensorView a;
  std::optional<TensorView> b;
};

// What the requests of the same names are answered with (docs/viewer.md). They look at elements and at nothing else.
// Throw InvalidArgument for parameters that do not fit the tensor, NotFound where `of` needs a partner that is missing.
Answer tile_answer(const TensorPair& pair, const Parameters& parameters);
Answer elements_answer(const TensorPair& pair, const Parameters& parameters);
Answer element_answer(const TensorPair& pair, const Parameters& parameters);
Answer find_answer(const TensorPair& pair, const Parameters& parameters);
Answer tolerance_answer(const TensorPair& pair, const Parameters& parameters);
Answer profile_answer(const TensorPair& pair, const Parameters& parameters);
Answer histogram_answer(const TensorPair& pair, const Parameters& parameters);

// A tensor at one step, and its partner.
struct HistogramStep {
  std::int64_t step = 0;
  std::uint64_t event = 0;
  TensorPair tensors;
};

// /api/histograms: those of all steps, with one set of edges. `left_out` says how many steps are not among them.
Answer histograms_answer(std::span<const HistogramStep> steps, std::int64_t left_out);

}  // namespace tenscope::viewer
