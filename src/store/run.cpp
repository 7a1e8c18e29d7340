// Overview. A Run owns a Writer for the process it was made in. A forked child sees by the fork generation that the
// writer is its parent's, leaves it alone for good (its locks may be held by threads that do not exist here) and gets
// one of its own, in a folder of its own, at its first record. Trouble ends here: it is counted, told once per kind
// and, where possible, written to the journal; only a strict run throws.
#include "tenscope/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/fork_guard.hpp"
#include "store/new_run.hpp"
#include "store/sigterm.hpp"
#include "store/strict.hpp"
#include "store/writer.hpp"

namespace tenscope {
namespace {

using store::ForkGuard;
using store::IoError;
using store::Trouble;
using store::Writer;

// A process' writer, opened when first needed.
struct Process {
  const std::uint32_t generation = ForkGuard::generation();
  std::mutex mutex;
  std::filesystem::path folder;
  std::unique_ptr<Writer> owner;
  std::atomic<Writer*> writer{nullptr};
  std::optional<IoError> trouble;  // why it could not be opened, and when to try again
  std::chrono::steady_clock::time_point retry_at;
};

Trouble trouble_of(const std::exception& error) noexcept {
  const auto* io = dynamic_cast<const IoError*>(&error);
  return io != nullptr ? io->trouble() : Trouble::OtherIo;
}

}  // namespace

struct Run::Impl {
  RunOptions options;
  std::filesystem::path run_path;
  std::filesystem::path first_writer_path;
  const std::uint32_t first_generation = ForkGuard::generation();
  std::atomic<Process*> process{nullptr};
  std::atomic<bool> is_active{false};  // enabled and not closed: the one flag that a disabled call looks at
  std::atomic<bool> is_closed{false};
  std::atomic<std::int64_t> step{0};
  std::atomic<std::uint64_t> dropped{0};
  std::array<std::atomic<std::uint64_t>, store::kTroubleCount> unsaid_drops{};  // while there is no journal to say them
  std::array<std::atomic<bool>, store::kTroubleCount> has_warned{};
  std::atomic<RunWatcher*> watcher{nullptr};
  std::vector<std::shared_ptr<RunWatcher>> watchers;  // all there were: another thread may still be asking one
  std::mutex watchers_mutex;

  Impl(const std::filesystem::path& base, RunOptions given);
  ~Impl();

  Process& current_process();
  Writer& writer() {
    Process* current = process.load(std::memory_order_acquire);
    if (current->generation == ForkGuard::generation()) [[likely]] {
      if (Writer* open = current->writer.load(std::memory_order_acquire)) [[likely]]
        return *open;
    }
    return open_writer();
  }
  Writer& open_writer();
  Writer* existing_writer() noexcept;
  Writer::Options writer_options();

