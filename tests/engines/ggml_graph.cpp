// Evaluates a small graph of ggml and records it: weights of every type, views, inputs that change.
//   ggml_graph RUNS NAME            on the processor
//   ggml_graph RUNS NAME PORT       on a backend whose memory is not the program's: ggml's RPC server, in a process
//   beside
// Beside what the recorder sees, the raw bytes of the weights are recorded, as "raw.<type>".
#include <ggml-cpu.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tenscope/ggml.hpp>
#include <tenscope/tenscope.hpp>
#include <thread>
#include <vector>
#ifdef HAS_RPC
#include <ggml-rpc.h>
#include <sys/prctl.h>
#include <unistd.h>
#endif

namespace {

constexpr std::int64_t kColumns = 256, kRows = 4, kTokens = 3;
constexpr ggml_type kTypes[] = {GGML_TYPE_F32,    GGML_TYPE_F16,    GGML_TYPE_BF16,  GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1,
                                GGML_TYPE_Q5_0,   GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,  GGML_TYPE_Q2_K,  GGML_TYPE_Q3_K,
                                GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,  GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,
                                GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ3_S, GGML_TYPE_MXFP4};

ggml_backend_t remote_backend([[maybe_unused]] const char* port) {
#ifdef HAS_RPC
  static std::string endpoint = std::string("127.0.0.1:") + port;
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_rpc_start_server(endpoint.c_str(), nullptr, 1, 1, &device);
    std::_Exit(1);
  }
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (ggml_backend_t backend = ggml_backend_rpc_init(endpoint.c_str(), 0)) return backend;
  }
#endif
  std::fputs("there is no RPC backend\n", stderr);
  std::exit(77);
}

// The same numbers in every run, of both signs and many sizes.
std::vector<float> numbers(std::size_t count, int seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i * 7 + 13 * seed + 1)) * 1.7f;
  return values;
}

ggml_context* metadata() {
  ggml_init_params params{ggml_tensor_overhead() * 256 + ggml_graph_overhead(), nullptr, true};
  return ggml_init(params);
}

std::vector<ggml_tensor*> make_weights(ggml_context* context, ggml_backend_t backend, tenscope::Run& run) {
  std::vector<ggml_tensor*> weights;
  for (const ggml_type type : kTypes) {
    weights.push_back(ggml_new_tensor_2d(context, type, kColumns, kRows));
    ggml_format_name(weights.back(), "w.%s", ggml_type_name(type));
  }
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
  ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  const std::vector<float> values = numbers(kColumns * kRows, 0), even(kColumns, 1.0f);
  for (ggml_tensor* weight : weights) {
    std::vector<char> bytes(ggml_nbytes(weight));
    ggml_quantize_chunk(weight->type, values.data(), bytes.data(), 0, kRows, kColumns, even.data());
    ggml_backend_tensor_set(weight, bytes.data(), 0, bytes.size());
    run.record(std::string("raw.") + ggml_type_name(weight->type),
               tenscope::view(bytes.data(), tenscope::DType::U8, {kRows, bytes.size() / kRows}));
  }
  return weights;
}

void evaluate(ggml_backend_sched_t scheduler, const std::vector<ggml_tensor*>& weights, int seed) {
  ggml_context* context = metadata();
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_tensor* x = ggml_new_tensor_2d(context, GGML_TYPE_F32, kColumns, kTokens);
  ggml_set_name(x, "x");
  ggml_set_input(x);
  for (ggml_tensor* weight : weights) {
    ggml_tensor* y = ggml_mul_mat(context, weight, x);
    ggml_format_name(y, "y.%s", ggml_type_name(weight->type));
    ggml_build_forward_expand(graph, y);
  }
  ggml_tensor* twice = ggml_add(context, x, x);
  ggml_set_name(twice, "twice");
  ggml_tensor* cut = ggml_view_2d(context, twice, 16, kTokens, twice->nb[1], 32 * sizeof(float));
  ggml_set_name(cut, "cut");
  ggml_tensor* heads = ggml_permute(context, ggml_reshape_3d(context, twice, 32, 8, kTokens), 0, 2, 1, 3);
  ggml_set_name(heads, "heads");
  ggml_tensor* square = ggml_sqr(context, ggml_cont(context, ggml_transpose(context, twice)));
  ggml_set_name(square, "left out");
  for (ggml_tensor* node : {cut, heads, square}) ggml_build_forward_expand(graph, node);

  ggml_backend_sched_reset(scheduler);
  ggml_backend_sched_alloc_graph(scheduler, graph);
  const std::vector<float> values = numbers(kColumns * kTokens, seed);
  ggml_backend_tensor_set(x, values.data(), 0, ggml_nbytes(x));
  ggml_backend_sched_graph_compute(scheduler, graph);
  ggml_free(context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<ggml_backend_t> backends;
  if (argc > 3) backends.push_back(remote_backend(argv[3]));
  backends.push_back(ggml_backend_cpu_init());

  tenscope::RunOptions run_options;
  run_options.name = argv[2];
  tenscope::Run run(argv[1], run_options);
  tenscope::ggml::RecorderOptions options;
  options.exclude = {"left*"};
  tenscope::ggml::Recorder recorder(run, options);

  const auto weights = make_weights(metadata(), backends.front(), run);
  ggml_backend_sched_t scheduler =
      ggml_backend_sched_new(backends.data(), nullptr, static_cast<int>(backends.size()), 256, false, false);
  ggml_backend_sched_set_eval_callback(scheduler, recorder.callback(), recorder.user_data());
  evaluate(scheduler, weights, 1);
  evaluate(scheduler, weights, 2);
  run.step();
  evaluate(scheduler, weights, 3);
  recorder.rethrow();
  run.close();
  std::_Exit(0);  // the server ends with this process
}
