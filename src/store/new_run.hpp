#pragma once

#include <filesystem>

#include "tenscope/run.hpp"

namespace tenscope::store {

// The folder of a run and this process' own in it, both made. Any number of processes may do this at the same time.
struct RunFolder {
  std::filesystem::path run;
  std::filesystem::path writer;
};

// Throws IoError; InvalidArgument for a name that is no plain file name.
RunFolder make_run_folder(const std::filesystem::path& base, const RunOptions& options);

// rank-N.pid-PID for this process, with .2, .3 … behind it where that is taken; made.
std::filesystem::path make_child_folder(const std::filesystem::path& run, const RunOptions& options);

}  // namespace tenscope::store
