#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <system_error>

#include "store/blob_table.hpp"
#include "store/event_encoder.hpp"
#include "store/recorded_part.hpp"
#include "store/signals_blocked.hpp"

namespace tenscope::store {

// What is said of a tensor's content: fingerprint, statistics and sketch, taken at most once. A known content has the
// sketch that an event tells already, unless it is another part of another whole this time. The tensor and the shard
// that `info` points to must outlive it.
class Summarizer {
 public:
  Summarizer(const EventInfo& info, const TensorView& tensor) : tensor_(tensor), part_(info, tensor) {}

  bool has_summary() const noexcept { return has_summary_; }
  const Summary& summary() const noexcept { return content_.summary; }
  TensorContent& content() noexcept { return content_; }

  // In one pass; where `destination` is not null, with a copy of the bytes.
  void take(std::byte* destination = nullptr);

  // By another thread while this one does `work`; where the system gives none, after it.
  template <class Work>
  void take_beside(Work&& work) {
    std::future<void> done;
    try {
      const SignalsBlocked guard;
      done = std::async(std::launch::async, [this] { take(); });
    } catch (const std::system_error&) {
      done = std::async(std::launch::deferred, [this] { take(); });
    }
    work();
    done.get();
  }

  // From now on the summary is that of this known content. Events before `first_seq` may be gone.
  void set_known(const Fingerprint& fingerprint, const BlobTable::Known& known, std::uint64_t first_seq);

  // The same of a content that another run has told; its sketch where it is given.
  void set_known(const Fingerprint& fingerprint, const Stats& stats, const Sketch* sketch);

  void finish();  // takes what is missing

  // Where the sketch is when the event `seq` has told this content; nothing where there is none.
  std::optional<BlobTable::SketchAt> sketch_at(std::uint64_t seq) const;

 private:
  void set(const Sketch& sketch);

  const TensorView& tensor_;
  const RecordedPart part_;
  TensorContent content_;
  bool has_summary_ = false;
  bool has_sketched_ = false;
};

}  // namespace tenscope::store
