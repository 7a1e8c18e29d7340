#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "tenscope/diff.hpp"
#include "viewer/answer.hpp"

namespace tenscope::viewer {

struct ViewerOptions {
  RunDiffOptions diff;                     // how two runs are compared
  std::array<std::string, 2> shown_paths;  // of a and b, as people know them; empty: as they are opened
};

// What is looked at: a run, a file of tensors, or two of them; or a folder of runs. Any number of threads may ask.
class Viewer {
 public:
  // `b` may be empty. Throws where there is no such run or file.
  Viewer(const std::string& a, const std::string& b, ViewerOptions options = {});
  ~Viewer();

  // The answer to "/api/tile?event=5": docs/viewer.md. Throws nothing: what fails is an answer, too.
  Answer answer(std::string_view target) noexcept;

  // Until everything is read and compared. Throws InvalidArgument for a folder of runs.
  void wait() const;
  // What the comparison of two runs has found; null where there is none. Waits for it.
  std::shared_ptr<const RunDiff> diff() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenscope::viewer
