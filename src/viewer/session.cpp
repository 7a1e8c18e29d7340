#include "viewer/session.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "compare/run_diff.hpp"
#include "core/old_wait.hpp"
#include "tenscope/error.hpp"
#include "viewer/lost_pages.hpp"
#include "viewer/memory.hpp"

namespace tenscope::viewer {
namespace fs = std::filesystem;
namespace {

// Thrown by what reports progress, to leave a comparison that nobody waits for any more.
struct Stopped {};

bool has_many_writers(const Side& side) { return side.writer_count() > 1; }

// Whether the numbers of its events change as it grows.
bool is_renumbered(const std::shared_ptr<const Side>& side) { return side != nullptr && has_many_writers(*side); }

// What is recorded at the same time goes before what is said of it.
void leave_room_to_others() {
#ifdef __linux__
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);
#endif
}

Finding judge_runs(const State& state, RunDiffOptions options, std::shared_ptr<const Pairs>& pairs,
                   const Catalog::Progress& progress) {
  const Side &a = *state.sides[0], &b = *state.sides[1];
  auto found = std::make_shared<Pairs>(a.event_count(), b.event_count());
  bool is_told = false;
  options.on_progress = progress;
  options.on_pair = [&](const DiffPair& pair) {
    is_told = true;
    found->add(pair);
  };
  // The comparison opens the runs itself. Where one grows, and has several writers, it numbers events otherwise.
  const auto is_moving = [](const Side& side) { return side.is_running() && has_many_writers(side); };
  RunDiff diff = diff_runs(a.path(), b.path(), options);
  diff.a = a.shown_path();
  diff.b = b.shown_path();
  const bool is_by_names = !is_told || is_moving(a) || is_moving(b);
  pairs = is_by_names ? std::make_shared<Pairs>(Pairs::by_names(a, *state.catalogs[0], b, *state.catalogs[1]))
                      : std::move(found);
  return diff;
}

Finding find(const State& state, const RunDiffOptions& options, std::shared_ptr<const Pairs>& pairs,
             const Catalog::Progress& progress) {
  const Side& a = *state.sides[0];
  if (!state.is_pair()) return a.reader() != nullptr ? Finding(check_run(a.path())) : Finding();
  const Side& b = *state.sides[1];
  if (a.reader() != nullptr && b.reader() != nullptr) return judge_runs(state, options, pairs, progress);
  const bool are_files = a.reader() == nullptr && b.reader() == nullptr;
  if (are_files && compare::are_checkpoints(a.path(), b.path())) {
    compare::CheckpointDiff diff =
        compare::diff_checkpoints(a.path(), b.path(), {.map = options.map, .on_progress = progress});
    pairs = std::make_shared<Pairs>(Pairs::of_weights(diff, a, *state.catalogs[0], b, *state.catalogs[1]));
    return diff;
  }
  pairs = std::make_shared<Pairs>(Pairs::by_names(a, *state.catalogs[0], b, *state.catalogs[1]));
  if (!are_files) return {};
  return diff_paths(a.path(), b.path(), {}, [&](std::string_view, std::int64_t done, std::int64_t total) {
    progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0);
  });
}

}  // namespace

Session::Session(const fs::path& a, const fs::path& b, SessionOptions options)
    : options_(std::move(options)), paths_{a, b} {
  const auto begin = Clock::now();
  state_.sides[0] = open_side(0);
  if (!b.empty()) state_.sides[1] = open_side(1);
  // A folder of runs stands for the newest of them: later looks are at that one.
  for (std::size_t i = 0; i < 2; ++i)
    if (state_.sides[i] != nullptr) paths_[i] = state_.sides[i]->path();
  opened_ = Clock::now();
  opening_ = opened_ - begin;
  worker_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

std::shared_ptr<const Side> Session::open_side(std::size_t which) const {
  const fs::path& path = paths_[which];
  const std::string& shown = options_.shown_paths[which];
  return compare::is_run_folder(path) ? open_run_side(path, shown) : open_file_side(path, shown);
}

Session::~Session() {
  worker_.request_stop();
  changed_.notify_all();
  worker_.join();
}

State Session::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Session::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_idle_ && !is_judging_; });
}

void Session::look_again() {
  const std::lock_guard lock(mutex_);
  is_asked_ = true;
  changed_.notify_all();
}

State Session::state_after(std::uint64_t revision) const {
  constexpr std::chrono::milliseconds kMoment{400};
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kMoment, [&] { return state_.revision != revision || (is_idle_ && !is_asked_); });
  return state_;
}

template <class Change>
void Session::publish(Change change) {
  State before;  // outlives the lock; a request may still be at it
  {
    const std::lock_guard lock(mutex_);
    before = state_;
    change(state_);
    ++state_.revision;
    changed_.notify_all();
  }
  before = {};
  give_back_memory();
}

