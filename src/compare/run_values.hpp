#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "compare/content_match.hpp"
#include "compare/lane_state.hpp"
#include "compare/measure.hpp"
#include "compare/tensor_source.hpp"

namespace tenscope::compare {

// Compares the values of two runs (or of one with itself). Tensors are mapped when they are asked for, and each pair of
// contents is measured once: a module's output is the next one's input. The sources and the interner must outlive it.
class RunValues {
 public:
  RunValues(const TensorSource& a, const TensorSource& b, Interner& interner) : a_(a), b_(b), interner_(interner) {}

  PairError measure(const Item& x, const Item& y);
  // What was measured before, else what statistics and sketches tell.
  PairError estimate(const Item& x, const Item& y) const;
  std::optional<UpdateError> measure_update(const UpdateItems& x, const UpdateItems& y) const;
  DiffDistribution measure_distribution(const Item& x, const Item& y);
  bool is_same_mask(const Item& x, const Item& y) const;
  DiffMetrics describe(const Item& x, const Item& y) const;
  std::optional<DiffUpdate> describe_update(const UpdateItems& x, const UpdateItems& y) const;

  // For pairing by content; the layouts that it finds are remembered here.
  ContentSource content_source();

 private:
  struct ContentPair {
    Fingerprint a, b;
    DType dtype_a, dtype_b;
    TextId shape;
    friend bool operator==(const ContentPair&, const ContentPair&) = default;
  };
  struct ContentHash {
    std::size_t operator()(const ContentPair& pair) const noexcept;
  };

  struct Numbers {
    Item a, b;
    bool are_rounded = false;  // to doubles
  };
  std::optional<Numbers> as_numbers(const Item& x, const Item& y) const;
  PairError measure_other_values(const Item& x, const Item& y) const;
  PairError measure_tensors(const Item& x, const Item& y) const;
  PairError measure_summaries(const Item& x, const Item& y) const;
  std::optional<std::pair<Sketch, Sketch>> sketches_of(const Item& x, const Item& y) const;
  bool are_comparable(const Item& x, const Item& y) const;
  std::optional<LaidOut> laid_out(const Item& x, const Item& y) const;

  const TensorSource& a_;
  const TensorSource& b_;
  Interner& interner_;
  std::unordered_map<ContentPair, PairError, ContentHash> measured_;
  std::map<std::pair<EventId, EventId>, Layout> layouts_;
};

}  // namespace tenscope::compare
