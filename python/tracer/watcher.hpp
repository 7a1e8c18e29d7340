#pragma once

// Overview: the engine of watching. One engine, several doors:
//
//   Watcher       what to watch (expressions), in which code, and where changes go: an in-memory log, the current run,
//                 a hook
//   Session       one watched call: what is known of each expression, and the call's log. Lives from the frame's start
//                 to its end, through the suspensions of a generator or coroutine
//   Frame         a running (or suspended) watched frame and the sessions that look at it
//   registry.cpp  which code is watched, by whom
//   frames.cpp    sessions and frames: start, suspension, end
//   look.cpp      one look at a frame
//   door_*.cpp    how the interpreter tells of starts, lines and ends: a trace function and a frame evaluator up to
//                 3.11, sys.monitoring from 3.12 on. They call enter(), look() and leave() and nothing else
//
// A look compares the watched expressions with what was known and reports what is new, attributed to the line that has
// just run. All of it happens under the GIL, with the thread's `busy` flag up, so that whatever Python code a look runs
// is not itself watched. Frames and their looks are only added and taken away while the flag is down, so that a look
// may run any Python code and still trust its references.

#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/object.hpp"
#include "tenscope/run.hpp"
#include "tracer/change_store.hpp"
#include "tracer/expression.hpp"
#include "tracer/frame_access.h"
#include "tracer/known.hpp"
#include "tracer/snapshot.hpp"
#include "tracer/tick_clock.hpp"

namespace tenscope::python {

struct WatchOptions {
  Ladder ladder;
  SnapshotOptions snapshot;
  bool keep = true;                    // changes are kept in memory for Watcher::last
  bool record = true;                  // changes go to the current run, where there is one
  bool globals = false;                // a name that is no local may be a global
  bool shared = false;                 // one session for the call and all frames below it, history by name
  int depth = 1;                       // frames looked at: 1 the function's own, 2 also what it calls, ...; 0 all below
  std::int64_t max_changes = 100'000;  // per call; more are counted as left out
  Values values = Values::Full;
};

// A change unpacked.
struct ChangeItem {
  Ref name, old_value, new_value;  // old_value null: first sight
  int line = 0;                    // that has just run
  int next_line = 0;               // about to run; at the end the last line again
  std::int64_t time_ns = 0;
  const CodeInfo* info = nullptr;  // whose frame it was
};

// The changes of one call.
struct CallLog {
  std::int64_t call = 0;
  unsigned long thread = 0;
  const CodeInfo* info = nullptr;
  std::string task;
  bool raised = false;
  bool finished = false;
  std::int64_t left_out = 0;
  std::vector<Ref> names;
  ChangeStore items;
  std::optional<StampAnchor> anchor;  // made when a time is first asked for

  ChangeItem unpack(std::size_t index);
};

struct Session;

struct Watcher {
  std::vector<Expression> expressions;
  WatchOptions options;
  Ref on_change;  // hook(Change)
  Ref on_value;   // on_value(tag, name, value, line, next_line): the live value, for probes that keep their own books
  Ref on_enter;   // on_enter(code, self) -> tag, None: do not watch this call
  Ref on_finish;  // on_finish(Changes) at the end of each call
  std::int64_t calls = 0;
  std::shared_ptr<CallLog> last;
  Ref publish_to;  // a dict that gets "changes" after each call
};

// Where an expression's variable is found in frames of one code object.
struct Slot {
  int expression = 0;
  int index = -1;  // of the frame's slots; -1: in the namespace of a module or class body, or among the globals
  bool cell = false;
};

enum LineFlag : unsigned char { kInert = 1, kIgnored = 2 };

// What is known of a code object that is or was watched. Never freed: logs point to it.
struct CodeInfo {
  struct Entry {
    std::shared_ptr<Watcher> watcher;
    PyObject* function = nullptr;  // only frames of this function; null: any. Borrowed: removed when the function dies
    ts_frame* frame = nullptr;     // only this frame (a `with` block); null: any
  };
  Ref code;
  std::vector<Entry> entries;
  std::string function;  // qualified name
  std::string file;
  std::string site;  // the file as an event's site has it: below the working folder, or its base name
  int first_line = 0;
  std::string flags;  // LineFlag by line - first_line
  bool one_line_loops = false;
  std::vector<std::pair<int, int>> comprehensions;  // offsets of those that run in the function's own frame (3.12)
  bool listening = false;                           // the door tells of this code

  // A comprehension is a scope of its own: inside it there is nothing to look at.
  bool is_comprehension(int offset) const {
    return std::any_of(comprehensions.begin(), comprehensions.end(),
                       [&](const auto& range) { return range.first <= offset && offset <= range.second; });
  }