void Session::work(const std::stop_token& stop) {
  try {
    read_and_judge(state(), stop);
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        is_idle_ = true;
        changed_.notify_all();
        if (!changed_.wait(lock, stop, [&] { return is_asked_; })) return;
        is_asked_ = false;
        is_idle_ = false;
      }
      if (std::optional<State> now = reopen()) read_and_judge(std::move(*now), stop);
    }
  } catch (const Stopped&) {  // nobody waits for it
  }
}

// The longer it takes, the less often it is done.
std::optional<State> Session::reopen() {
  State now = state();
  const auto begin = Clock::now();
  if (!now.is_running() || begin - opened_ < 2 * opening_) return std::nullopt;
  bool has_grown = false;
  for (std::size_t i = 0; i < 2; ++i) {
    if (now.sides[i] == nullptr || !now.sides[i]->is_running()) continue;
    try {
      std::shared_ptr<const Side> again = now.sides[i]->reopened();
      if (again->event_count() == 0 && now.sides[i]->event_count() > 0) continue;  // deleted, or being deleted
      has_grown |= again->event_count() != now.sides[i]->event_count() || !again->is_running();
      now.sides[i] = std::move(again);
    } catch (const Error&) {  // it is gone: what was read stays
    }
  }
  opened_ = Clock::now();
  opening_ = opened_ - begin;
  if (!has_grown) return std::nullopt;
  // With several writers events have moved, and what was said of them is no longer found by their places.
  if (std::ranges::any_of(now.sides, is_renumbered)) now.pairs.reset();
  return now;
}

void Session::read_and_judge(State now, const std::stop_token& stop) {
  try {
    read(now, stop);
  } catch (const Stopped&) {
    throw;
  } catch (const std::exception& error) {
    progress_ = 1;
    return publish([&](State& state) { state.failure = error.what(); });
  }
  // Events of several writers are renumbered as they come: what is said of them is of the events of one moment.
  if (now.is_running() && std::ranges::none_of(now.sides, is_renumbered)) return judge_beside(std::move(now));
  judge_ = {};  // it would say what was true before
  if (now.is_running() && now.finding != nullptr && Clock::now() - judged_ < rest()) return;
  judge(std::move(now), stop);
}

void Session::read(State& now, const std::stop_token& stop) {
  const std::size_t count = now.is_pair() ? 2 : 1;
  const bool is_first = !now.has_catalogs();
  for (std::size_t i = 0; i < count; ++i) {
    const auto report = [&](double done) {
      if (stop.stop_requested()) throw Stopped();
      if (is_first) progress_ = 0.3 * (static_cast<double>(i) + done) / static_cast<double>(count);
    };
    now.catalogs[i] = std::make_shared<Catalog>(*now.sides[i], now.catalogs[i].get(), report);
  }
  publish([&](State& state) {
    state.sides = now.sides;
    state.catalogs = now.catalogs;
    if (now.pairs == nullptr) state.pairs.reset();
  });
}

// The health of what is being written is looked at now and then, and once more at its end.
Session::Clock::duration Session::rest() const {
  constexpr int kShare = 8;
  return std::max<Clock::duration>(std::chrono::seconds(2), kShare * judging_);
}

void Session::judge_beside(State now) {
  if (is_judging_ || (now.finding != nullptr && Clock::now() - judged_ < rest())) return;
  is_judging_ = true;
  judge_ = std::jthread([this, now = std::move(now)](const std::stop_token& stop) mutable {
    leave_room_to_others();
    try {
      judge(std::move(now), stop);
    } catch (const Stopped&) {  // nobody waits for it
    }
    const std::lock_guard lock(mutex_);
    is_judging_ = false;
    changed_.notify_all();
  });
}

void Session::judge(State now, const std::stop_token& stop) {
  const auto begin = Clock::now();
  const auto report = [&](double done) {
    if (stop.stop_requested()) throw Stopped();
    progress_ = 0.3 + 0.7 * done;
  };
  std::shared_ptr<const Finding> found;
  std::string failure;
  try {
    const std::size_t lost = lost_page_count();
    found = std::make_shared<Finding>(find(now, options_.diff, now.pairs, report));
    if (lost_page_count() != lost)
      throw Error(ErrorCode::Corrupt, "a file was cut short while it was read: nothing can be said of it");
  } catch (const Stopped&) {
    throw;
  } catch (const std::exception& error) {
    failure = error.what();
    if (now.is_pair() && now.has_catalogs() && now.pairs == nullptr)
      now.pairs =
          std::make_shared<Pairs>(Pairs::by_names(*now.sides[0], *now.catalogs[0], *now.sides[1], *now.catalogs[1]));
  }
  judged_ = Clock::now();
  judging_ = judged_ - begin;
  progress_ = 1;
  publish([&](State& state) {
    if (failure.empty()) state.finding = std::move(found);
    state.failure = std::move(failure);
    state.pairs = std::move(now.pairs);
  });
}

}  // namespace tenscope::viewer
