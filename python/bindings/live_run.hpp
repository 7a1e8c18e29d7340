#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <string>

#include "tenscope/run.hpp"

namespace tenscope::python {

// A run that Python opened. All functions here need the GIL, except warn_later.
struct LiveRun {
  LiveRun(const std::filesystem::path& base, RunOptions options);
  ~LiveRun();

  Run run;
  bool strict;
  std::atomic<std::uint64_t> dropped{0};  // lost before they reached the run
};

std::shared_ptr<LiveRun> open_run(const std::filesystem::path& base, RunOptions options);

// The owner of a run that open_run returned: hold it where the GIL is released while the run is in use. Null for
// others.
std::shared_ptr<LiveRun> share(const Run& run);
bool is_strict(const Run& run);

// Counts an event that was lost before it reached the run and warns of it once per kind of trouble.
void count_dropped(Run& run, const std::string& warning);

// The run may warn on a thread without the GIL and under its own lock, so warnings are queued and issued by
// issue_warnings as Python warnings (tenscope.RecordingWarning); an error that a filter makes of one goes to stderr.
void warn_later(const std::string& message) noexcept;
void issue_warnings() noexcept;

// The process-wide run; null for none.
void set_current_run(std::shared_ptr<LiveRun> run);
std::shared_ptr<LiveRun> share_current_run();

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { PyEval_RestoreThread(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace tenscope::python
