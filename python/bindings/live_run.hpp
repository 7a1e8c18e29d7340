#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "bindings/object.hpp"
#include "tenscope/run.hpp"

namespace tenscope::compare {
class Against;
}

namespace tenscope::python {

// A run that Python opened. Whoever uses one holds it (std::shared_ptr) to the end of that use: wherever Python code
// can run, or the GIL is released, the run may be closed, replaced by another and dropped. All functions here need the
// GIL, except warn_later.
struct LiveRun {
  LiveRun(const std::filesystem::path& base, const RunOptions& options);

  // Counts an event that was lost before it reached the run and warns of the first.
  void count_dropped(const std::string& warning);

  // Hands a code object that records to `on_code`, the first of each file; what that raises is dropped.
  void tell_code(PyObject* code);

  Run run;
  const bool strict;
  Ref on_code;                                // keeps sources; empty: nobody does
  std::atomic<std::uint64_t> dropped{0};      // events lost before they reached the run
  std::atomic<std::uint64_t> spent_ns{0};     // that recording took, by all threads together
  std::shared_ptr<compare::Against> against;  // what is recorded is compared with this, where it is set

 private:
  std::unordered_map<PyObject*, Ref> files_;  // told, by the text that names them; held, so that no other has its place
  PyObject* last_file_ = nullptr;
  std::uint64_t generation_ = 0;
};

// In a forked child: every file is news again.
void forget_codes() noexcept;

// Whether what goes wrong in the recorder raises: TENSCOPE_STRICT, or the current run is strict.
bool is_strict();

// The run may warn on a thread without the GIL and under its own lock, so warnings are queued and issued by
// issue_warnings as Python warnings (tenscope.RecordingWarning); an error that a filter makes of one goes to stderr.
void warn_later(const std::string& message) noexcept;
void issue_warnings() noexcept;

// The process-wide run that tenscope.init() opened; null for none.
void set_current_run(std::shared_ptr<LiveRun> run);
std::shared_ptr<LiveRun> share_current_run();

// Under `tenscope run`; null for none. Called with False where a program wants to record and no run is current, which
// it may change, and with True where a program steps by itself. All of these with the GIL.
void set_run_opener(PyObject* opener);
enum class Wish { Record, Step };
std::shared_ptr<LiveRun> share_current_run_for(Wish wish);

// Whether there is a current run, perhaps only now, that is enabled: the quick question before anything else.
bool is_recording() noexcept;

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
