#include <algorithm>
#include <utility>

#include "tracer/changes.hpp"
#include "tracer/registry.hpp"
#include "tracer/run_sink.hpp"

namespace tenscope::python {
namespace {

std::shared_ptr<CallLog> new_log(Watcher& watcher, PyCodeObject* code) {
  auto log = std::make_shared<CallLog>();
  log->call = watcher.calls++;
  log->thread = PyThread_get_thread_ident();
  log->info = code_info(code);
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) log->task = current_task_name();
  return log;
}

std::shared_ptr<Session> new_session(const std::shared_ptr<Watcher>& watcher, ts_frame* frame, PyCodeObject* code) {
  auto session = std::make_shared<Session>();
  if (watcher->on_enter) {
    int is_cell = 0;
    static PyObject* self_name = interned("self");
    const int slot = ts_find_slot(code, self_name, &is_cell);
    PyObject* place = slot >= 0 ? ts_frame_slots(frame)[slot] : nullptr;
    if (is_cell && place && PyCell_Check(place)) place = PyCell_GET(place);
    const Ref self = Ref::share(place ? place : Py_None);
    session->tag = Ref::steal(
        PyObject_CallFunctionObjArgs(watcher->on_enter.get(), reinterpret_cast<PyObject*>(code), self.get(), nullptr));
    if (!session->tag) note_failure("on_enter");
    if (!session->tag || session->tag.get() == Py_None) return nullptr;
  }
  session->watcher = watcher;
  session->entries.resize(watcher->expressions.size());
  session->home = frame;
  session->log = new_log(*watcher, code);
  return session;
}

void finish(Session& session, bool raised) {
  Watcher& watcher = *session.watcher;
  session.log->finished = true;
  session.log->raised = raised;
  watcher.last = session.log;
  if (session.log->left_out && watcher.options.record) record_left_out(*session.log);
  if (watcher.publish_to || watcher.on_finish) {
    const Ref changes = make_changes(session.log);
    if (changes && watcher.publish_to) {
      static PyObject* name = interned("changes");
      PyDict_SetItem(watcher.publish_to.get(), name, changes.get());
      PyErr_Clear();
    }
    if (changes && watcher.on_finish) {
      if (!Ref::steal(PyObject_CallOneArg(watcher.on_finish.get(), changes.get()))) note_failure("on_finish");
    }
  }
}

void end_sessions(Thread& thread, Frame& frame, bool raised) {
  for (Look& look : frame.looks) {
    if (!look.owns || look.ended) continue;
    std::erase(thread.deep, look.session);
    finish(*look.session, raised);
  }
}

int frames_between(ts_frame* frame, ts_frame* home, int limit) {
  ts_frame* current = ts_current_frame(PyThreadState_Get());  // not yet `frame` where a frame evaluator asks
  int count = current == frame ? 0 : 1;
  frame = current;
  for (; frame && frame != home; frame = ts_previous_frame(frame)) {
    if (++count > limit) break;
  }
  return count;
}

// The function whose frame it is. 3.10 does not tell: there it is the newest watched one with the frame's closure.
PyObject* running_function(ts_frame* frame, const std::vector<CodeInfo::Entry>& entries) {
  if (PyObject* function = ts_frame_function(frame)) return function;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->function && ts_has_closure_of(frame, entry->function)) return entry->function;
  }
  return nullptr;
}

std::unique_ptr<Frame> new_frame(ts_frame* frame, PyCodeObject* code, CodeInfo* info) {
  auto result = std::make_unique<Frame>();
  result->frame = frame;
  result->slots = ts_frame_slots(frame);
  result->info = info;
  result->line = code->co_firstlineno;
  return result;
}

