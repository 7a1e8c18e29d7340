#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "tenscope/event.hpp"
#include "tenscope/tensor_view.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

enum class Durability { Process, Disk };  // survives the process' death; survives a power cut
enum class Keep { First, Last };          // past max_bytes: keep no bytes of what does not fit; or drop the oldest
enum class Values { Full, Stats };        // keep a tensor's bytes, or its statistics and fingerprint only

struct RunOptions {
  std::string name;  // folder below the base; empty: a timestamp, YYYYMMDD_HHMMSS, made unique
  int rank = 0;
  int world_size = 1;
  // The folder `name` is shared with other processes: join it where it exists; a writer's folder that is taken there
  // becomes rank-N.pid-PID. Otherwise a name whose rank-N is taken is made unique by a number behind it. Always so for
  // world_size > 1.
  bool join = false;
  Durability durability = Durability::Process;
  std::uint64_t max_bytes = 0;  // 0: no budget
  Keep keep = Keep::First;
  Values values = Values::Full;  // Stats: of no tensor are the bytes kept, whatever record is told
  std::uint64_t segment_bytes = 256u << 20;
  bool strict = false;  // errors are thrown instead of counted (also TENSCOPE_STRICT=1)
  // Called once per kind of trouble, from the thread that met it. Empty: one line on stderr.
  std::function<void(const std::string&)> on_warning;
};

// What one record call did.
struct Recorded {
  bool kept = false;       // false: disabled, closed or dropped
  bool duplicate = false;  // the bytes were in the store already
  std::uint64_t seq = 0;
  std::int64_t step = 0;
  std::int64_t call = 0;
  Summary summary;  // of a tensor
};

// What a RunWatcher knows of a tensor.
struct WatchedTensor {
  bool keep_bytes = true;  // false: its statistics and fingerprint are enough, whatever the probe asked for
  // Of this very content, where they are known; then they are not computed.
  std::optional<Stats> stats;
  std::shared_ptr<const Sketch> sketch;
};

// Looks on while a run records: is told of each value before it is written, by the thread that records it. `info` has
// the step and the call that the event will have. May be called by several threads at a time, and must not record.
class RunWatcher {
 public:
  RunWatcher() = default;
  RunWatcher(const RunWatcher&) = delete;
  RunWatcher& operator=(const RunWatcher&) = delete;
  virtual ~RunWatcher() = default;

  virtual WatchedTensor saw(const EventInfo& info, const TensorView& tensor,
                            const Fingerprint& fingerprint) noexcept = 0;
  virtual void saw(const EventInfo& info, const EventValue& value) noexcept = 0;  // no tensor
};

// A recording. Thread-safe. Creating a Run makes base/<name>/ with run.json and the folder of this writer; a fork's
// child writes to a folder of its own from its first record on. Nothing of the caller's is kept after a call returns.
// Unless strict, recording calls never throw: trouble is warned of once and counted in dropped().
class Run {
 public:
  explicit Run(const std::filesystem::path& base, RunOptions options = {});
  ~Run();  // closes
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Recorded record(const EventInfo& info, const TensorView& tensor, Values values = Values::Full);
  Recorded record(const EventInfo& info, const EventValue& value);  // not for TensorRecord

  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Recorded record(const EventInfo& info, Number value) {
    return record(info, number_value(value));
  }

  Recorded record(std::string_view name, const TensorView& tensor) { return record(named(name), tensor); }
  Recorded record(std::string_view name, std::string_view text) {
    return record(named(name), EventValue(std::string(text)));
  }
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Recorded record(std::string_view name, Number value) {
    return record(named(name), number_value(value));
  }

  std::int64_t step();  // begins the next step and returns its number
  void step(std::int64_t number);
  std::int64_t current_step() const noexcept;

  void enable() noexcept;
  void disable() noexcept;
  bool enabled() const noexcept;

  void set_watcher(std::shared_ptr<RunWatcher> watcher);  // from now on; null: none

  void flush();  // with Durability::Disk: everything recorded so far, by any thread, is on the disk when it returns
  void close();  // seals the open segment, trims the journal; idempotent

  const std::filesystem::path& path() const noexcept;  // the run's folder
  std::filesystem::path writer_path() const;           // this writer's folder in it
  std::uint64_t dropped() const noexcept;

  struct [[gnu::visibility("hidden")]] Impl;

 private:
  static EventInfo named(std::string_view name) {
    EventInfo info;
    info.name = name;
    return info;
  }

  std::shared_ptr<Impl> impl_;
};

// From now on SIGTERM closes every open run of this process in order before it ends the process as usual, also while
// its other threads are stuck. Returns false and does nothing where the program handles or ignores SIGTERM itself; a
// handler that it sets later replaces this. Starts a thread that sleeps; in a forked child the first record does.
bool close_runs_on_sigterm();

}  // namespace tenscope
#pragma GCC visibility pop
