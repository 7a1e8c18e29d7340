#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "compare/causality.hpp"
#include "compare/frames.hpp"
#include "compare/module_state.hpp"

namespace tenscope::compare {

// Goes through one lane of both runs in the order of execution and finds the places that start a difference.
// Overview in causality.cpp.
class LaneWalker {
 public:
  LaneWalker(const Alignment& alignment, std::size_t lane, const Interner& interner, const Measures& measures,
             const NoiseJudge& judge, Findings& findings);

  // The origins, in the order in which they were found.
  std::vector<Origin> walk(const std::function<void(double)>& on_progress);

  // Where a parameter stands in the model's order; the largest number for what is none.
  std::size_t parameter_order(const Item& item) const;
  const Item& item_of(const Observation& o) const {
    return o.a != kNothing ? a_[static_cast<std::size_t>(o.a)] : b_[static_cast<std::size_t>(o.b)];
  }

 private:
  enum class Verdict { Equal, Noise, Consequence, Origin };
  struct Judged {
    Verdict verdict = Verdict::Equal;
    Trust trust;
  };
  struct PendingGradient {
    Observation observation;
    std::size_t position;
    Verdict verdict;
    bool is_flow_known;
    std::int64_t last_agreeing;
  };
  struct Arriving {  // what reached a module in the current backward, over all its calls
    Trust trust;
    bool is_known = false;
  };
  struct ChangedInput {  // in place, in one run only
    int frame;
    Observation observation;
  };

  void scan();
  std::uint64_t parameter_key(const Item& item) const;
  std::string parameter_name(const Item& item) const;
  Trust at_hand(int frame) const;

  Judged judge(const Observation& o, const Trust& inputs, Stage stage, double floor = 0);
  Judged judge_pair(const Observation& o, const Trust& inputs, Stage stage, double floor);
  Judged consequence();
  void note_bit_difference(const Observation& o);
  Origin make_origin(const Observation& o, std::string reason) const;
  void blame(const Observation& o, std::string path, std::string reason);
  void date(Origin& origin, const Observation& change) const;
  void blame_code_of(int frame, const Observation& o, std::string reason);

  void visit(const Observation& o);
  void visit_input(const Observation& o, const Item& item);
  void visit_output(const Observation& o, const Item& item);
  Observation with_last_value(Observation o, const Item& item) const;
  void visit_buffer(const Observation& seen, const Item& item);
  void visit_initial(const Observation& o, const Item& item);
  void visit_loss(const Observation& o, const Item& item);

  Trust flowing_into(int frame);
  void spread_backward(int frame, const Trust& trust);
  void visit_grad_output(const Observation& o, const Item& item);
  void visit_grad_input(const Observation& o, const Item& item);
  int giver_of_inputs(int frame) const;
  void arrive(int node, const Trust& trust);
  double gradient_floor(const Item& item) const;
  void visit_grad(const Observation& o, const Item& item);
  void finish_gradients();
  void show_gradient_for_inner_origins();
  void visit_clipped(const Observation& o, const Item& item);
  void visit_updated(const Observation& seen, const Item& item);
  bool is_wrong_update(const Observation& o, std::uint64_t key) const;

  const Alignment& alignment_;
  std::size_t lane_;
  const LanePair& pair_;
  const Interner& interner_;
  const Measures& measures_;
  const NoiseJudge& judge_;
  Findings& findings_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;

  std::vector<Observation> observations_;
  Frames frames_;
  ModuleState state_;
  std::vector<Arriving> arriving_;
  std::vector<ChangedInput> changed_inputs_;

  std::map<std::tuple<TextId, std::int64_t, std::int64_t>, double> largest_gradient_;
  std::unordered_map<std::uint64_t, std::size_t> parameter_order_;
  std::unordered_map<std::uint64_t, Trust> gradient_of_;
  std::unordered_map<std::uint64_t, Observation> latest_value_, latest_gradient_;  // of a parameter or buffer
  std::vector<PendingGradient> pending_gradients_;
  Trust gradients_, gradients_now_, clipped_;
  std::optional<Origin> rounded_update_;  // the first update that differs although all it depends on is equal in bits
  bool has_gradient_flow_ = false;

  std::size_t position_ = 0;
  std::int64_t last_agreeing_ = kNothing;
  std::vector<Origin> origins_;
};

inline std::string said(const std::string& path) { return path.empty() ? "the model" : path; }

}  // namespace tenscope::compare