void collect_looks(Thread& thread, Frame& frame, PyCodeObject* code) {
  const std::vector<CodeInfo::Entry> entries = frame.info->entries;  // a copy: on_enter may change them
  PyObject* function = running_function(frame.frame, entries);
  for (const CodeInfo::Entry& entry : entries) {
    if ((entry.frame && entry.frame != frame.frame) || (entry.function && entry.function != function)) continue;
    if (auto session = new_session(entry.watcher, frame.frame, code)) {
      frame.looks.push_back({session, find_slots(*entry.watcher, code), true});
    }
  }
  for (const auto& session : thread.deep) {
    const WatchOptions& options = session->watcher->options;
    if (!has_local(*session->watcher, code)) continue;
    if (options.depth > 1 && frames_between(frame.frame, session->home, options.depth) >= options.depth) continue;
    const bool own_already = std::any_of(frame.looks.begin(), frame.looks.end(), [&](const Look& look) {
      return look.session->watcher == session->watcher && !options.shared;
    });
    if (own_already) continue;
    if (options.shared) {
      frame.looks.push_back({session, find_slots(*session->watcher, code), false});
    } else {  // history by frame, one log
      auto below = std::make_shared<Session>();
      below->watcher = session->watcher;
      below->entries.resize(session->watcher->expressions.size());
      below->log = session->log;
      below->tag = session->tag;
      frame.looks.push_back({below, find_slots(*session->watcher, code), false});
    }
  }
  for (const Look& look : frame.looks) {
    if (look.owns && look.session->watcher->options.depth != 1) thread.deep.push_back(look.session);
  }
}

void flush_dying(Thread& thread) {
  while (!registry().dying.empty()) {
    const auto frame = std::move(registry().dying.back());
    registry().dying.pop_back();
    end_sessions(thread, *frame, false);
  }
}

#if PY_VERSION_HEX >= 0x030D0000
// Since 3.13 a generator may be closed without its frame running again. Its death is then the end of the session; but
// the weak reference's callback comes before the generator's finally blocks run, so the frame is only set aside.
PyObject* generator_died(PyObject* key, PyObject*) {
  auto* frame = static_cast<ts_frame*>(PyCapsule_GetPointer(key, nullptr));
  Thread& thread = this_thread();
  const Busy busy(thread);
  flush_dying(thread);
  const auto found = registry().suspended.find(frame);
  if (found != registry().suspended.end()) {
    registry().dying.push_back(std::move(found->second));
    registry().suspended.erase(found);
  }
  Py_RETURN_NONE;
}

void guard_generator(Frame& frame) {
  static PyMethodDef method{"generator_died", generator_died, METH_O, nullptr};
  PyObject* generator = ts_frame_generator(frame.frame);
  if (!generator || frame.generator_guard) return;
  const Ref key = Ref::steal(PyCapsule_New(frame.frame, nullptr, nullptr));
  const Ref callback = key ? Ref::steal(PyCFunction_New(&method, key.get())) : Ref();
  if (callback) frame.generator_guard = Ref::steal(PyWeakref_NewRef(generator, callback.get()));
  PyErr_Clear();
}
#else
void guard_generator(Frame&) {}
#endif

std::unique_ptr<Frame> take_suspended(ts_frame* frame) {
  Registry& state = registry();
  if (const auto found = state.suspended.find(frame); found != state.suspended.end()) {
    auto result = std::move(found->second);
    state.suspended.erase(found);
    return result;
  }
  for (auto& dying : state.dying) {
    if (dying && dying->frame == frame) {
      auto result = std::move(dying);
      std::erase(state.dying, nullptr);
      return result;
    }
  }
  return nullptr;
}

}  // namespace

thread_local constinit Thread* the_thread = nullptr;

Thread& make_thread() {
  // At the thread's end, which may come after the interpreter's, only what holds no Python object is freed.
  struct Owner {
    ~Owner() {
      if (!the_thread || !the_thread->frames.empty() || !the_thread->deep.empty() || the_thread->failure) return;
      delete std::exchange(the_thread, nullptr);
    }
  };
  static thread_local Owner owner;
  static_cast<void>(&owner);  // makes it, and with it its end
  the_thread = new Thread;
  return *the_thread;
}

Frame* Thread::find(ts_frame* frame) {
  for (auto it = frames.rbegin(); it != frames.rend(); ++it) {
    if ((*it)->frame == frame) return it->get();
  }
  return nullptr;
}

PyObject* call_unwatched(PyObject* function, PyObject* arguments) {
  Thread& thread = this_thread();
  const bool before = std::exchange(thread.busy, true);
  PyObject* result = PyObject_CallObject(function, arguments);
  thread.busy = before;
  return result;
}

bool is_suspended(ts_frame* frame) {
  const Registry& state = registry();
  return state.suspended.contains(frame) ||
         std::any_of(state.dying.begin(), state.dying.end(), [&](const auto& dying) { return dying->frame == frame; });
}

