#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/sketch.hpp"
#include "tenscope/event.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::store {

// Which part of which whole a tensor event is, as far as its sketch is concerned. The shard that `info` points to and
// the tensor must outlive it.
class RecordedPart {
 public:
  RecordedPart(const EventInfo& info, const TensorView& tensor);
  RecordedPart(const std::optional<Shard>& shard, const TensorView& tensor);
  RecordedPart(const RecordedPart&) = delete;
  RecordedPart& operator=(const RecordedPart&) = delete;

  // Not where a single number says it all, which the statistics have, and not a part that lies outside of its whole.
  bool is_sketched() const noexcept { return is_sketched_; }
  kernels::PartOf part() const noexcept { return part_; }
  std::uint64_t id() const noexcept { return id_; }  // the same for the same part of the same whole; 0: it is the whole

 private:
  void set(const Shard* shard, const TensorView& tensor);

  std::optional<Shard> parsed_;
  kernels::PartOf part_;
  bool is_sketched_ = false;
  std::uint64_t id_ = 0;
};

// RecordedPart::id() of a tensor event.
std::uint64_t part_id(const Reader& reader, EventId id);

}  // namespace tenscope::store
