#include "bindings/live_run.hpp"

#include <utility>

#include "bindings/object.hpp"
#include "store/strict.hpp"

namespace tenscope::python {
namespace {

std::shared_ptr<LiveRun>& current() {
  static auto* run = new std::shared_ptr<LiveRun>;  // never destroyed: probes may run while the process ends
  return *run;
}

std::uint64_t code_generation = 0;

Run* current_fast = nullptr;  // of current(): only asked whether it is enabled

PyObject* run_opener = nullptr;

void open_run(Wish wish) noexcept {
  if (!run_opener) return;
  const Ref opener = Ref::share(run_opener);  // it may be taken back meanwhile
  if (!Ref::steal(PyObject_CallOneArg(opener.get(), wish == Wish::Step ? Py_True : Py_False))) drop_error();
}

struct QueuedWarning {
  std::string message;
  QueuedWarning* next;
};

std::atomic<QueuedWarning*> queued_warnings{nullptr};  // a stack without a lock, so that a fork never leaves one locked

RunOptions with_warnings(RunOptions options) {
  if (!options.on_warning) options.on_warning = warn_later;
  return options;
}

}  // namespace

LiveRun::LiveRun(const std::filesystem::path& base, const RunOptions& options)
    : run(base, with_warnings(options)), strict(options.strict || store::is_strict_by_environment()) {}

void LiveRun::tell_code(PyObject* code) {
  if (!on_code) return;
  PyObject* file = reinterpret_cast<PyCodeObject*>(code)->co_filename;
  if (generation_ != code_generation) {
    files_.clear();
    last_file_ = nullptr;
    generation_ = code_generation;
  }
  if (file == last_file_) return;
  last_file_ = file;
  if (!files_.try_emplace(file, Ref::share(file)).second) return;
  const Ref done = Ref::steal(PyObject_CallOneArg(on_code.get(), code));
  if (!done) drop_error();
}

void forget_codes() noexcept { ++code_generation; }

void LiveRun::count_dropped(const std::string& warning) {
  if (dropped++ == 0) warn_later(warning);
  run.record({.kind = EventKind::Dropped, .name = "recording a value failed"}, EventValue(std::int64_t{1}));
}

bool is_strict() { return (current() && current()->strict) || store::is_strict_by_environment(); }

void warn_later(const std::string& message) noexcept {
  try {
    auto* warning = new QueuedWarning{message, queued_warnings.load(std::memory_order_relaxed)};
    while (!queued_warnings.compare_exchange_weak(warning->next, warning, std::memory_order_release)) {
    }
  } catch (...) {
  }
}

void issue_warnings() noexcept {
  if (!queued_warnings.load(std::memory_order_relaxed)) return;
  QueuedWarning* newest_first = queued_warnings.exchange(nullptr, std::memory_order_acquire);
  QueuedWarning* oldest_first = nullptr;
  while (newest_first) {
    QueuedWarning* next = newest_first->next;
    newest_first->next = oldest_first;
    oldest_first = newest_first;
    newest_first = next;
  }
  const Ref errors = Ref::steal(PyImport_ImportModule("tenscope.errors"));
  const Ref category = attribute(errors.get(), "RecordingWarning");
  drop_error();
  while (oldest_first) {
    QueuedWarning* warning = oldest_first;
    oldest_first = warning->next;
    if (PyErr_WarnEx(category ? category.get() : PyExc_RuntimeWarning, warning->message.c_str(), 1) != 0) {
      drop_error();
      PySys_FormatStderr("tenscope: %s\n", warning->message.c_str());
    }
    delete warning;
  }
}

void set_current_run(std::shared_ptr<LiveRun> run) {
  current_fast = run ? &run->run : nullptr;
  std::swap(current(), run);
}

std::shared_ptr<LiveRun> share_current_run() { return current(); }

void set_run_opener(PyObject* opener) {
  PyObject* before = std::exchange(run_opener, Py_XNewRef(opener));
  Py_XDECREF(before);
}

std::shared_ptr<LiveRun> share_current_run_for(Wish wish) {
  if (!current_fast || wish == Wish::Step) open_run(wish);
  return current();
}

bool is_recording() noexcept {
  if (!current_fast && run_opener) open_run(Wish::Record);
  return current_fast && current_fast->enabled();
}

}  // namespace tenscope::python