Frame* enter(Thread& thread, ts_frame* frame, PyCodeObject* code, bool fresh) noexcept try {
  if (thread.busy) return nullptr;
  if (auto known = take_suspended(frame)) {
    if (!fresh) {
      known->flags &= ~kInert;  // others ran since
      for (Look& look : known->looks) {
        if (look.owns && look.session->watcher->options.depth != 1) thread.deep.push_back(look.session);
      }
      thread.frames.push_back(std::move(known));
      return thread.top();
    }
    const Busy busy(thread);
    end_sessions(thread, *known, false);
  }
  const bool registered = is_watched(code);
  if (!registered && thread.deep.empty()) return nullptr;
  const Busy busy(thread);
  if (!registry().dying.empty()) flush_dying(thread);
  if (!registered && std::none_of(thread.deep.begin(), thread.deep.end(),
                                  [&](const auto& session) { return has_local(*session->watcher, code); })) {
    return nullptr;
  }
  auto result = new_frame(frame, code, code_info(code));
  collect_looks(thread, *result, code);
  if (result->looks.empty()) return nullptr;
  result->resolve_checks();
  listen(*result->info, true);
  thread.frames.push_back(std::move(result));
  return thread.top();
} catch (const std::exception& error) {
  note_exception(error);
  return nullptr;
}

void leave(Thread& thread, ts_frame* frame, bool suspended, bool raised) noexcept try {
  if (thread.busy) return;
  auto it =
      std::find_if(thread.frames.rbegin(), thread.frames.rend(), [&](const auto& f) { return f->frame == frame; });
  std::unique_ptr<Frame> own;
  if (it != thread.frames.rend()) {
    own = std::move(*it);
    thread.frames.erase(std::next(it).base());
  } else if (!suspended) {
    own = take_suspended(frame);  // ended by throw() or close() before any line ran
  }
  if (!own) return;
  look(thread, *own, own->line);
  const Busy busy(thread);
  if (suspended) {
    for (const Look& look : own->looks) {
      if (look.owns) std::erase(thread.deep, look.session);
    }
    guard_generator(*own);
    registry().suspended[frame] = std::move(own);
    return;
  }
  end_sessions(thread, *own, raised);
  own.reset();
} catch (const std::exception& error) {
  note_exception(error);
}

void attach(const std::shared_ptr<Watcher>& watcher, PyFrameObject* object) {
  Thread& thread = this_thread();
  if (thread.busy) return;  // a hook is not watched
  ts_frame* raw = ts_frame_of(object);
  PyCodeObject* code = ts_frame_code(raw);
  add_code(watcher, code, nullptr, raw);
  const Busy busy(thread);
  const auto session = new_session(watcher, raw, code);
  if (!session) return;
  Frame* frame = thread.find(raw);
  if (!frame) {
    thread.frames.push_back(new_frame(raw, code, code_info(code)));
    frame = thread.top();
    frame->attached = true;
  }
  frame->line = ts_frame_line(raw);
  frame->flags = 0;
  frame->looks.push_back({session, find_slots(*watcher, code), true});
  frame->resolve_checks();
  if (watcher->options.depth != 1) thread.deep.push_back(session);
  door_attach(thread, *frame);
}

void detach(const std::shared_ptr<Watcher>& watcher) {
  Thread& thread = this_thread();
  const bool in_a_look = thread.busy;
  const Busy busy(thread);
  for (auto it = thread.frames.rbegin(); it != thread.frames.rend(); ++it) {
    Frame& frame = **it;
    const auto look = std::find_if(frame.looks.begin(), frame.looks.end(),
                                   [&](const Look& l) { return l.session->watcher == watcher && l.owns && !l.ended; });
    if (look == frame.looks.end()) continue;
    if (in_a_look) {
      look->ended = frame.has_ended = true;
      std::erase(thread.deep, look->session);
      finish(*look->session, false);
      break;
    }
    for (const Slot& slot : look->slots) look_at(frame, *look, slot, frame.line);
    const auto session = look->session;
    std::erase(thread.deep, session);
    frame.looks.erase(look);
    frame.resolve_checks();
    finish(*session, false);
    if (frame.looks.empty()) {
      const bool attached = frame.attached;
      thread.frames.erase(std::next(it).base());
      if (attached) door_detach(thread);
    }
    break;
  }
  remove_watcher(watcher.get());
}

}  // namespace tenscope::python
