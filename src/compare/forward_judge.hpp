#pragma once

#include <unordered_map>
#include <vector>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// Judges what happens before backward: initial values, inputs, outputs, buffers. Overview in causality.cpp.
class ForwardJudge {
 public:
  explicit ForwardJudge(LaneState& state) : state_(state) {}

  void visit_initial(const Observation& o);
  void visit_input(const Observation& o);
  void visit_output(const Observation& o);  // also a value recorded by hand, or an input that was changed in place
  void visit_buffer(const Observation& o);
  void leave(int frame);  // the call has ended
  void finish();          // the walk has ended, and some calls with it

 private:
  struct ChangedInput {  // in place, in one run only
    int frame;
    Observation observation;
  };

  struct Contents {  // of both runs
    Fingerprint a, b;
    friend bool operator==(const Contents&, const Contents&) = default;
  };
  struct ContentsHash {
    std::size_t operator()(const Contents& contents) const noexcept {
      return mix_hash(mix_hash(0, contents.a.low), contents.b.low);
    }
  };

  void blame_code_of(int frame, const Observation& o, DiffReason reason, const Trust& inputs);
  void blame_input(const Observation& o, int frame, const Trust& inputs);
  void confirm(Frame& frame);
  void blame_extra_draw();
  void note_result(int frame, const Judged& judged);

  LaneState& state_;
  std::vector<ChangedInput> changed_inputs_;
  std::unordered_map<Contents, std::size_t, ContentsHash> known_inputs_;  // origins, by what differs
};

// An origin that is a change of one run alone is where that run made it.
void date(Origin& origin, const Observation& change, const LaneState& state);

}  // namespace tenscope::compare
