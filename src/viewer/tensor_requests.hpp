#pragma once

#include <optional>
#include <string_view>

#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// What is asked of the tensors of events: /api/tile and the like. Nothing where `path` is another request.
std::optional<Answer> tensor_answer(const State& state, std::string_view path, const Parameters& parameters);

// /api/histograms
Answer histograms_of(const State& state, const Parameters& parameters);

}  // namespace tenscope::viewer
