#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/row_table.hpp"
#include "compare/row_tensor.hpp"

namespace tenscope::compare {

// Rows that belong together, in the order of their keys.
struct RowPairs {
  std::vector<const RowKey*> keys;
  std::array<std::vector<RowPlace>, 2> places;  // in each run
};

// What is done with a tensor of one of the runs.
struct RowPlan {
  enum class Use {
    Rows,       // its rows are compared
    Whole,      // it has no rows, and is compared as it is
    Ambiguous,  // several axes may be those of the rows, and nothing says which
    LeftOut,    // it has no rows of this kind, or none that the other run has
  };
  Use use = Use::LeftOut;
  std::size_t way = 0;                    // of its RowTensor
  std::shared_ptr<const RowPairs> pairs;  // Rows
  bool is_tied = false;                   // other axes fit as well: which row is which is not known
};

// Two runs' tensors by rows: which axis of each is that of the rows, and which rows are compared.
class RowMatch {
 public:
  // `map` are rules for names, as RunDiffOptions has them.
  RowMatch(const RowTable& a, const RowTable& b, const std::vector<std::string>& map);

  const RowTable& table(int side) const { return *tables_[static_cast<std::size_t>(side)]; }
  const std::vector<RowTensor>& tensors(int side) const { return tensors_[static_cast<std::size_t>(side)]; }
  const RowPlan& plan(int side, std::size_t tensor) const { return plans_[static_cast<std::size_t>(side)][tensor]; }
  // The tensor of the other run that has its name.
  std::optional<std::size_t> partner(int side, std::size_t tensor) const {
    const std::ptrdiff_t other = partners_[static_cast<std::size_t>(side)][tensor];
    return other < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(other));
  }

  // Rows of which some tensor is compared, and those of each run. A key may be recorded for each of several tensors of
  // a step; then its row counts once.
  std::size_t common_rows() const { return common_rows_; }
  std::size_t row_count(int side) const { return row_counts_[static_cast<std::size_t>(side)]; }
  // Rows of keys that one run has more often than the other, beyond those; the first or the last are compared.
  std::size_t uneven_rows() const { return uneven_rows_; }
  bool takes_first() const { return takes_first_; }
  // Names of tensors that are compared in part only: of which fewer rows are compared than of others, and parameters
  // that change, of which the first value is compared.
  const std::vector<std::string>& partial() const { return partial_; }
  // Names of tensors that are equal as they are, but not by rows: those that are compared as they are; and, where
  // nothing agrees by rows, those that speak against the keys.
  const std::vector<std::string>& equal_as_they_are() const { return equal_as_they_are_; }
  bool are_keys_doubtful() const { return are_keys_doubtful_; }

 private:
  using Batches = std::vector<std::size_t>;
  struct Tensor {
    int side = 0;
    std::size_t index = 0;
  };

  const RowTensor& tensor(Tensor t) const { return tensors(t.side)[t.index]; }
  RowPlan& plan(Tensor t) { return plans_[static_cast<std::size_t>(t.side)][t.index]; }
  std::shared_ptr<const RowPairs> pairs(const Batches& a, const Batches& b) const;
  std::shared_ptr<const RowPairs> pairs_of(std::size_t a, std::size_t way_a, std::size_t b, std::size_t way_b) const;
  double agreement(std::size_t a, std::size_t way_a, std::size_t b, std::size_t way_b) const;

  void find_partners(const std::vector<std::string>& map);
  bool choose_ways(std::size_t a, std::size_t b, double least);
  void choose_all_ways();
  void choose_like_others(int side);
  void choose_repeats();
  void find_plain_values();
  bool is_without_bytes(Tensor t) const;
  void find_equal_tensors();
  void find_rows();
  void count_rows();

  std::array<const RowTable*, 2> tables_;
  std::array<std::vector<RowTensor>, 2> tensors_;
  std::array<std::vector<RowPlan>, 2> plans_;
  std::array<std::vector<std::ptrdiff_t>, 2> partners_;  // by name; -1: none
  mutable std::map<std::pair<Batches, Batches>, std::shared_ptr<const RowPairs>> known_pairs_;
  std::size_t common_rows_ = 0, uneven_rows_ = 0;
  std::array<std::size_t, 2> row_counts_ = {0, 0};
  bool takes_first_ = false, are_keys_doubtful_ = false;
  std::vector<std::string> equal_as_they_are_, partial_;
};

}  // namespace tenscope::compare
