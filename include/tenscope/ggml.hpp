// Records what ggml computes: an evaluation callback for ggml_backend_sched, which llama.cpp takes as cb_eval.
//
//   tenscope::Run run("runs");
//   tenscope::ggml::Recorder recorder(run);
//   params.cb_eval = recorder.callback();
//   params.cb_eval_user_data = recorder.user_data();
//
// Tensors have the names that ggml has for them ("Qcur-3", "blk.0.attn_q.weight") and their axes in C order, which is
// ggml's reversed. The program that includes this header brings ggml's own.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tenscope/glob.hpp"
#include "tenscope/run.hpp"

namespace tenscope::ggml {

struct RecorderOptions {
  std::vector<std::string> include = {"*"};  // globs: a tensor is recorded whose name matches one of these,
  std::vector<std::string> exclude;          // and none of these
  bool weights = true;                       // what lies in a buffer of weights: once, when it is first used
  bool inputs = true;                        // what the program sets before an evaluation: tokens, positions, masks
  bool views = true;                         // reshaped, permuted and cut tensors, which compute nothing
  Values values = Values::Full;
};

// One for each context: evaluations of different contexts at a time need a recorder each. The run must outlive it, and
// it must outlive the context.
class Recorder {
 public:
  explicit Recorder(Run& run, RecorderOptions options = {}) : run_(run), options_(std::move(options)) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  ggml_backend_sched_eval_callback callback() const noexcept { return &Recorder::on_tensor; }
  void* user_data() noexcept { return this; }

  // Nothing is thrown into the engine. Throws what a strict run threw during the evaluations before; after it nothing
  // was recorded.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  // ggml asks of every node, in order, whether it is to be seen, and calls again when it is computed.
  static bool on_tensor(ggml_tensor* tensor, bool ask, void* user_data) {
    auto& self = *static_cast<Recorder*>(user_data);
    if (self.error_ || !self.run_.enabled()) return !ask;
    try {
      if (ask) return self.begin(*tensor);
      self.record_result(*tensor);
    } catch (...) {
      self.error_ = std::current_exception();
    }
    return true;
  }

  // What is there before a node is computed: weights and inputs.
  bool begin(const ggml_tensor& node) {
    const std::string_view name = plain_name(node);
    // A node is asked of once in an evaluation. Another graph may lie elsewhere, but mostly begins with the same name.
    if (name == first_ || asked_.count(&node) != 0 || step_ != run_.current_step()) {
      first_.clear();
      asked_.clear();
      names_seen_.clear();
      step_ = run_.current_step();
    }
    if (asked_.empty()) first_ = name;
    asked_.insert(&node);
    for (const ggml_tensor* source : node.src) {
      if (source == nullptr) continue;
      while (source->view_src != nullptr) source = source->view_src;
      if (source->op == GGML_OP_NONE && is_wanted(plain_name(*source))) record_leaf(*source);
    }
    names_seen_.emplace(name);
    return (options_.views || !is_view(node)) && is_wanted(name);
  }

  void record_leaf(const ggml_tensor& leaf) {
    const std::string name(plain_name(leaf));
    EventInfo info;
    if (is_weight(leaf)) {
      if (!options_.weights || !weights_seen_.insert(name).second) return;
      info.io = Io::Param;
      info.phase = Phase::Init;
    } else {
      // Copies of the scheduler's are of inputs, of weights, or of tensors that another backend has computed.
      const bool is_input = (leaf.flags & GGML_TENSOR_FLAG_INPUT) != 0, is_copy = name != leaf.name;
      if (!options_.inputs || !(is_input || is_copy) || !names_seen_.insert(name).second) return;
      if (is_input) info.io = Io::Input;
    }
    record(leaf, info);
  }

  void record_result(const ggml_tensor& node) {
    const std::string meta = std::string(R"({"op":")") + ggml_op_desc(&node) + "\"}";
    EventInfo info;
    info.meta = meta;
    for (const ggml_tensor* source : node.src) {
      if (source != nullptr) info.inputs.push_back(plain_name(*source));
    }
    record(node, info);
  }

  void record(const ggml_tensor& tensor, EventInfo& info) {
    info.name = plain_name(tensor);
    const auto* bytes = bytes_of(tensor);
    if (bytes == nullptr) return;
    const int rank = ggml_n_dims(&tensor);
    std::vector<std::int64_t> shape(tensor.ne, tensor.ne + rank);
    std::reverse(shape.begin(), shape.end());
    if (const auto dtype = dtype_of(tensor.type)) {
      const std::size_t item = ggml_type_size(tensor.type);
      std::vector<std::int64_t> strides;
      for (int axis = rank; axis-- > 0;) strides.push_back(static_cast<std::int64_t>(tensor.nb[axis] / item));
      run_.record(info, ShapedView(bytes, *dtype, shape, strides), options_.values);
    } else if (dequantise(tensor, bytes)) {
      run_.record(info, ShapedView(floats_.data(), DType::F32, shape), options_.values);
    } else {
      not_seen(tensor, std::string("its type ") + ggml_type_name(tensor.type) + " cannot be turned into numbers");
    }
  }

