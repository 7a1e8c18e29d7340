#include "store/recorded_part.hpp"

#include <algorithm>

#include "store/shards.hpp"

namespace tenscope::store {

RecordedPart::RecordedPart(const EventInfo& info, const TensorView& tensor) {
  if (info.shard == nullptr) parsed_ = parse_shard(info.meta);
  set(info.shard != nullptr ? info.shard : parsed_ ? &*parsed_ : nullptr, tensor);
}

RecordedPart::RecordedPart(const std::optional<Shard>& shard, const TensorView& tensor) {
  set(shard ? &*shard : nullptr, tensor);
}

void RecordedPart::set(const Shard* shard, const TensorView& tensor) {
  const std::int64_t count = element_count(tensor.shape);
  const bool is_whole = shard == nullptr || std::ranges::equal(shard->shape, tensor.shape);
  if (is_whole) {
    is_sketched_ = count > 1 || (count == 1 && (shard != nullptr || kind_of(tensor.dtype) == DTypeKind::Complex));
    return;
  }
  part_ = {shard->shape, shard->offset};
  is_sketched_ = count > 0 && part_.fits(tensor.shape);
  const auto mix = [this](const auto& numbers) {
    for (const std::int64_t number : numbers) {
      id_ = (id_ ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15ULL;
      id_ ^= id_ >> 29;
    }
  };
  id_ = 1;
  mix(tensor.shape);
  mix(shard->shape);
  mix(shard->offset);
}

std::uint64_t part_id(const Reader& reader, EventId id) {
  const Event event = reader.event(id);
  const auto shard = parse_shard(event.meta);
  if (!shard) return 0;
  return RecordedPart(shard, TensorView{.shape = std::get<TensorRecord>(event.value).shape}).id();
}

}  // namespace tenscope::store
