/* What a caller can do wrong through the C functions is told, and records nothing: misuse RUNS */
#include <dlpack.h>
#include <stdio.h>
#include <string.h>
#include <tenscope/tenscope.h>
#include <threads.h>

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "wrong: %s (%s)\n", what, tenscope_last_error());
  ++failures;
}

/* The call is refused, with words that have `words` in them. */
static void refused(tenscope_status status, const char* words, const char* what) {
  expect(status == TENSCOPE_INVALID_ARGUMENT && strstr(tenscope_last_error(), words) != NULL, what);
}

static DLTensor dl_tensor(void* data, int ndim, int64_t* shape) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = ndim;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static void wrong_tensors(tenscope_run* run) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3}, negative[] = {2, -3}, empty[] = {0, 3}, huge[] = {INT64_MAX, INT64_MAX};
  int64_t many[65];
  const tenscope_event event = tenscope_named("x");
  DLTensor tensor;
  for (int i = 0; i < 65; ++i) many[i] = 1;
  refused(tenscope_record_tensor(run, &event, NULL, TENSCOPE_F32, 2, shape, NULL), "no data", "NULL data");
  refused(tenscope_record_tensor(run, &event, NULL, TENSCOPE_F32, 0, NULL, NULL), "no data", "a NULL scalar");
  refused(tenscope_record_tensor(run, &event, values, TENSCOPE_F32, 2, negative, NULL), "negative size", "a size");
  refused(tenscope_record_tensor(run, &event, values, TENSCOPE_F32, -1, shape, NULL), "negative", "ndim");
  refused(tenscope_record_tensor(run, &event, values, TENSCOPE_F32, 2, NULL, NULL), "shape is NULL", "no shape");
  refused(tenscope_record_tensor(run, &event, values, TENSCOPE_F32, 2, huge, NULL), "overflows", "a huge shape");
  refused(tenscope_record_tensor(run, &event, values, TENSCOPE_F32, 65, many, NULL), "rank 65", "many axes");
  refused(tenscope_record_tensor(run, &event, values, (tenscope_dtype)-1, 2, shape, NULL), "dtype", "dtype -1");
  refused(tenscope_record_tensor(run, &event, values, (tenscope_dtype)19, 2, shape, NULL), "dtype", "dtype 19");
  expect(tenscope_record_tensor(run, &event, NULL, TENSCOPE_F32, 2, empty, NULL) == TENSCOPE_OK, "empty is no mistake");
  refused(tenscope_record_dlpack(run, &event, NULL), "NULL", "no DLTensor");
  tensor = dl_tensor(NULL, 2, many);
  refused(tenscope_record_dlpack(run, &event, &tensor), "no data", "a DLTensor without data");
  tensor = dl_tensor((void*)values, -2, many);
  refused(tenscope_record_dlpack(run, &event, &tensor), "negative", "a DLTensor's ndim");
  tensor = dl_tensor((void*)values, 2, NULL);
  refused(tenscope_record_dlpack(run, &event, &tensor), "shape is NULL", "a DLTensor without shape");
}

static void wrong_events(tenscope_run* run) {
  const char* inputs[] = {"x", NULL};
  tenscope_event event = tenscope_named(NULL);
  refused(tenscope_record_int(run, NULL, 1), "event is NULL", "no event");
  refused(tenscope_record_int(run, &event, 1), "no name", "no name");
  refused(tenscope_record_double(run, &event, 1), "no name", "no name");
  refused(tenscope_record_text(run, &event, "t"), "no name", "no name");
  event = tenscope_named("x");
  event.input_count = 2;
  refused(tenscope_record_int(run, &event, 1), "inputs are NULL", "inputs that are not there");
  event.inputs = inputs;
  refused(tenscope_record_int(run, &event, 1), "input", "an input without a name");
  event = tenscope_named("x");
  event.meta = "not JSON";
  refused(tenscope_record_int(run, &event, 1), "JSON object", "meta");
  event.meta = "[1]";
  refused(tenscope_record_int(run, &event, 1), "JSON object", "meta that is no object");
  event.meta = "";
  expect(tenscope_record_int(run, &event, 1) == TENSCOPE_OK, "no meta");
  refused(tenscope_record_text(run, &event, NULL), "text is NULL", "no text");
  refused(tenscope_set_step(run, -1), "step is negative", "a negative step");
}

