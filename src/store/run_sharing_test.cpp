// A run that several threads and processes share, and how it ends when a signal ends its process.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "store/read_back.hpp"
#include "store/run_folder.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

using store::ScratchFolder;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

TEST(Run, timestamped_runs_are_unique_under_concurrency) {
  ScratchFolder scratch;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) Recorder(scratch.path()).record("x", 1.0);
    });
  for (auto& thread : threads) thread.join();
  const auto runs = list_runs(scratch.path());
  EXPECT_EQ(runs.size(), 20u);
  for (const auto& run : runs) EXPECT_EQ(Reader(run).find({.name = "x"}).size(), 1u);
}

TEST(Run, threads_record_at_the_same_time) {
  ScratchFolder scratch;
  constexpr int kThreads = 4, kEach = 300;
  Recorder run(scratch.path(), {.segment_bytes = 1 << 20});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto size = static_cast<std::int64_t>(i % 50 == 0 ? 40'000 : 50 + i);
        const auto data = ramp(static_cast<std::size_t>(size), static_cast<float>(t * 1000 + i));
        run.record("t" + std::to_string(t), view(data.data(), {size}));
        run.record("n" + std::to_string(t), static_cast<double>(i));
      }
    });
  std::thread watcher([&] {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Reader(run.path()).problems().empty());
  });
  for (auto& thread : threads) thread.join();
  watcher.join();
  run.close();
  const Reader reader(run.path());
  for (int t = 0; t < kThreads; ++t) {
    const auto ids = reader.find({.name = "t" + std::to_string(t)});
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(kEach));
    for (int i = 0; i < kEach; ++i) {
      EXPECT_EQ(reader.call(ids[i]), i);
      EXPECT_EQ(values_of<float>(reader, ids[i])[0], static_cast<float>(t * 1000 + i));
    }
  }
  expect_healthy(run.path());
}

TEST(Run, close_may_race_with_records) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  std::atomic<int> kept{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto data = ramp(64, static_cast<float>(i));
        kept += run.record("x", view(data.data(), {64})).kept;
      }
    });
  while (kept < 500) std::this_thread::yield();
  run.close();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(run.dropped(), 0u);
  EXPECT_EQ(Reader(run.path()).find({.name = "x"}).size(), static_cast<std::size_t>(kept));
  expect_healthy(run.path());
}

TEST(Run, a_forked_child_gets_a_folder_of_its_own) {
  ScratchFolder scratch;
  const auto data = ramp(100);
  auto run = std::make_unique<Recorder>(scratch.path());
  run->record("parent", view(data.data(), {100}));
  const pid_t child = ::fork();
  if (child == 0) {
    run->step();
    const bool is_kept = run->record("child", view(data.data(), {100})).kept;
    run.reset();
    ::_exit(is_kept ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run->record("parent", 2.0);
  const auto path = run->path();
  run.reset();
  const Reader reader(path);
  ASSERT_TRUE(reader.problems().empty());
  ASSERT_EQ(reader.writers().size(), 2u);
  EXPECT_EQ(reader.writers()[1].folder, "rank-0.pid-" + std::to_string(child));
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_TRUE(reader.writers()[1].closed);
  EXPECT_EQ(values_of<float>(reader, only(reader, {.name = "child"})), data);
  EXPECT_EQ(reader.find({.name = "parent"}).size(), 2u);
  expect_healthy(path);
}

TEST(Run, a_silent_child_leaves_no_trace_and_holds_no_lock) {
  ScratchFolder scratch;
  int to_child[2];
  ASSERT_EQ(::pipe(to_child), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {  // a process that records, forks a child that outlives it, and dies
    Recorder run(scratch.path(), {.name = "r"});
    run.record("x", 1.0);
    if (::fork() == 0) {
      char byte;
      ::close(to_child[1]);
      ::_exit(static_cast<int>(::read(to_child[0], &byte, 1)));
    }
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  const auto folder = scratch.path() / "r" / "rank-0";
  // The child lets go of what it inherited as soon as it runs.
  for (int i = 0; i < 500 && store::is_being_written(folder); ++i) ::usleep(10'000);
  EXPECT_FALSE(store::is_being_written(folder));
  const Reader reader(scratch.path());
  EXPECT_EQ(reader.writers().size(), 1u);
  EXPECT_FALSE(reader.writers()[0].closed);
  EXPECT_EQ(reader.find({.name = "x"}).size(), 1u);
  ::close(to_child[0]);
  ::close(to_child[1]);
}

// SIGALRM ends a process of a test that hangs, whatever a sanitizer holds back: it is none that anybody handles.
constexpr unsigned kHangSeconds = 60;

TEST(Run, sigterm_closes_open_runs_and_still_ends_the_process) {
  ScratchFolder scratch;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHangSeconds);
    Recorder run(scratch.path(), {.name = "r"});
    if (!close_runs_on_sigterm() || !close_runs_on_sigterm()) ::_exit(1);
    run.record("x", 1.0);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(kHangSeconds / 2);
      for (;;) ::usleep(1000);  // not pause(): tsan holds a signal back until the next system call
    }
    ::kill(grandchild, SIGTERM);  // ends by it at once
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) ::_exit(2);
    [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
    for (;;) run.record("y", 1.0);
  }
  ::close(ready[1]);
  char byte;
  const auto got = ::read(ready[0], &byte, 1);
  ::close(ready[0]);
  ::kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(got, 1) << "the child ended early: " << status;
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  const Reader reader(scratch.path() / "r");
  EXPECT_TRUE(reader.problems().empty());
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_EQ(state_text(reader.writers()), "failed (SIGTERM)");
}

// The thread that SIGTERM wakes is ended before a fork and started again after it.
TEST(Run, a_sigterm_that_meets_a_fork_is_not_lost) {
  ScratchFolder scratch;
  for (int i = 0; i < 20; ++i) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kHangSeconds);
      Recorder run(scratch.path());
      if (!close_runs_on_sigterm()) ::_exit(1);
      [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
      for (;;) {
        const pid_t grandchild = ::fork();
        if (grandchild == 0) ::_exit(0);
        ::waitpid(grandchild, nullptr, 0);
      }
    }
    ::close(ready[1]);
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::usleep(static_cast<useconds_t>(1000 + 137 * i));
    ::kill(child, SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  }
}

TEST(Run, the_journal_is_locked_while_the_run_is_open) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  EXPECT_TRUE(store::is_being_written(run.writer_path()));
  {
    const Reader reader(run.path());
  }
  EXPECT_TRUE(store::is_being_written(run.writer_path()));
  run.close();
  EXPECT_FALSE(store::is_being_written(run.writer_path()));
}

TEST(Run, threads_stay_within_the_budget) {
  ScratchFolder scratch;
  constexpr std::uint64_t kBudget = 3 << 20;
  Recorder run(scratch.path(), {.max_bytes = kBudget, .on_warning = [](const std::string&) {}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto data = ramp(50'000 + static_cast<std::size_t>(i), static_cast<float>(100 * t + i));
        run.record("x", view(data.data(), {static_cast<std::int64_t>(data.size())}));
      }
    });
  for (auto& thread : threads) thread.join();
  run.close();
  EXPECT_LE(folder_bytes(run.path()), kBudget + (100u << 10));  // and the journal
  EXPECT_GE(folder_bytes(run.path()), kBudget * 9 / 10);
  EXPECT_TRUE(verify(run.path()).empty());
}

}  // namespace
}  // namespace tenscope