  // Where the tensor's first element can be read: in place, or as a copy from the backend. Null: nowhere.
  const char* bytes_of(const ggml_tensor& tensor) {
    ggml_backend_buffer_t buffer = buffer_of(tensor);
    if (buffer == nullptr || ggml_backend_buffer_is_host(buffer)) {
      if (tensor.data == nullptr) not_seen(tensor, "it has no data");
      return static_cast<const char*>(tensor.data);
    }
    ggml_backend_dev_t device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
    if (device != nullptr && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
      not_seen(tensor, std::string("its values are rearranged in the buffer ") + ggml_backend_buffer_name(buffer));
      return nullptr;
    }
    bytes_.resize(std::max<std::size_t>(ggml_nbytes(&tensor), 1));
    ggml_backend_tensor_get(&tensor, bytes_.data(), 0, ggml_nbytes(&tensor));
    return bytes_.data();
  }

  // Blocks lie along the fastest axis; the others may have any stride.
  bool dequantise(const ggml_tensor& tensor, const char* bytes) {
    const ggml_type_traits* traits = ggml_get_type_traits(tensor.type);
    if (traits->to_float == nullptr || tensor.nb[0] != traits->type_size) return false;
    floats_.resize(static_cast<std::size_t>(ggml_nelements(&tensor)));
    float* to = floats_.data();
    for (std::int64_t i = 0; i < tensor.ne[3]; ++i) {
      for (std::int64_t j = 0; j < tensor.ne[2]; ++j) {
        for (std::int64_t k = 0; k < tensor.ne[1]; ++k, to += tensor.ne[0]) {
          const auto at = static_cast<std::size_t>(i) * tensor.nb[3] + static_cast<std::size_t>(j) * tensor.nb[2] +
                          static_cast<std::size_t>(k) * tensor.nb[1];
          traits->to_float(bytes + at, to, tensor.ne[0]);
        }
      }
    }
    return true;
  }

  // Says in the run what is not in it.
  void not_seen(const ggml_tensor& tensor, const std::string& reason) {
    const std::string meta = R"({"reason":")" + reason + "\"}";
    EventInfo info;
    info.kind = EventKind::Note;
    info.name = kNotSeenNote;
    info.scope = plain_name(tensor);
    info.meta = meta;
    run_.record(info, EventValue());
  }

  bool is_wanted(std::string_view name) const noexcept {
    const auto matches = [&](const std::string& pattern) { return matches_glob(name, pattern); };
    return std::any_of(options_.include.begin(), options_.include.end(), matches) &&
           std::none_of(options_.exclude.begin(), options_.exclude.end(), matches);
  }

  static bool is_view(const ggml_tensor& node) noexcept {
    return node.op == GGML_OP_VIEW || node.op == GGML_OP_RESHAPE || node.op == GGML_OP_PERMUTE ||
           node.op == GGML_OP_TRANSPOSE;
  }

  static bool is_weight(const ggml_tensor& leaf) noexcept {
    ggml_backend_buffer_t buffer = buffer_of(leaf);
    return (buffer != nullptr && ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) ||
           (leaf.flags & GGML_TENSOR_FLAG_PARAM) != 0;
  }

  static ggml_backend_buffer_t buffer_of(const ggml_tensor& tensor) noexcept {
    return tensor.view_src != nullptr ? tensor.view_src->buffer : tensor.buffer;
  }

  // A tensor that the scheduler copied to another backend, "CUDA0#blk.0.attn_q.weight#0", by its own name.
  static std::string_view plain_name(const ggml_tensor& tensor) noexcept {
    const std::string_view name = tensor.name;
    const auto first = name.find('#'), last = name.rfind('#');
    return first == last ? name : name.substr(first + 1, last - first - 1);
  }

  static std::optional<DType> dtype_of(ggml_type type) noexcept {
    switch (type) {
      case GGML_TYPE_F64:
        return DType::F64;
      case GGML_TYPE_F32:
        return DType::F32;
      case GGML_TYPE_F16:
        return DType::F16;
      case GGML_TYPE_BF16:
        return DType::BF16;
      case GGML_TYPE_I64:
        return DType::I64;
      case GGML_TYPE_I32:
        return DType::I32;
      case GGML_TYPE_I16:
        return DType::I16;
      case GGML_TYPE_I8:
        return DType::I8;
      default:
        return std::nullopt;
    }
  }

  Run& run_;
  const RecorderOptions options_;
  std::exception_ptr error_;
  std::int64_t step_ = 0;
  std::string first_;                             // the node with which this evaluation began,
  std::unordered_set<const ggml_tensor*> asked_;  // all nodes in it,
  std::unordered_set<std::string> names_seen_;    // names of nodes and inputs in it
  std::unordered_set<std::string> weights_seen_;  // in all of them
  std::vector<char> bytes_;                       // a copy from a backend
  std::vector<float> floats_;                     // what blocks stand for
};

}  // namespace tenscope::ggml
