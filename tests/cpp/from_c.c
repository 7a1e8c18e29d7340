/* Records through the C functions: from_c RUNS */
#include <dlpack.h>
#include <stdio.h>
#include <string.h>
#include <tenscope/tenscope.h>

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "wrong: %s (%s)\n", what, tenscope_last_error());
  ++failures;
}

int main(int argc, char** argv) {
  tenscope_options options = {sizeof(tenscope_options), "c", 0, 0, 0, 0, 0, 0, 0};
  tenscope_event event = tenscope_named("q");
  const char* inputs[] = {"x", "blk.0.attn_q.weight"};
  const double values[] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {2, 3}, transposed[] = {3, 2}, strides[] = {1, 3};
  int64_t dl_shape[] = {2, 2};
  float dl_values[] = {9, 1, 2, 3, 4};
  DLTensor tensor;
  tenscope_run* run = NULL;
  if (argc != 2) return 2;

  expect(tenscope_open(argv[1], &options, &run) == TENSCOPE_OK, "open");
  event.io = "output";
  event.meta = "{\"op\": \"MUL_MAT\"}";
  event.inputs = inputs;
  event.input_count = 2;
  expect(tenscope_record_tensor(run, &event, values, TENSCOPE_F64, 2, shape, NULL) == TENSCOPE_OK, "tensor");
  event = tenscope_named("q.transposed");
  expect(tenscope_record_tensor(run, &event, values, TENSCOPE_F64, 2, transposed, strides) == TENSCOPE_OK, "strides");

  memset(&tensor, 0, sizeof tensor);
  tensor.data = dl_values;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = 2;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = dl_shape;
  tensor.byte_offset = sizeof(float);
  event = tenscope_named("dlpack");
  expect(tenscope_record_dlpack(run, &event, &tensor) == TENSCOPE_OK, "DLTensor");
  tensor.device.device_type = kDLCUDA;
  expect(tenscope_record_dlpack(run, &event, &tensor) == TENSCOPE_UNSUPPORTED, "a tensor on a device");
  expect(strstr(tenscope_last_error(), "copy it to the host first") != NULL, "what to do about it");
  tensor.device.device_type = kDLCPU;
  tensor.dtype.bits = 7;
  expect(tenscope_record_dlpack(run, &event, &tensor) == TENSCOPE_UNSUPPORTED, "a dtype that is none");

  expect(tenscope_next_step(run) == TENSCOPE_OK && tenscope_set_step(run, 7) == TENSCOPE_OK, "steps");
  event = tenscope_named("loss");
  expect(tenscope_record_double(run, &event, 0.5) == TENSCOPE_OK, "double");
  event = tenscope_named("epoch");
  expect(tenscope_record_int(run, &event, -3) == TENSCOPE_OK, "int");
  event = tenscope_named("engine");
  expect(tenscope_record_text(run, &event, "C") == TENSCOPE_OK, "text");

  expect(tenscope_record_tensor(run, &event, values, (tenscope_dtype)99, 2, shape, NULL) == TENSCOPE_INVALID_ARGUMENT,
         "a dtype beyond the last");
  expect(tenscope_record_text(run, &event, NULL) == TENSCOPE_INVALID_ARGUMENT, "no text");
  expect(tenscope_record_int(NULL, &event, 1) == TENSCOPE_INVALID_ARGUMENT, "no run");
  event.struct_size = 0;
  expect(tenscope_record_int(run, &event, 1) == TENSCOPE_INVALID_ARGUMENT, "no struct_size");
  expect(strstr(tenscope_last_error(), "struct_size") != NULL, "an error's words");
  expect(tenscope_flush(run) == TENSCOPE_OK && tenscope_dropped(run) == 0, "flush");
  printf("%s %s\n", tenscope_version(), tenscope_path(run));
  expect(tenscope_close(run) == TENSCOPE_OK && tenscope_close(NULL) == TENSCOPE_OK, "close");

  options.name = "a/b";
  expect(tenscope_open(argv[1], &options, &run) == TENSCOPE_INVALID_ARGUMENT && run == NULL, "a name that is no name");
  return failures;
}
