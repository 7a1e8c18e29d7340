#include "store/large_writes.hpp"

namespace tenscope::store {
namespace {

constexpr double kFastNsPerByte = 0.5;   // 2 GB/s: not worth looking for better
constexpr std::uint32_t kTryAgain = 64;  // choices
constexpr double kNewest = 0.25;         // its weight in the average

}  // namespace

LargeWrites::Way LargeWrites::choose() noexcept {
  if (policy_ == Policy::Cached || !direct_works_) return Way::Cached;
  if (policy_ == Policy::Direct) return Way::Direct;
  const double cached = ns_per_byte_[static_cast<int>(Way::Cached)];
  const double direct = ns_per_byte_[static_cast<int>(Way::Direct)];
  if (cached < kFastNsPerByte) return Way::Cached;
  const bool is_direct_better = direct < cached;
  const bool is_trial = choices_.fetch_add(1, std::memory_order_relaxed) % kTryAgain == kTryAgain - 1;
  return is_direct_better != is_trial ? Way::Direct : Way::Cached;
}

void LargeWrites::learn(Way way, std::uint64_t size_bytes, std::int64_t elapsed_ns) noexcept {
  if (size_bytes == 0) return;
  auto& average = ns_per_byte_[static_cast<int>(way)];
  const double newest = static_cast<double>(elapsed_ns) / static_cast<double>(size_bytes);
  const double before = average;
  average = before == 0 ? newest : (1 - kNewest) * before + kNewest * newest;
}

}  // namespace tenscope::store
