#define Py_BUILD_CORE 1
#include "tracer/frame_access.h"

#include <frameobject.h>

#if PY_VERSION_HEX < 0x030B0000

#define FRAME(f) ((PyFrameObject*)(f))

ts_frame* ts_current_frame(PyThreadState* thread) { return (ts_frame*)thread->frame; }
ts_frame* ts_frame_of(PyFrameObject* frame) { return (ts_frame*)frame; }
ts_frame* ts_previous_frame(ts_frame* frame) { return (ts_frame*)FRAME(frame)->f_back; }
PyCodeObject* ts_frame_code(ts_frame* frame) { return FRAME(frame)->f_code; }
PyObject* ts_frame_function(ts_frame* frame) {
  (void)frame;
  return NULL;
}
int ts_has_closure_of(ts_frame* frame, PyObject* function) {
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  PyCodeObject* code = FRAME(frame)->f_code;
  PyObject** cells = FRAME(frame)->f_localsplus + code->co_nlocals + PyTuple_GET_SIZE(code->co_cellvars);
  for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(closure); i++) {
    if (PyTuple_GET_ITEM(closure, i) != cells[i]) return 0;
  }
  return 1;
}
PyObject** ts_frame_slots(ts_frame* frame) { return FRAME(frame)->f_localsplus; }
PyObject* ts_frame_generator(ts_frame* frame) { return FRAME(frame)->f_gen; }
int ts_frame_line(ts_frame* frame) { return PyFrame_GetLineNumber(FRAME(frame)); }
int ts_frame_offset(ts_frame* frame) { return FRAME(frame)->f_lasti * 2; }

static int find_in(PyObject* names, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return (int)i;
  }
  return -1;
}

int ts_find_slot(PyCodeObject* code, PyObject* name, int* is_cell) {
  int cells = (int)PyTuple_GET_SIZE(code->co_cellvars);
  int index = find_in(code->co_cellvars, name);
  *is_cell = 1;
  if (index >= 0) return code->co_nlocals + index;
  index = find_in(code->co_freevars, name);
  if (index >= 0) return code->co_nlocals + cells + index;
  *is_cell = 0;
  return find_in(code->co_varnames, name);
}

const char* ts_code_qualname(PyCodeObject* code) {
  (void)code;
  return NULL;
}

#else

#include <internal/pycore_frame.h>

#define FRAME(f) ((_PyInterpreterFrame*)(f))

ts_frame* ts_frame_of(PyFrameObject* frame) { return (ts_frame*)frame->f_frame; }
int ts_has_closure_of(ts_frame* frame, PyObject* function) { return ts_frame_function(frame) == function; }
PyObject** ts_frame_slots(ts_frame* frame) { return FRAME(frame)->localsplus; }
int ts_frame_offset(ts_frame* frame) { return _PyInterpreterFrame_LASTI(FRAME(frame)) * (int)sizeof(_Py_CODEUNIT); }
int ts_frame_line(ts_frame* frame) { return PyCode_Addr2Line(ts_frame_code(frame), ts_frame_offset(frame)); }
PyObject* ts_frame_generator(ts_frame* frame) {
  return FRAME(frame)->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject*)_PyFrame_GetGenerator(FRAME(frame)) : NULL;
}

#if PY_VERSION_HEX < 0x030C0000
PyObject* ts_frame_function(ts_frame* frame) { return (PyObject*)FRAME(frame)->f_func; }
#else
PyObject* ts_frame_function(ts_frame* frame) { return FRAME(frame)->f_funcobj; }
#endif

#if PY_VERSION_HEX < 0x030D0000
ts_frame* ts_current_frame(PyThreadState* thread) { return (ts_frame*)thread->cframe->current_frame; }
PyCodeObject* ts_frame_code(ts_frame* frame) { return FRAME(frame)->f_code; }
#else
ts_frame* ts_current_frame(PyThreadState* thread) { return (ts_frame*)thread->current_frame; }
PyCodeObject* ts_frame_code(ts_frame* frame) { return (PyCodeObject*)FRAME(frame)->f_executable; }
#endif

ts_frame* ts_previous_frame(ts_frame* frame) {
  _PyInterpreterFrame* previous = FRAME(frame)->previous;
#if PY_VERSION_HEX >= 0x030C0000
  while (previous != NULL && previous->owner == FRAME_OWNED_BY_CSTACK) previous = previous->previous;
#endif
  return (ts_frame*)previous;
}

#ifndef CO_FAST_HIDDEN
#define CO_FAST_HIDDEN 0
#endif
#ifndef CO_FAST_CELL
#define CO_FAST_CELL 0x40
#define CO_FAST_FREE 0x80
#endif

int ts_find_slot(PyCodeObject* code, PyObject* name, int* is_cell) {
  const char* kinds = PyBytes_AS_STRING(code->co_localspluskinds);
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    if (kinds[i] & CO_FAST_HIDDEN) continue;
    if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), name) == 0) {
      *is_cell = (kinds[i] & (CO_FAST_CELL | CO_FAST_FREE)) != 0;
      return i;
    }
  }
  return -1;
}

const char* ts_code_qualname(PyCodeObject* code) { return PyUnicode_AsUTF8(code->co_qualname); }

#endif

PyObject* ts_frame_namespace(ts_frame* frame) {
  return ts_frame_code(frame)->co_flags & CO_OPTIMIZED ? NULL : FRAME(frame)->f_locals;
}
PyObject* ts_frame_globals(ts_frame* frame) { return FRAME(frame)->f_globals; }

#if PY_VERSION_HEX < 0x030C0000

static void update_use_tracing(PyThreadState* thread) {
  int wanted = !thread->tracing && (thread->c_tracefunc != NULL || thread->c_profilefunc != NULL);
#if PY_VERSION_HEX < 0x030B0000
  wanted = thread->c_tracefunc != NULL || thread->c_profilefunc != NULL;
  thread->cframe->use_tracing = wanted;
#else
  thread->cframe->use_tracing = wanted ? 255 : 0;
#endif
}

Py_tracefunc ts_trace_function(PyThreadState* thread) { return thread->c_tracefunc; }
PyObject* ts_trace_object(PyThreadState* thread) { return thread->c_traceobj; }
void ts_set_trace_function(PyThreadState* thread, Py_tracefunc function) {
  thread->c_tracefunc = function;
  update_use_tracing(thread);
}
void ts_suspend_tracing(PyThreadState* thread) {
  thread->tracing++;
  thread->cframe->use_tracing = 0;
}
void ts_resume_tracing(PyThreadState* thread) {
  thread->tracing--;
  update_use_tracing(thread);
}
int ts_is_tracing(PyThreadState* thread) { return thread->tracing != 0; }

int ts_generator_suspended(PyObject* generator) {
#if PY_VERSION_HEX < 0x030B0000
  PyFrameObject* frame = ((PyGenObject*)generator)->gi_frame;
  return frame != NULL && frame->f_state == FRAME_SUSPENDED;
#else
  return ((PyGenObject*)generator)->gi_frame_state == FRAME_SUSPENDED;
#endif
}

#endif
