#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/lane_state.hpp"
#include "compare/logical_match.hpp"
#include "compare/tensor_source.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// The tensors of one of two runs that were put together of parts. What it was made with must outlive it.
class LogicalSource : public TensorSource {
 public:
  LogicalSource(int run, const PartLoader& loader) : run_(run), loader_(loader), recorded_(loader.reader(run)) {}

  // Gives the item the value of a whole tensor.
  void set_value(Item& item, const MatchedSlot& slot, Interner& interner);

  TensorRecord record(const Item& item) const override;
  TensorData data(const Item& item) const override;
  std::string meta(const Item& item) const override;
  std::optional<Sketch> sketch(const Item& item) const override;
  std::uint64_t part_id(const Item& item) const override;

  // Of a whole whose parts' bytes were not all kept; nothing where their summaries do not tell.
  std::optional<TensorRecord> summary_without_bytes(const MatchedSlot& slot) const;

  // What an item was made of; nothing where it is what one process recorded.
  const MatchedSlot* slot_of(const Item& item) const;

 private:
  struct Whole {
    const MatchedSlot* slot = nullptr;
    TensorRecord record;
  };

  HostTensor make(const MatchedSlot& slot) const;

  int run_;
  const PartLoader& loader_;
  ReaderSource recorded_;
  std::deque<Whole> wholes_;
};

// Two runs that are laid out differently, said as two runs of one process: the same modules, in the same order.
struct LogicalRuns {
  std::array<RunLanes, 2> lanes;
  std::unique_ptr<SlotTable> table;
  std::map<SlotKey, MatchedSlot> slots;
  std::unique_ptr<PartLoader> loader;
  std::array<std::unique_ptr<LogicalSource>, 2> sources;
  std::array<Timeline, 2> timelines;
  bool has_results = false;                // outputs or values recorded by hand are in one of the runs, at least
  bool are_ranks_missing = false;          // of one of the runs
  std::array<std::size_t, 2> totals{};     // tensors and numbers that each run has
  std::vector<DiffLayout> layouts;         // how they were put together
  std::vector<std::string> not_assembled;  // names of tensors in both runs whose parts could not be put together
  bool is_plain_left_out = false;          // one of them is in no module, so that nothing after it speaks for it
  double roundoff = 0;                     // of the coarsest half type in them; 0: there is none

  // Parts of a pair of tensors that are off, and how.
  std::vector<DiffPart> off_parts(const Item& a, const Item& b) const;
  // The update of the part whose update is furthest off: one rank may have left its part as it was.
  std::optional<UpdateError> measure_update(const UpdateItems& a, const UpdateItems& b) const;
  // The event that a report shows of an item.
  DiffEvent event_of(int run, const Item& item, const Interner& interner) const;
};

// The readers must outlive the result.
LogicalRuns make_logical_runs(const Reader& a, const Reader& b, Timeline timeline_a, Timeline timeline_b,
                              Interner& interner, const std::vector<std::string>& map);

}  // namespace tenscope::compare