  void warn(Trouble trouble, const std::string& message);
  void drop(Trouble trouble, const std::string& message) noexcept;
  template <class Action>
  Recorded guarded(Action&& action);
  void begin_step(std::int64_t number);
  void close();
};

Run::Impl::Impl(const std::filesystem::path& base, RunOptions given) : options(std::move(given)) {
  options.strict = options.strict || store::is_strict_by_environment();
  auto own_process = std::make_unique<Process>();
  process = own_process.get();
  is_active = true;
  try {
    const auto folder = store::make_run_folder(std::filesystem::absolute(base), options);
    run_path = folder.run;
    first_writer_path = folder.writer;
    open_writer();
  } catch (const std::exception& error) {
    const auto* mistake = dynamic_cast<const Error*>(&error);
    if (options.strict || (mistake != nullptr && mistake->code() == ErrorCode::InvalidArgument)) throw;
    if (first_writer_path.empty()) {
      run_path = base / options.name;
      own_process->trouble = IoError(trouble_of(error), error.what());
      own_process->retry_at = std::chrono::steady_clock::time_point::max();
    }
    warn(trouble_of(error), fmt::format("recording is off: {}", error.what()));
  }
  own_process.release();
}

Run::Impl::~Impl() {
  // A parent's process state stays: its mutexes may be locked for ever here.
  Process* current = process.load();
  if (current->generation == ForkGuard::generation()) delete current;
}

Process& Run::Impl::current_process() {
  Process* current = process.load(std::memory_order_acquire);
  while (current->generation != ForkGuard::generation()) {
    auto own = std::make_unique<Process>();
    if (process.compare_exchange_strong(current, own.get())) current = own.release();
  }
  return *current;
}

Writer& Run::Impl::open_writer() {
  Process& current = current_process();
  std::lock_guard guard(current.mutex);
  if (current.owner) return *current.owner;
  if (is_closed) throw Error(ErrorCode::Io, "cannot record: the run is closed");
  const auto now = std::chrono::steady_clock::now();
  if (current.trouble && now < current.retry_at) throw IoError(*current.trouble);
  if (first_writer_path.empty()) {
    throw IoError(Trouble::Vanished, fmt::format("cannot record: its folder was not made: {}", run_path.string()));
  }
  try {
    const bool is_first = current.generation == first_generation;
    if (current.folder.empty()) {
      current.folder = is_first ? first_writer_path : store::make_child_folder(run_path, options);
    }
    current.owner = std::make_unique<Writer>(current.folder, writer_options(), step);
  } catch (const IoError& error) {
    current.trouble = error;
    current.retry_at = now + std::chrono::seconds(1);
    throw;
  }
  for (std::size_t i = 0; i < unsaid_drops.size(); ++i)
    for (auto count = unsaid_drops[i].exchange(0); count > 0; --count)
      current.owner->count_dropped(static_cast<Trouble>(i));
  current.writer.store(current.owner.get(), std::memory_order_release);
  return *current.owner;
}

Writer* Run::Impl::existing_writer() noexcept {
  Process* current = process.load(std::memory_order_acquire);
  return current->generation == ForkGuard::generation() ? current->writer.load(std::memory_order_acquire) : nullptr;
}

Writer::Options Run::Impl::writer_options() {
  return {.durability = options.durability,
          .max_bytes = options.max_bytes,
          .keep = options.keep,
          .segment_bytes = options.segment_bytes,
          .on_trouble = [this](Trouble trouble, const std::string& message) { warn(trouble, message); }};
}

void Run::Impl::warn(Trouble trouble, const std::string& message) {
  if (has_warned[static_cast<std::size_t>(trouble)].exchange(true)) return;
  if (options.on_warning) {
    try {
      options.on_warning(message);
    } catch (...) {  // must not reach the program
    }
    return;
  }
  const auto line = fmt::format("tenscope: {}\n", message);
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

void Run::Impl::drop(Trouble trouble, const std::string& message) noexcept {
  ++dropped;
  if (Writer* open = existing_writer())
    open->count_dropped(trouble);
  else
    ++unsaid_drops[static_cast<std::size_t>(trouble)];
  if (!options.strict) warn(trouble, message);
}

template <class Action>
Recorded Run::Impl::guarded(Action&& action) {
  if (store::sigterm_thread_is_due.load(std::memory_order_relaxed)) [[unlikely]]
    store::restart_sigterm_thread();
  try {
    return action(writer());
  } catch (const IoError& error) {
    if (is_closed) return {};
    drop(error.trouble(), fmt::format("events are dropped: {}", error.what()));
    if (options.strict) throw;
  } catch (const Error& error) {
    if (is_closed) return {};
    drop(Trouble::BadTensor, error.what());
    if (options.strict) throw;
  } catch (const std::exception& error) {
    drop(Trouble::OtherIo, fmt::format("events are dropped: {}", error.what()));
    if (options.strict) throw;
  }
  return {};
}

void Run::Impl::begin_step(std::int64_t number) {
  if (!is_active.load(std::memory_order_relaxed)) return;
  guarded([&](Writer& open) {
    open.step(number);
    return Recorded{};
  });
}

void Run::Impl::close() {
  is_closed = true;
  is_active = false;
  Process* current = process.load(std::memory_order_acquire);
  if (current->generation != ForkGuard::generation()) return;
  Writer* open = nullptr;
  {
    std::lock_guard guard(current->mutex);  // another thread may be about to open it
    open = current->owner.get();
  }
  if (open == nullptr) return;
  try {
    open->close();
  } catch (const std::exception& error) {
    warn(trouble_of(error), fmt::format("the run was not closed in order: {}", error.what()));
    if (options.strict) throw;
  }
}

namespace {

// Every run of this process, guarded by ForkGuard's lock, which a fork leaves usable.
std::vector<std::weak_ptr<Run::Impl>>& open_runs() {
  static auto* runs = new std::vector<std::weak_ptr<Run::Impl>>;
  return *runs;
}

void list_run(const std::shared_ptr<Run::Impl>& impl) {
  const auto guard = ForkGuard::lock();
  std::erase_if(open_runs(), [](const auto& run) { return run.expired(); });
  open_runs().push_back(impl);
}

void close_terminated_runs() {
  std::vector<std::shared_ptr<Run::Impl>> runs;
  {
    const auto guard = ForkGuard::lock();
    for (const auto& run : open_runs()) runs.push_back(run.lock());
  }
  for (const auto& run : runs) {
    try {
      if (!run || run->is_closed) continue;
      if (run->existing_writer() != nullptr)
        run->guarded([](Writer& writer) {
          return writer.record({.kind = EventKind::Note, .name = kSignalNote}, EventValue(std::string("SIGTERM")));
        });
      run->close();
    } catch (const std::exception&) {  // the process is about to end; the run is readable all the same
    }
  }
}

}  // namespace

bool close_runs_on_sigterm() { return store::at_sigterm(&close_terminated_runs); }

Run::Run(const std::filesystem::path& base, RunOptions options)
    : impl_(std::make_shared<Impl>(base, std::move(options))) {
  list_run(impl_);
}

Run::~Run() {
  try {
    close();
  } catch (...) {
  }
}

Recorded Run::record(const EventInfo& info, const TensorView& tensor, Values values) {
  if (!impl_->is_active.load(std::memory_order_relaxed)) return {};
  RunWatcher* const watcher = impl_->watcher.load(std::memory_order_acquire);
  if (impl_->options.values == Values::Stats) values = Values::Stats;
  return impl_->guarded([&](Writer& writer) { return writer.record(info, tensor, values, watcher); });
}

Recorded Run::record(const EventInfo& info, const EventValue& value) {
  if (!impl_->is_active.load(std::memory_order_relaxed)) return {};
  return impl_->guarded([&](Writer& writer) {
    if (std::holds_alternative<TensorRecord>(value)) {
      throw Error(ErrorCode::InvalidArgument, "cannot record: a TensorRecord is what was read, not a value to record");
    }
    return writer.record(info, value, impl_->watcher.load(std::memory_order_acquire));
  });
}

void Run::set_watcher(std::shared_ptr<RunWatcher> watcher) {
  std::lock_guard guard(impl_->watchers_mutex);
  impl_->watchers.push_back(std::move(watcher));
  impl_->watcher.store(impl_->watchers.back().get(), std::memory_order_release);
}

std::int64_t Run::step() {
  const auto number = impl_->step.fetch_add(1) + 1;
  impl_->begin_step(number);
  return number;
}

void Run::step(std::int64_t number) {
  impl_->step = number;
  impl_->begin_step(number);
}

std::int64_t Run::current_step() const noexcept { return impl_->step.load(std::memory_order_relaxed); }

void Run::enable() noexcept {
  if (!impl_->is_closed) impl_->is_active = true;
}
void Run::disable() noexcept { impl_->is_active = false; }
bool Run::enabled() const noexcept { return impl_->is_active.load(std::memory_order_relaxed); }

void Run::flush() {
  // A run that another thread is closing is waited for.
  if (impl_->options.durability != Durability::Disk || impl_->existing_writer() == nullptr) return;
  impl_->guarded([](Writer& writer) {
    writer.sync();
    return Recorded{};
  });
}

void Run::close() { impl_->close(); }

const std::filesystem::path& Run::path() const noexcept { return impl_->run_path; }

std::filesystem::path Run::writer_path() const {
  const Writer* writer = impl_->existing_writer();
  return writer != nullptr ? writer->folder() : impl_->first_writer_path;
}

std::uint64_t Run::dropped() const noexcept { return impl_->dropped.load(); }

}  // namespace tenscope
