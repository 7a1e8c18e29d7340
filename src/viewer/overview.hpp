#pragma once

#include "viewer/answer.hpp"
#include "viewer/session.hpp"

namespace tenscope::viewer {

// What the requests of these names are answered with (docs/viewer.md).
Answer timeline_answer(const State& state);
Answer modules_answer(const State& state);

}  // namespace tenscope::viewer
