#pragma once

#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// What the requests of these names are answered with (docs/viewer.md).
Answer variables_answer(const State& state, const Parameters& parameters);
Answer changes_answer(const State& state, const Parameters& parameters);
Answer source_answer(const State& state, const Parameters& parameters);
Answer calls_answer(const State& state, const Parameters& parameters);

}  // namespace tenscope::viewer
