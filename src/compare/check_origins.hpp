#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compare/check_event.hpp"

namespace tenscope::compare {

// Finds where NaN and infinities arise. Overview in check_origins.cpp.
class OriginTracer {
 public:
  // A tensor is ill with more NaN, or more infinities, than these.
  OriginTracer(const Reader& reader, double nan_limit, double inf_limit)
      : reader_(reader), nan_limit_(nan_limit), inf_limit_(inf_limit) {}

  // Every event of the run, in order. Reader must live as long as this.
  void look_at(EventId id, const Event& event);

  // One for each chain, in the order of step and rank. A chain is told by the rule of its origin, or, where that is not
  // wanted, by that of a tensor that follows.
  std::vector<CheckFinding> findings(bool wants_nan, bool wants_inf);

 private:
  static constexpr int kNone = -1;
  static constexpr int kProgram = 0;  // the frame around all module calls
  static constexpr EventId kNoEvent = ~EventId{0};

  enum class Reason : std::uint8_t {
    Data,          // an input of an outermost module
    Outside,       // an input of an inner module whose caller was not recorded
    CallerCode,    // an input of a submodule
    Output,        // an output, a buffer after the call, an input changed in place
    Inside,        // a value recorded inside a module, or by the program
    Initial,       // a parameter or buffer before the first forward
    Replaced,      // a parameter or buffer changed by something else than the optimizer
    Loss,          //
    GradientCode,  // a gradient that reaches a module
    Backward,      // a gradient that a module passes on, or makes for its parameter
    BackwardPart,  // a parameter's gradient, where the gradients inside the model were not recorded
    Clipping,      // a gradient between backward() and the optimizer's step
    Optimizer,     // a parameter after the optimizer's step
    Update,        // the same, where gradients were not recorded
  };

  // One origin and all that follows from it. A suspect becomes a chain when an ill value follows from it.
  struct Chain {
    EventId origin = kNoEvent;
    int rank = 0;
    int blamed = kNone;  // node; kNone: what the event says itself, or the program
    Reason reason = Reason::Output;
    std::array<EventId, 4> before{kNoEvent, kNoEvent, kNoEvent, kNoEvent};  // sound values that it was made from
    EventId mask = kNoEvent;                                                // a mask that was at hand
    bool is_ill = false;
    bool has_nan = false, has_inf = false;
    bool is_only_negative = true;  // nothing but -Inf in it
    int same_as = kNone;           // arose again at the same place: counted there
    std::size_t after = 0, again = 0;
    EventId last_again = kNoEvent;
    std::int64_t gradient_step = -1;  // the first step at which parameters' gradients were reached
    std::vector<std::string> way;
  };

  struct Node {  // a module
    std::string root, scope, cls, site;
  };

  struct Frame {  // a module call
    int parent = kProgram;
    int node = kNone;
    int chain = kNone;     // in the forward: of what its code has at hand
    int backward = kNone;  // of the gradients that its code has at hand
    int code = kNone;      // a chain that began in its own code's backward
    int quiet = kNone;     // a suspect that a submodule took in without harm; its gradient may still suffer
    bool has_backward = false, has_inputs = false;
    std::array<EventId, 3> inputs{kNoEvent, kNoEvent, kNoEvent};
    EventId last_output = kNoEvent;  // of a submodule
    EventId gradient = kNoEvent;     // that reaches it
    std::vector<int> masks;
  };

  struct Mask {
    EventId event;
    std::vector<std::int64_t> shape;
  };
  struct State {  // of a parameter or buffer that is not finite
    int chain = kNone;
    int mask = kNone;
  };
  struct PendingGradient {
    EventId id;
    Event event;
  };
  struct Known {  // an origin by its name
    int chain = kNone;
    bool has_recovered = false;
  };

  // What is known of one writer.
  struct Lane {
    std::size_t writer = ~std::size_t{0};
    int rank = 0;
    std::int64_t step = 0;
    int ill_root = kNone;  // node of the outermost call whose output made the program ill
    bool is_training = false, is_backward = false, is_program_ill = false;
    std::vector<Frame> frames{1};
    std::map<std::pair<int, std::int64_t>, int> frame_of;        // by node and call
    std::unordered_map<int, int> latest;                         // frame by node
    std::unordered_map<std::uint64_t, std::vector<int>> stacks;  // by thread
    std::map<std::string, State> states;                         // by root and name; those that are not finite
    std::vector<Mask> masks;
    std::unordered_map<int, int> module_chain;            // by node: reached in this forward and backward
    std::unordered_set<int> flow_known;                   // nodes whose incoming gradient was recorded
    std::unordered_map<std::string, int> gradient_chain;  // by root and parameter
    std::unordered_map<std::string, EventId> gradient;    // the latest, by root and parameter
    std::vector<PendingGradient> pending;
    int initial = kNone, updates = kNone;  // chains of parameters before the first forward, after this step's update
    int gradients = kNone;                 // chain of any gradient in this step
    std::map<std::pair<std::uint64_t, std::uint64_t>, int> chain_of_content;  // of this step's ill outputs
    std::unordered_map<std::string, Known> known;
  };

  struct Value {
    EventId id;
    const Event& event;
    const TensorRecord* tensor;  // null: a number
    Io io;
    std::int64_t count, nan, pos_inf, neg_inf;
    bool is_ill, is_only_inf;
  };

  Value value_of(EventId id, const Event& event) const;
  int node_of(const Event& event);
  int frame_of(const Event& event);
  std::string key_of(const Event& event) const;

  int either(int x, int y) const;
  int at_hand(int frame) const;
  int flowing_into(int frame) const;
  static bool is_mask(const Value& value);
  int add_mask(const Value& value);
  int find_mask(int frame, const Value& value) const;
  void reach(int node, int chain);
  void taint(int frame, int chain);
  void know_content(const Value& value, int chain);
  int chain_of_content(const Value& value, int otherwise) const;

  int add_chain(const Value& value, int blamed, Reason reason, int frame);
  int make_ill(int chain);
  static std::string say_on_way(const Value& value);
  int follow(int chain, const Value& value);
  int blame(const Value& value, int blamed, Reason reason, int frame);
  void move_origin(int chain, const Value& value, int blamed, int frame);
  void note_sound(const Value& value);

  void begin_step(std::int64_t step);
  void begin_forward();
  void begin_backward();
  void enter(const Event& event);
  void leave(const Event& event);
  void visit_input(const Value& value);
  void visit_output(const Value& value);
  void visit_inside(const Value& value);
  void visit_state(const Value& value);
  void visit_loss(const Value& value);
  void visit_grad_output(const Value& value);
  void visit_grad_input(const Value& value);
  void visit_clipped(const Value& value);
  void finish_gradients();
  int explain_gradient(const Value& value, int node) const;

  void merge_ranks();
  CheckFinding finding_of(const Chain& chain, std::string code) const;
  std::string describe(const Chain& chain, const Event& event) const;
  std::string say_before(const Chain& chain) const;
  std::string said(int node) const;

  const Reader& reader_;
  double nan_limit_, inf_limit_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, int> node_index_;
  std::vector<Chain> chains_;
  Lane lane_;
};

}  // namespace tenscope::compare