static void every_call_fails(tenscope_run* run, const char* words) {
  const int64_t shape[] = {1};
  const float value = 1;
  const tenscope_event event = tenscope_named("x");
  DLTensor tensor = dl_tensor((void*)&value, 1, (int64_t*)shape);
  refused(tenscope_record_tensor(run, &event, &value, TENSCOPE_F32, 1, shape, NULL), words, "tensor");
  refused(tenscope_record_dlpack(run, &event, &tensor), words, "DLTensor");
  refused(tenscope_record_double(run, &event, 1), words, "double");
  refused(tenscope_record_int(run, &event, 1), words, "int");
  refused(tenscope_record_text(run, &event, "t"), words, "text");
  refused(tenscope_next_step(run), words, "next step");
  refused(tenscope_set_step(run, 1), words, "step");
  refused(tenscope_flush(run), words, "flush");
  expect(tenscope_dropped(run) == 0, "dropped");
}

static void wrong_options(const char* base) {
  tenscope_run* run = NULL;
  tenscope_options options = {sizeof(tenscope_options), "wrong", -1, 0, 0, 0, 0, 0, 0};
  refused(tenscope_open(NULL, NULL, &run), "folder", "no base");
  refused(tenscope_open(base, NULL, NULL), "handle", "no place for the handle");
  refused(tenscope_open(base, &options, &run), "negative", "a negative rank");
  options.rank = 2;
  options.world_size = 2;
  refused(tenscope_open(base, &options, &run), "world_size", "a rank beyond the last");
  options.struct_size = 0;
  refused(tenscope_open(base, &options, &run), "struct_size", "no struct_size");
  expect(run == NULL, "no handle of a run that was not opened");
}

static int record_until_closed(void* run) {
  const tenscope_event event = tenscope_named("counted");
  int recorded = 0;
  while (tenscope_record_int(run, &event, recorded) == TENSCOPE_OK) ++recorded;
  return strstr(tenscope_last_error(), "closed") != NULL ? recorded : -1;
}

int main(int argc, char** argv) {
  tenscope_options options = {sizeof(tenscope_options), "one", 0, 0, 0, 0, 0, 0, 0};
  tenscope_run *one = NULL, *two = NULL;
  tenscope_event event = tenscope_named("which");
  thrd_t threads[3];
  int recorded[3];
  if (argc != 2) return 2;

  expect(tenscope_open(argv[1], &options, &one) == TENSCOPE_OK, "open one");
  options.name = "two";
  expect(tenscope_open(argv[1], &options, &two) == TENSCOPE_OK, "open two");
  wrong_tensors(one);
  wrong_events(one);
  wrong_options(argv[1]);
  every_call_fails(NULL, "run is NULL");
  expect(tenscope_dropped(one) == 0, "what is refused is not dropped");
  expect(tenscope_record_int(one, &event, 1) == TENSCOPE_OK && tenscope_record_int(two, &event, 2) == TENSCOPE_OK,
         "two runs");

  expect(tenscope_close(one) == TENSCOPE_OK, "close");
  every_call_fails(one, "run is closed");
  refused(tenscope_close(one), "closed already", "close again");
  expect(strstr(tenscope_path(one), "one") != NULL, "the path of a closed run");

  for (int i = 0; i < 3; ++i)
    expect(thrd_create(&threads[i], record_until_closed, two) == thrd_success, "start a thread");
  while (tenscope_record_int(two, &event, 2) == TENSCOPE_OK && tenscope_dropped(two) == 0) {
    static int calls = 0;
    if (++calls == 200) break;
  }
  expect(tenscope_close(two) == TENSCOPE_OK, "close while threads record");
  for (int i = 0; i < 3; ++i) {
    thrd_join(threads[i], &recorded[i]);
    expect(recorded[i] >= 0, "a thread is told that the run is closed");
  }
  return failures;
}
