#include "bindings/live_run.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "bindings/recording.hpp"

namespace tenscope::python {
namespace {

std::vector<std::weak_ptr<LiveRun>>& live_runs() {
  static auto* runs = new std::vector<std::weak_ptr<LiveRun>>;
  return *runs;
}

std::shared_ptr<LiveRun>& current() {
  static auto* run = new std::shared_ptr<LiveRun>;  // never destroyed: probes may run while the process ends
  return *run;
}

Run* current_fast = nullptr;

struct QueuedWarning {
  std::string message;
  QueuedWarning* next;
};

std::atomic<QueuedWarning*> queued_warnings{nullptr};  // a stack without a lock, so that a fork never leaves one locked

bool strict_by_environment() {
  const char* value = std::getenv("TENSCOPE_STRICT");
  return value && *value && std::string_view(value) != "0";
}

RunOptions with_warnings(RunOptions options) {
  if (!options.on_warning) options.on_warning = warn_later;
  return options;
}

}  // namespace

LiveRun::LiveRun(const std::filesystem::path& base, RunOptions options)
    : run(base, with_warnings(options)), strict(options.strict || strict_by_environment()) {}

LiveRun::~LiveRun() {
  if (PyGILState_Check()) std::erase_if(live_runs(), [](const auto& weak) { return weak.expired(); });
}

std::shared_ptr<LiveRun> open_run(const std::filesystem::path& base, RunOptions options) {
  auto run = std::make_shared<LiveRun>(base, std::move(options));
  live_runs().push_back(run);
  return run;
}

std::shared_ptr<LiveRun> share(const Run& run) {
  if (current() && &current()->run == &run) return current();
  for (const auto& weak : live_runs())
    if (auto live = weak.lock(); live && &live->run == &run) return live;
  return nullptr;
}

bool is_strict(const Run& run) {
  auto live = share(run);
  return live && live->strict;
}

void count_dropped(Run& run, const std::string& warning) {
  auto live = share(run);
  if (!live || live->dropped++ == 0) warn_later(warning);
  run.record({.kind = EventKind::Dropped, .name = "a value could not be read"}, EventValue(std::int64_t{1}));
}

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
  PyObject* errors = PyImport_ImportModule("tenscope.errors");
  PyObject* category = errors ? PyObject_GetAttrString(errors, "RecordingWarning") : nullptr;
  PyErr_Clear();
  while (oldest_first) {
    QueuedWarning* warning = oldest_first;
    oldest_first = warning->next;
    if (PyErr_WarnEx(category ? category : PyExc_RuntimeWarning, warning->message.c_str(), 1) != 0) {
      PyErr_Clear();
      PySys_FormatStderr("tenscope: %s\n", warning->message.c_str());
    }
    delete warning;
  }
  Py_XDECREF(category);
  Py_XDECREF(errors);
}

Run* current_run() noexcept { return current_fast; }

void set_current_run(std::shared_ptr<LiveRun> run) {
  current_fast = run ? &run->run : nullptr;
  std::swap(current(), run);
}

std::shared_ptr<LiveRun> share_current_run() { return current(); }

}  // namespace tenscope::python
