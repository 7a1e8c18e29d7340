#include "tracer/watcher.hpp"

// Overview: Python 3.10 and 3.11. A frame evaluator (PEP 523) sees every frame start and end; while a watched frame
// runs, a C trace function sees its lines; around every other frame below it the trace function is taken out again, so
// that code that is not watched runs untraced.
//
// Other tracers keep working. Only tstate->c_tracefunc is ours; c_traceobj stays the program's, so sys.gettrace() gives
// what it gave before. Events of watched frames are passed on to the trace function that was there (thread.chained);
// when the program installs another one (a debugger's set_trace, sys.settrace), it becomes the chained one. Another
// frame evaluator (torch.compile's) is chained in the same way.

#if PY_VERSION_HEX < 0x030C0000

namespace tenscope::python {
namespace {

#if PY_VERSION_HEX < 0x030B0000
using RawFrame = PyFrameObject;
#else
using RawFrame = _PyInterpreterFrame;
#endif

_PyFrameEvalFunction previous_evaluator = nullptr;

int trace(PyObject* object, PyFrameObject* frame, int what, PyObject* argument) {
  Thread& thread = this_thread();
  Frame* top = thread.top();
  PyThreadState* state = nullptr;
  if (top && top->frame == ts_frame_of(frame)) {
    if (what == PyTrace_LINE) {
      look(thread, *top, PyFrame_GetLineNumber(frame));
      if (thread.failure && thread.raise_failure()) [[unlikely]]
        return -1;
    } else if (what == PyTrace_RETURN && top->attached) {
      PyObject* generator = ts_frame_generator(top->frame);
      leave(thread, top->frame, argument && generator && ts_generator_suspended(generator), !argument);
      door_detach(thread);
    }
  }
  if (!thread.chained) return 0;
  state = PyThreadState_Get();
  Py_tracefunc ours = ts_trace_function(state);
  ts_set_trace_function(state, thread.chained);
  const int result = thread.chained(object, frame, what, argument);
  thread.chained = ts_trace_function(state);
  ts_set_trace_function(state, ours == trace ? trace : thread.chained);
  return result;
}

PyObject* evaluate_other(Thread& thread, PyThreadState* state, RawFrame* frame, int throwing) {
  Py_tracefunc now = ts_trace_function(state);
  if (now != trace) thread.chained = now;  // the watched frame itself called sys.settrace
  ts_set_trace_function(state, thread.chained);
  PyObject* result = previous_evaluator(state, frame, throwing);
  if (!thread.installed) return result;  // a `with` block began or ended below
  now = ts_trace_function(state);
  if (now != trace) thread.chained = now;
  ts_set_trace_function(state, trace);
  return result;
}

PyObject* evaluate_watched(Thread& thread, PyThreadState* state, RawFrame* raw, int throwing) {
  auto* frame = reinterpret_cast<ts_frame*>(raw);
  const bool outermost = !thread.installed;
  if (outermost || ts_trace_function(state) != trace) thread.chained = ts_trace_function(state);
  thread.installed = true;
  ts_set_trace_function(state, trace);
  PyObject* generator = ts_frame_generator(frame);

  PyObject* result = previous_evaluator(state, raw, throwing);

  const bool suspended = result && generator && ts_generator_suspended(generator);
  {
    const ErrorKeeper keeper;
    ts_suspend_tracing(state);
    leave(thread, frame, suspended, !result);
    ts_resume_tracing(state);
  }
  if (ts_trace_function(state) != trace) thread.chained = ts_trace_function(state);
  if (outermost) thread.installed = false;
  ts_set_trace_function(state, outermost ? thread.chained : trace);
  if (thread.failure && !suspended && thread.raise_failure())
    Py_CLEAR(result);  // a generator raises it when it goes on
  return result;
}

PyObject* evaluator(PyThreadState* state, RawFrame* raw, int throwing) {
  Thread& thread = this_thread();
  if (thread.busy || ts_is_tracing(state)) return previous_evaluator(state, raw, throwing);
  auto* frame = reinterpret_cast<ts_frame*>(raw);
  PyCodeObject* code = ts_frame_code(frame);
  const bool created_only = (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) &&
                            !ts_frame_generator(frame);  // 3.11: the call that makes the generator
  if (!created_only && (!thread.deep.empty() || is_watched(code)) && enter(thread, frame, code, false)) {
    return evaluate_watched(thread, state, raw, throwing);
  }
  if (!thread.installed) return previous_evaluator(state, raw, throwing);
  return evaluate_other(thread, state, raw, throwing);
}

}  // namespace

bool door_open(std::string&) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  previous_evaluator = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluator);
  return true;
}

void door_watch(const CodeInfo&, bool) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == _PyEval_EvalFrameDefault) {  // someone took ours out
    previous_evaluator = _PyEval_EvalFrameDefault;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluator);
  }
}

void door_watch_deep() {}

void door_attach(Thread& thread, Frame&) {
  if (thread.installed) return;  // evaluate_other puts ours back when the block's __enter__ returns
  PyThreadState* state = PyThreadState_Get();
  thread.chained = ts_trace_function(state);
  thread.installed = true;
  ts_set_trace_function(state, trace);
}

void door_detach(Thread& thread) {
  if (!thread.installed || !thread.frames.empty()) return;
  PyThreadState* state = PyThreadState_Get();
  thread.installed = false;
  if (ts_trace_function(state) == trace) ts_set_trace_function(state, thread.chained);
}

const char* door_name() { return "settrace"; }

}  // namespace tenscope::python

#endif
