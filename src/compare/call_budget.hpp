#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compare/budget.hpp"
#include "compare/replay.hpp"

namespace tenscope::compare {

// A parameter of the first run, and the node of its module.
struct BudgetParameter {
  const Item* item;
  int node;
  bool is_equal;  // to that of the second run
};

// One call of an outermost module. Overview in budget.cpp. What it is given must outlive it.
class CallBudget {
 public:
  CallBudget(const Alignment& alignment, const Interner& interner, const Measures& measures,
             const std::vector<BudgetParameter>& parameters, BudgetSums& sums)
      : alignment_(alignment), interner_(interner), measures_(measures), parameters_(parameters), sums_(sums) {}

  // A module is called by another, or is the outermost one.
  std::size_t enter(int node, std::optional<std::size_t> parent);
  void take_input(std::size_t frame, const Item& a, const Item& b);
  void take_output(std::size_t frame, const Item& a, const Item& b);
  void finish();  // adds what was found to the sums

 private:
  // A tensor of both runs.
  struct Tensor {
    const Item *a, *b;
    double size = 0;   // |a|
    double error = 0;  // |b - a|; NaN: not known
    double share = 0;  // of the squared error at the end

    bool is_known() const { return !std::isnan(error); }
  };

  // Squares of sizes and errors.
  struct Squares {
    double size = 0, error = 0;

    void add(const Tensor& tensor);
    void add(const Squares& other);
    double relative() const { return size > 0 ? error / size : 0; }
  };

  struct Computation {
    std::size_t frame;
    std::size_t result;
    Squares arriving = {}, leaving = {};
    double added = 0, handed_on = 0;  // squares, of the size that `leaving` has
    bool is_assumed = false;
    bool is_known = true;
    double share_added = 0;                                    // of the result's squared error
    std::vector<std::pair<std::size_t, double>> sources = {};  // and their shares of it
  };

  struct Frame {
    int node = -1;
    std::optional<std::size_t> parent;
    bool has_calls = false;
    std::vector<std::size_t> at_hand = {};  // tensors
    std::set<std::size_t> used = {};        // of these, by a module inside or by its code
  };

  // What of a result is looked at.
  struct RowChoice {
    std::int64_t all = 0, cols = 0;          // rows and columns that it has
    std::vector<std::int64_t> rows = {};     // that are chosen
    std::vector<std::int64_t> columns = {};  // that are chosen; empty: all
  };

  // Sources and what they are in the sample of a result.
  struct Sources {
    std::vector<RowSample> samples;
    std::vector<std::size_t> ids;
  };

  const ModuleNode& node(int id) const { return alignment_.tree_a.nodes[static_cast<std::size_t>(id)]; }
  std::pair<std::size_t, bool> tensor_of(const Item& a, const Item& b);
  void compute(std::size_t frame, std::size_t result);
  void by_sizes(const std::vector<std::size_t>& sources, Computation& made) const;
  bool by_replay(const Frame& frame, Computation& made) const;
  bool by_matrix(const Frame& frame, RowChoice choice, Computation& made) const;
  bool by_attention(const Frame& frame, Computation& made) const;
  bool by_sketches(const Frame& frame, Computation& made) const;
  bool divide(const RowSample& sample, const HandedOn& handed, const std::vector<std::size_t>& ids,
              Computation& made) const;
  template <class Sample>
  Sources sources_of(const Frame& frame, Sample sample) const;
  std::vector<RowSample> constants_of(const Frame& frame, const RowChoice& choice, const RowSample& result) const;
  RowSample sample_of(const Item& a, const Item* b, const RowChoice& choice) const;
  std::vector<WeightMatrix> matrices(int of, const RowChoice& choice) const;
  bool is_same_code(const Frame& frame) const;
  void follow_back(double squares, BudgetSums::Root& into);
  void add_modules(const std::string& root);

  static constexpr std::size_t kMostSources = 8, kMostMatrices = 4;
  static constexpr std::int64_t kMostShared = 16;  // queries to a key

  const Alignment& alignment_;
  const Interner& interner_;
  const Measures& measures_;
  const std::vector<BudgetParameter>& parameters_;
  BudgetSums& sums_;
  std::vector<Frame> frames_;
  std::vector<Tensor> tensors_;
  std::map<std::array<std::uint64_t, 4>, std::size_t> by_content_;
  std::set<std::size_t> given_;            // tensors that the outermost module was given
  std::vector<std::size_t> outputs_;       // of the outermost module
  std::vector<Computation> computations_;  // in the order of execution
  std::vector<double> shares_;             // what each has added to the error at the end
};

}  // namespace tenscope::compare
