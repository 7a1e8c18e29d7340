#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compare/arrangement.hpp"
#include "compare/part_loader.hpp"
#include "compare/part_summary.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// b against a, and the factor by which b would be nearest.
struct Comparison {
  double error = std::numeric_limits<double>::infinity();
  double factor = 1, error_by_factor = std::numeric_limits<double>::infinity();
};

// The tensors of one slot while arrangements are tried. What it was made with must outlive it.
class PartTrial {
 public:
  PartTrial(const PartLoader& loader, const std::array<PartSet, 2>& sets) : loader_(loader), sets_(sets) {}

  // The largest error over all parts that should be the same; `how` learns which of them has it. Without the bytes of
  // all parts their summaries are compared: then the error is an estimate, or the least that it can be.
  Comparison compare(std::array<Arrangement, 2>& how);

  bool is_zero() const;
  bool is_constant() const;  // the elements of each part
  DType dtype(int run) const { return sets_[static_cast<std::size_t>(run)].parts.front().item->dtype; }

 private:
  template <class T>
  using Known = std::array<std::vector<std::pair<Arrangement, std::unique_ptr<T>>>, 2>;

  std::vector<Arrangement> variants(int run, const Arrangement& how) const;
  const HostTensor& whole(int run, const Arrangement& how);
  const std::optional<TensorRecord>& summary(int run, const Arrangement& how);
  bool has_bytes() const { return sets_[0].has_bytes && sets_[1].has_bytes; }

  const PartLoader& loader_;
  const std::array<PartSet, 2>& sets_;
  std::array<std::vector<TensorData>, 2> parts_;
  std::array<PartSummaries, 2> part_summaries_;
  Known<HostTensor> wholes_;
  Known<std::optional<TensorRecord>> summaries_;
};

}  // namespace tenscope::compare
