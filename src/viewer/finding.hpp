#pragma once

#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// What /api/answer is answered with (docs/viewer.md); `done` is how far the work has come.
Answer finding_answer(const State& state, double done);

}  // namespace tenscope::viewer
