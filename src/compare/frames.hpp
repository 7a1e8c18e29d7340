#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compare/call_key.hpp"
#include "compare/module_tree.hpp"
#include "compare/noise.hpp"

namespace tenscope::compare {

inline constexpr int kProgram = 0;  // the frame around all module calls

// A module call of the first run, and how far the tensors that its code has at hand agree.
struct Frame {
  int parent = kProgram;
  int node = -1;  // of the first run's tree
  std::int64_t call = 0;
  Trust forward;
  Trust backward;
  bool has_backward = false;
  bool has_results_inside = false;           // something that a submodule returned was compared
  double arriving = 0;                       // the largest number of the gradients of its outputs
  std::int64_t input_on_one_side = -1;       // index into the observations
  std::vector<Fingerprint> inputs, outputs;  // in the first run
  bool is_idle = false;                      // its outputs differ, and nothing comes of it
  bool is_entered = false;                   // its enter was recorded, and so its exit will be
  // Origins (by index) that an input of this call is; whether they have any effect is known when the call ends.
  std::vector<std::size_t> pending;
  std::size_t consequences_before = 0;    // in all, when the first of them arose
  double smallest_pending = 0;            // the relative difference of the smallest of them
  std::size_t results = 0, affected = 0;  // outputs and buffers: those compared, and those of them beyond noise
  double noise_of_results = 0;            // the largest relative difference of the others
};

// The module calls of a lane, in the order of execution.
class Frames {
 public:
  // `partner` of each module in the other run; -1: the code of a module that the first run alone has counts as that of
  // the module around it. Empty: all have one.
  explicit Frames(const ModuleTree& tree, std::vector<int> partner = {}) : tree_(tree), partner_(std::move(partner)) {
    frames_.emplace_back();
  }

  Frame& operator[](int id) { return frames_[static_cast<std::size_t>(id)]; }
  const Frame& operator[](int id) const { return frames_[static_cast<std::size_t>(id)]; }

  int size() const { return static_cast<int>(frames_.size()); }

  int of(const CallKey& key);  // the frame of a call; kProgram: of no module
  int latest(int node) const;  // kProgram: it has not been called
  bool was_called(int node) const { return latest_.contains(node); }
  bool is_within(int id, int around) const;
  std::string path(int id) const;

  void enter(const CallKey& key, std::uint64_t thread);
  int exit(int node, std::uint64_t thread);  // the frame that ends; kProgram: none

  const std::vector<int>& call_order() const { return call_order_; }  // nodes

 private:
  struct Entered {
    int node, frame;
  };

  int add(const CallKey& key, int parent);
  bool is_alone(int node) const { return !partner_.empty() && partner_[static_cast<std::size_t>(node)] < 0; }

  const ModuleTree& tree_;
  std::vector<int> partner_;
  std::vector<Frame> frames_;
  std::unordered_map<CallKey, int, CallKeyHash> index_;
  std::unordered_map<int, int> latest_;                             // by node
  std::unordered_map<std::uint64_t, std::vector<Entered>> stacks_;  // by thread
  std::vector<int> call_order_;
};

}  // namespace tenscope::compare
