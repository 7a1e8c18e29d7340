#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/check_event.hpp"
#include "compare/pipeline_stage.hpp"
#include "tenscope/check.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// What one rank received from another that is not what that one sent.
struct WrongTransfer {
  DiffPlace place;  // where it was received
  bool is_gradient = false;
  std::size_t micro_batch = 0;
  double rel_l2 = 0;  // infinite where it is not known, or where the sent value is zero
  std::string message;
};

// Compares what the stages of a pipeline give to each other, in one run. Overview in stage_transfers.cpp.
class StageTransfers {
 public:
  // The reader must outlive this.
  explicit StageTransfers(const Reader& reader) : reader_(reader) {}

  // Every event of the run, in order.
  void look_at(EventId id, const Event& event);

  // In the order of steps, the forward before the backward. Differences up to `most` (relative, Euclidean) are fine.
  std::vector<WrongTransfer> find(double most);
  std::size_t compared() const { return compared_; }  // transfers, after find()

 private:
  struct Tensor {
    EventId id = 0;
    Fingerprint fingerprint;
    DType dtype = DType::F32;
    std::int64_t count = 0;
    bool is_part = false;     // of a tensor that is spread over ranks
    bool is_telling = false;  // no other tensor is likely to have this content
    std::string suffix;       // "0" of "input.0", empty of "output"
  };
  // A call of an outermost module.
  struct Pass {
    std::int64_t step = 0, call = 0;
    std::size_t nth = 0;  // in its step: the number of the micro-batch
    std::vector<Tensor> inputs, outputs;
    std::map<std::string, Tensor> grad_inputs, grad_outputs;  // by suffix
  };
  // An outermost module of one process.
  struct Stage {
    std::size_t writer = 0;
    int rank = 0;
    std::string root;
    std::optional<PipelineStage> declared;
    std::vector<Pass> passes;
    std::map<std::int64_t, std::size_t> by_call;
    std::map<std::int64_t, std::vector<std::size_t>> by_step;
  };
  // The nth input of a stage comes from the nth output of another.
  struct Link {
    std::size_t sender = 0, output = 0, receiver = 0, input = 0;
    bool is_declared = false;
  };
  struct Pair {
    const Pass* sent = nullptr;
    const Pass* received = nullptr;
  };

  Stage& stage_of(EventId id, const Event& event);
  void add(Stage& stage, EventId id, const Event& event, const TensorRecord& tensor);

  void find_declared_links();
  void find_links_by_content();
  void link_by_content(std::size_t receiver, std::size_t input);
  static std::size_t agreeing(const std::vector<Pair>& pairs);
  static std::vector<Pair> pairs_of(const Stage& sender, const Stage& receiver, bool is_declared);

  void compare_link(const Link& link, double most);
  void compare_gradients(const Link& link, const std::vector<Pair>& pairs, double most);
  bool is_alone(const Link& link) const;
  double distance(const Tensor& sent, const Tensor& received, bool* is_rounding = nullptr) const;
  std::string who(std::size_t stage) const;
  void report(const Pass& pass, const Tensor& tensor, bool is_gradient, double rel_l2, std::string message);

  const Reader& reader_;
  std::vector<Stage> stages_;
  std::map<std::pair<std::size_t, std::string>, std::size_t> stage_index_;  // by writer and root
  std::vector<Link> links_;
  std::vector<WrongTransfer> found_;
  std::size_t compared_ = 0;

  struct Place {  // of an output
    std::size_t stage = 0, pass = 0, output = 0;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Place>> outputs_;  // by fingerprint
};

}  // namespace tenscope::compare
