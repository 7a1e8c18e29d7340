// Evaluates a GGUF model over the given tokens and records every tensor that ggml computes.
//   record_gguf MODEL.gguf RUNS NAME [--repack] TOKEN...
// --repack: lets llama.cpp rearrange weights for the processor, as it does unless told otherwise; these cannot be seen.
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <tenscope/ggml.hpp>
#include <tenscope/tenscope.hpp>
#include <vector>

namespace {

void log_errors(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

int evaluate(const char* path, tenscope::Run& run, std::vector<llama_token>& tokens, bool repack) {
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = repack;
  llama_model* model = llama_model_load_from_file(path, model_params);
  if (model == nullptr) return 1;

  tenscope::ggml::Recorder recorder(run);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(tokens.size());
  params.n_batch = params.n_ubatch = params.n_ctx;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;            // what a port is compared with keeps float32, and
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // attention in single steps can be looked into
  params.cb_eval = recorder.callback();
  params.cb_eval_user_data = recorder.user_data();
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;

  llama_batch batch = llama_batch_init(static_cast<int>(tokens.size()), 0, 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = true;  // of all tokens, not of the last alone
  }
  batch.n_tokens = static_cast<int>(tokens.size());
  const int failed = llama_decode(context, batch);
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  recorder.rethrow();
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return std::fprintf(stderr, "usage: record_gguf MODEL.gguf RUNS NAME [--repack] TOKEN...\n"), 2;
  std::vector<llama_token> tokens;
  bool repack = false;
  for (int i = 4; i < argc; ++i) {
    if (argv[i] == std::string("--repack")) {
      repack = true;
    } else {
      tokens.push_back(std::atoi(argv[i]));
    }
  }
  llama_log_set(log_errors, nullptr);
  llama_backend_init();
  try {
    tenscope::RunOptions options;
    options.name = argv[3];
    tenscope::Run run(argv[2], options);
    return evaluate(argv[1], run, tokens, repack);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "record_gguf: %s\n", error.what()), 1;
  }
}
