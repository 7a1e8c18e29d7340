#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compare/measure.hpp"
#include "compare/noise.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope::compare {

// What there is to look into. Bits: something is not the same bit for bit, or is not in the reference. Differs: a value
// differs by more than rounding noise.
enum class Suspicion : std::uint8_t { None, Bits, Differs };

// A value that was looked at while the program ran.
struct Suspect {
  Suspicion suspicion = Suspicion::None;
  std::string name;
  std::int64_t step = 0, call = 0;
};

struct AgainstCounts {
  std::uint64_t equal = 0;
  std::uint64_t noise = 0;
  std::uint64_t differs = 0;
  std::uint64_t unknown = 0;           // the reference has no bytes of it, and its statistics do not tell
  std::uint64_t not_in_reference = 0;  // under this name, step and call
};

// Compares what a run records with a recording that is finished, value by value, while it is recorded. What agrees is
// recorded without its bytes.
//
// It looks at one value at a time: it says early where to look, and diff_runs has the last word, which knows what else
// was recorded. Thread-safe; see RunWatcher.
class Against : public RunWatcher {
 public:
  // Only what `rank` recorded there. Throws as Reader does.
  Against(const std::filesystem::path& reference, int rank, std::optional<double> tolerance);

  const std::filesystem::path& reference() const noexcept { return reader_.path(); }
  bool has_rank() const noexcept { return !reader_.writers().empty(); }
  std::size_t size() const noexcept { return entries_.size(); }  // values there are to compare with

  WatchedTensor saw(const EventInfo& info, const TensorView& tensor, const Fingerprint& fingerprint) noexcept override;
  void saw(const EventInfo& info, const EventValue& value) noexcept override;

  // The gravest that was seen since it was last taken. A quick question.
  Suspicion suspicion() const noexcept { return suspicion_.load(std::memory_order_relaxed); }
  Suspect take();
  // What was suspected and turned out to be harmless is not suspected again, but for its bits.
  void excuse();
  AgainstCounts counts() const;

 private:
  struct Entry {
    Fingerprint fingerprint;
    std::uint64_t shape = 0;
    EventId event = 0;
    std::uint32_t next = 0;  // of the same key, one further on; 0: none
    DType dtype{};
    bool is_tensor = false;
    bool has_bytes = false;
  };
  enum class Verdict : std::uint8_t { Equal, Noise, Differs, Unknown, NotThere };

  void add(EventId id);
  const Entry* find(std::uint64_t key) const;
  const Entry* next(const Entry& entry) const { return entry.next == 0 ? nullptr : &entries_[entry.next - 1]; }
  WatchedTensor known(const EventInfo& info, const Entry& entry, std::uint64_t size_bytes) const;
  Verdict judge(const EventInfo& info, const TensorView& tensor, const Entry& entry);
  PairError measure(const EventInfo& info, const TensorView& tensor, const Entry& entry) const;
  Verdict judge_value(const EventValue& mine, const EventValue& theirs) const;
  void count(Verdict verdict, const EventInfo& info) noexcept;

  const Reader reader_;
  const int rank_;
  const NoiseJudge judge_;
  std::optional<NoiseProfile> profile_;  // of the reference
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_key_;      // the first of each key, one further on
  std::unordered_map<std::uint64_t, std::uint32_t> by_content_;  // one of each content that has bytes
  std::atomic<Suspicion> suspicion_{Suspicion::None};

  mutable std::mutex mutex_;  // of what follows
  AgainstCounts counts_;
  Suspect suspect_;
  std::vector<std::uint64_t> suspected_;  // places
  std::unordered_set<std::uint64_t> excused_;
  Trust arrived_;        // the noise so far
  double gradient_ = 0;  // the largest of this step
  std::int64_t gradient_step_ = -1;
};

}  // namespace tenscope::compare
