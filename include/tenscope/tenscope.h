/* Recording from C, and from any language that can call C.
 *
 * Every function that returns a tenscope_status reports trouble by it, and tenscope_last_error() says in words what it
 * was. What the caller does wrong (NULL, a negative size, a dtype that is none, a run that is closed) is reported
 * always, usually as TENSCOPE_INVALID_ARGUMENT, and nothing is recorded; trouble while recording, such as a full disk,
 * only where the run is strict. A run may be used from any number of threads, also while one of them closes it. Nothing
 * of the caller's is kept after a call returns. */
#ifndef TENSCOPE_TENSCOPE_H
#define TENSCOPE_TENSCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum tenscope_status {
  TENSCOPE_OK = 0,
  TENSCOPE_IO = 1,
  TENSCOPE_CORRUPT = 2,
  TENSCOPE_VERSION = 3,
  TENSCOPE_INVALID_ARGUMENT = 4,
  TENSCOPE_NOT_FOUND = 5,
  TENSCOPE_UNSUPPORTED = 6,
  TENSCOPE_INTERNAL = 7
} tenscope_status;

typedef enum tenscope_dtype {
  TENSCOPE_F64 = 0,
  TENSCOPE_F32 = 1,
  TENSCOPE_F16 = 2,
  TENSCOPE_BF16 = 3,
  TENSCOPE_F8E4M3 = 4,
  TENSCOPE_F8E5M2 = 5,
  TENSCOPE_F8E4M3FNUZ = 6,
  TENSCOPE_F8E5M2FNUZ = 7,
  TENSCOPE_I64 = 8,
  TENSCOPE_I32 = 9,
  TENSCOPE_I16 = 10,
  TENSCOPE_I8 = 11,
  TENSCOPE_U64 = 12,
  TENSCOPE_U32 = 13,
  TENSCOPE_U16 = 14,
  TENSCOPE_U8 = 15,
  TENSCOPE_BOOL = 16,
  TENSCOPE_C64 = 17,
  TENSCOPE_C128 = 18
} tenscope_dtype;

typedef struct tenscope_run tenscope_run;

/* How a run is recorded. Set struct_size to sizeof(tenscope_options); what is 0 besides is the default. */
typedef struct tenscope_options {
  size_t struct_size;
  const char* name;   /* folder below the base; NULL: a timestamp */
  int32_t rank;       /* of this process, */
  int32_t world_size; /* of so many; 0: one */
  int32_t join;       /* 1: the folder is shared with other processes, and may exist */
  int32_t disk;       /* 1: tenscope_flush() makes what was recorded survive a power cut */
  int32_t keep_last;  /* 1: past max_bytes the oldest files are deleted; 0: what does not fit loses its bytes */
  int32_t strict;     /* 1: trouble while recording is returned; 0: it is warned of once and counted */
  uint64_t max_bytes; /* 0: no limit */
} tenscope_options;

/* What is said of a value besides the value. tenscope_named() fills it in; what is NULL is left out. */
typedef struct tenscope_event {
  size_t struct_size;
  const char* name;
  const char* io;            /* "input", "output", "param", "grad", "loss", or any other word */
  const char* phase;         /* "init", "forward", "backward", "optimizer", or any other word */
  const char* scope;         /* path of the module that it belongs to */
  const char* root;          /* label of the outermost module */
  const char* cls;           /* class of the module */
  const char* site;          /* "file.c:12" */
  const char* meta;          /* more, as the text of one JSON object */
  const char* const* inputs; /* names of the tensors that it was made of, */
  size_t input_count;        /* so many */
} tenscope_event;

static inline tenscope_event tenscope_named(const char* name) {
  /* NOLINTNEXTLINE(modernize-use-nullptr): C has none */
  tenscope_event event = {sizeof(tenscope_event), name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0};
  return event;
}

const char* tenscope_version(void);    /* "0.1.0" */
const char* tenscope_last_error(void); /* of this thread's last call that failed; valid until its next that fails */

/* Begins a recording in base/<name>/. options may be NULL. */
tenscope_status tenscope_open(const char* base, const tenscope_options* options, tenscope_run** run);
/* Ends it and frees what it holds, also where it fails; NULL is ignored. A call with the handle fails from then on. */
tenscope_status tenscope_close(tenscope_run* run);

/* A tensor in host memory. Strides are in elements; NULL: C order. */
tenscope_status tenscope_record_tensor(tenscope_run* run, const tenscope_event* event, const void* data,
                                       tenscope_dtype dtype, int32_t ndim, const int64_t* shape,
                                       const int64_t* strides);
/* A DLTensor in host memory; of a DLManagedTensor, its dl_tensor. (A void pointer, because DLPack's header gives the
 * struct no name that could be declared without including it.) */
tenscope_status tenscope_record_dlpack(tenscope_run* run, const tenscope_event* event, const void* dl_tensor);
tenscope_status tenscope_record_double(tenscope_run* run, const tenscope_event* event, double value);
tenscope_status tenscope_record_int(tenscope_run* run, const tenscope_event* event, int64_t value);
tenscope_status tenscope_record_text(tenscope_run* run, const tenscope_event* event, const char* text);

tenscope_status tenscope_next_step(tenscope_run* run);
tenscope_status tenscope_set_step(tenscope_run* run, int64_t step);
tenscope_status tenscope_flush(tenscope_run* run);

const char* tenscope_path(const tenscope_run* run); /* the run's folder */
uint64_t tenscope_dropped(const tenscope_run* run); /* events that could not be recorded */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
