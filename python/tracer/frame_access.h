#pragma once

// Overview: the interpreter's frames, read directly. The only code that knows how CPython lays out a frame, one #if per
// version. A ts_frame is the PyFrameObject on 3.10 and the _PyInterpreterFrame from 3.11 on; it is valid while the
// frame runs, and for a generator's frame while the generator lives. Everything returned is borrowed.

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_frame ts_frame;

ts_frame* ts_current_frame(PyThreadState* thread);
ts_frame* ts_frame_of(PyFrameObject* frame);
ts_frame* ts_previous_frame(ts_frame* frame);

PyCodeObject* ts_frame_code(ts_frame* frame);
PyObject* ts_frame_function(ts_frame* frame);                // NULL where the version does not tell (3.10)
int ts_has_closure_of(ts_frame* frame, PyObject* function);  // the same cells: where the function itself is not told
PyObject** ts_frame_slots(ts_frame* frame);     // locals, cells, free variables; the address stays the same
PyObject* ts_frame_namespace(ts_frame* frame);  // of a module's or class body's frame, else NULL
PyObject* ts_frame_globals(ts_frame* frame);
PyObject* ts_frame_generator(ts_frame* frame);  // the generator or coroutine that owns the frame, or NULL
int ts_frame_line(ts_frame* frame);
int ts_frame_offset(ts_frame* frame);  // of the instruction that runs, in bytes

// The slot of a local variable, or -1. *is_cell: the slot holds a cell with the value in it.
int ts_find_slot(PyCodeObject* code, PyObject* name, int* is_cell);
const char* ts_code_qualname(PyCodeObject* code);

#if PY_VERSION_HEX < 0x030C0000
// The thread's trace function without its object, as PyEval_SetTrace would install it but with no audit event and no
// change of c_traceobj, so that sys.gettrace() keeps its answer.
Py_tracefunc ts_trace_function(PyThreadState* thread);
PyObject* ts_trace_object(PyThreadState* thread);
void ts_set_trace_function(PyThreadState* thread, Py_tracefunc function);
void ts_suspend_tracing(PyThreadState* thread);
void ts_resume_tracing(PyThreadState* thread);
int ts_is_tracing(PyThreadState* thread);
int ts_generator_suspended(PyObject* generator);
#endif

#ifdef __cplusplus
}
#endif
