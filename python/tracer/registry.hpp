#pragma once

// The engine's one state and what its files share. Guarded by the GIL.

#include <Python.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracer/watcher.hpp"

namespace tenscope::python {

struct Registry {
  std::unordered_map<PyCodeObject*, CodeInfo*> codes;
  std::unordered_map<ts_frame*, std::unique_ptr<Frame>> suspended;
  std::vector<std::unique_ptr<Frame>> dying;  // suspended frames whose generator is being destroyed
  std::vector<std::weak_ptr<Watcher>> deep;   // watchers that look below their function
  Ref describe;
  std::string own_folder;
  bool open = false;
};

Registry& registry();  // never destroyed, since threads may outlive the interpreter's end

CodeInfo* code_info(PyCodeObject* code);
void listen(CodeInfo& info, bool on);

// Where the expressions' variables are in frames of this code; those that cannot be there are left out.
std::vector<Slot> find_slots(const Watcher& watcher, PyCodeObject* code);
// Whether a watcher that looks below its function wants frames of this code.
bool has_local(const Watcher& watcher, PyCodeObject* code);

void look_at(const Frame& frame, const Look& look, const Slot& slot, int next_line);

// While it lives the thread is not watched, and the pending Python error is put aside.
class Busy {
 public:
  explicit Busy(Thread& thread) : thread_(thread), before_(thread.busy) { thread.busy = true; }
  ~Busy() { thread_.busy = before_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Thread& thread_;
  bool before_;
  ErrorKeeper keeper_;
};

}  // namespace tenscope::python
