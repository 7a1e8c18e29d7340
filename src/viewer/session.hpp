#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "compare/checkpoint_diff.hpp"
#include "compare/value_diff.hpp"
#include "tenscope/check.hpp"
#include "tenscope/diff.hpp"
#include "viewer/catalog.hpp"
#include "viewer/pairs.hpp"
#include "viewer/side.hpp"

namespace tenscope::viewer {

// What comparing or looking over has found; monostate: nothing is to be found out, as of a single file.
using Finding = std::variant<std::monostate, RunDiff, CheckReport, ValueDiff, compare::CheckpointDiff>;

// What is known at a moment. Requests work with one, whatever the worker finds meanwhile.
struct State {
  std::uint64_t revision = 0;
  std::array<std::shared_ptr<const Side>, 2> sides;  // the second may be missing
  std::array<std::shared_ptr<const Catalog>, 2> catalogs;
  std::shared_ptr<const Pairs> pairs;      // with two sides, once they are compared
  std::shared_ptr<const Finding> finding;  // null while it is being worked out
  std::string failure;                     // why there will be no finding

  bool is_pair() const { return sides[1] != nullptr; }
  bool has_catalogs() const { return catalogs[0] != nullptr && (!is_pair() || catalogs[1] != nullptr); }
  bool is_running() const { return sides[0]->is_running() || (is_pair() && sides[1]->is_running()); }
};

struct SessionOptions {
  RunDiffOptions diff;                     // how two runs are compared; its callbacks are not used
  std::array<std::string, 2> shown_paths;  // as people know them; empty: as they are opened
};

// One or two things that are looked at. A thread of its own reads and compares them, and follows runs that grow. While
// a run grows another thread looks for what is wrong with it, so that following need not wait for that.
class Session {
 public:
  // Paths of runs or files; `b` may be empty. Throws where one cannot be opened.
  Session(const std::filesystem::path& a, const std::filesystem::path& b, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  State state() const;
  double progress() const { return progress_.load(); }  // of what is being worked out, 0 to 1
  void wait() const;                                    // until everything of this moment is worked out
  // Asks for a look whether a run has grown; returns at once.
  void look_again();
  // What is known once that is more than at `revision`, or there is nothing more, or a moment has passed.
  State state_after(std::uint64_t revision) const;

 private:
  using Clock = std::chrono::steady_clock;

  void work(const std::stop_token& stop);
  void read_and_judge(State now, const std::stop_token& stop);
  void read(State& now, const std::stop_token& stop);
  void judge(State now, const std::stop_token& stop);
  void judge_beside(State now);   // by a thread of its own, where that is not at it already and it is time to
  Clock::duration rest() const;   // between two looks for what is wrong
  std::optional<State> reopen();  // with what is being written opened anew; nothing: nothing has come
  template <class Change>
  void publish(Change change);

  std::shared_ptr<const Side> open_side(std::size_t which) const;

  SessionOptions options_;
  std::array<std::filesystem::path, 2> paths_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  State state_;
  bool is_asked_ = false, is_idle_ = false;
  std::atomic<bool> is_judging_{false};  // by the judge
  std::atomic<double> progress_{0};
  Clock::duration opening_{};  // how long it took the last time
  Clock::time_point opened_;
  Clock::duration judging_{};  // these two belong to the judge while it is at it
  Clock::time_point judged_;
  std::jthread judge_, worker_;  // last: they use the others
};

}  // namespace tenscope::viewer
