#pragma once

#include <compare>
#include <set>
#include <unordered_map>
#include <unordered_set>
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
  // An argument that is no tensor, and its values in both runs.
  struct Flags {
    TextId argument = 0;
    ValueKind kind_a{}, kind_b{};
    std::int64_t integer_a = 0, integer_b = 0;
    double number_a = 0, number_b = 0;
    TextId text_a = 0, text_b = 0;
    friend auto operator<=>(const Flags&, const Flags&) = default;
  };
  struct ContentsHash {
    std::size_t operator()(const Contents& contents) const noexcept {
      return mix_hash(mix_hash(0, contents.a.low), contents.b.low);
    }
  };

  void blame_code_of(int frame, const Observation& o, DiffReason reason, const Trust& inputs);
  void blame_input(const Observation& o, int frame, const Trust& inputs, double relative);
  bool is_known_idle(const Observation& o);
  void wait_for_result(std::size_t origin, int frame, double relative);
  void confirm(Frame& frame);
  void blame_extra_draw();
  void revive_outputs();
  void note_result(int frame, const Judged& judged);
  void note_affected(int frame);
  Contents contents_of(const Observation& o) const;
  Flags flags_of(const Observation& o) const;

  LaneState& state_;
  std::vector<ChangedInput> changed_inputs_;
  std::unordered_map<Contents, std::size_t, ContentsHash> known_inputs_;  // origins, by what differs
  std::unordered_set<Contents, ContentsHash> same_masks_;                 // of different forms
  std::unordered_map<std::size_t, int> made_by_;                          // frames, by the origin that their output is
  std::set<Flags> idle_flags_;                                            // of which nothing came in some call
};

// An origin that is a change of one run alone is where that run made it.
void date(Origin& origin, const Observation& change, const LaneState& state);

}  // namespace tenscope::compare