  unsigned char flags_of(int line) const {
    const auto index = static_cast<std::size_t>(line - first_line);
    return index < flags.size() ? static_cast<unsigned char>(flags[index]) : 0;
  }
};

struct Session {
  struct Entry {
    Known known;
    Ref snapshot;              // of the last value, unless it is a scalar
    PyObject* root = nullptr;  // the variable's value at the last look, null: it had none; compared only
    bool settled = true;       // the root is a pinned scalar or none: the same is the same
    std::int64_t name = -1;    // of the log's names; -1: not there yet
    bool told_left_out = false;
  };
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<CallLog> log;
  std::vector<Entry> entries;                          // one per expression
  std::unordered_map<std::string, Entry> any_entries;  // of expressions with a `*`, by concrete name
  ts_frame* home = nullptr;                            // the frame it began with
  Ref tag;
};

struct Look {
  std::shared_ptr<Session> session;
  std::vector<Slot> slots;  // of the expressions that frames of this code can have
  bool owns = false;        // the session ends with this frame
  bool ended = false;       // by a hook, in the middle of a look: it is taken away when none is under way
};

// What a look at a line reads first, resolved from the looks: a variable and what is known of it.
struct Check {
  PyObject** place = nullptr;  // the variable's slot
  Session* session = nullptr;
  Session::Entry* entry = nullptr;
  PyObject* name = nullptr;  // of an expression that is a plain variable, else null
  bool cell = false;

  PyObject* value() const {
    PyObject* value = *place;
    if (cell && value && PyCell_Check(value)) value = PyCell_GET(value);
    return value;
  }
};

struct Frame {
  ts_frame* frame = nullptr;
  PyObject** slots = nullptr;
  CodeInfo* info = nullptr;
  int line = 0;             // that runs now
  unsigned char flags = 0;  // of that line
  bool attached = false;    // watched from its middle on, so that no door saw it start
  std::vector<Look> looks;
  std::vector<Check> checks;  // of all looks, in their order
  bool has_unplaced = false;  // some variable has no slot (globals, names of a class body): look slowly at each line
  bool has_ended = false;     // some look has ended
  Ref generator_guard;        // weak reference whose callback drops a suspended frame that dies unseen

  PyCodeObject* code() const { return reinterpret_cast<PyCodeObject*>(info->code.get()); }
  void resolve_checks();  // after each change of the looks
  void drop_ended();      // takes ended looks away; not in the middle of one
};

struct Thread {
  bool busy = false;
  std::vector<std::unique_ptr<Frame>> frames;  // running, innermost last
  std::vector<std::shared_ptr<Session>> deep;  // sessions that also look at the frames below
  PyObject* failure = nullptr;  // where errors raise: an exception that the door has still to raise in the program
#if PY_VERSION_HEX < 0x030C0000
  bool installed = false;          // a watched frame is on the stack: our trace function is, or will be again, in place
  Py_tracefunc chained = nullptr;  // the trace function that the program believes to be installed
#endif

  bool raise_failure() noexcept;  // sets it as the pending error; false where there is none, or another is pending
  void write_failure() noexcept;  // to stderr: another error is on its way through the program

  Frame* top() { return frames.empty() ? nullptr : frames.back().get(); }
  Frame* find(ts_frame* frame);
};

extern thread_local constinit Thread* the_thread [[gnu::tls_model("initial-exec")]];  // read at every line
Thread& make_thread();
inline Thread& this_thread() { return the_thread ? *the_thread : make_thread(); }

// --- the registry
void add_code(const std::shared_ptr<Watcher>& watcher, PyCodeObject* code, PyObject* function, ts_frame* frame);
void remove_watcher(const Watcher* watcher);
bool is_watched(PyCodeObject* code);       // quick
bool is_suspended(ts_frame* frame);        // a generator's, watched before; it may go on by throw()
bool is_wanted_below(PyCodeObject* code);  // by any watcher with depth other than 1
// Calls `function` with nothing watched on this thread. Returns a new reference, or null with an error set.
PyObject* call_unwatched(PyObject* function, PyObject* arguments);

void set_describe(PyObject* describe,
                  const std::string& own_folder);  // describe(code) -> (first line, flags, one-line
                                                   // loops); code below own_folder is only watched by name

// --- what the doors call. None of them throws or leaves an error set.
Frame* enter(Thread& thread, ts_frame* frame, PyCodeObject* code, bool fresh) noexcept;
void look_slowly(Thread& thread, Frame& frame, int next_line) noexcept;
void leave(Thread& thread, ts_frame* frame, bool suspended, bool raised) noexcept;

// --- a block of the running frame
void attach(const std::shared_ptr<Watcher>& watcher, PyFrameObject* frame);
void detach(const std::shared_ptr<Watcher>& watcher);

// --- what the doors provide
bool door_open(std::string& problem);            // called with the first watched code
void door_watch(const CodeInfo& info, bool on);  // a code object gained its first watcher or lost its last
void door_watch_deep();                          // a watcher with depth other than 1 was added
void door_attach(Thread& thread, Frame& frame);  // the running frame is watched from now on
void door_detach(Thread& thread);                // the running frame may not be watched any more
const char* door_name();

// True where no watched expression can have changed: each root is the object it was, and either a pinned scalar or the
// line that ran cannot write.
inline bool is_unchanged(const Frame& frame) {
  const bool inert = frame.flags & kInert;
  for (const Check& check : frame.checks) {
    if (check.value() != check.entry->root || !(check.entry->settled || inert)) return false;
  }
  return !frame.has_unplaced;
}

inline void look(Thread& thread, Frame& frame, int next_line) noexcept {
  if (!is_unchanged(frame)) look_slowly(thread, frame, next_line);
  frame.line = next_line;
  frame.flags = frame.info->flags_of(next_line);
}

}  // namespace tenscope::python
