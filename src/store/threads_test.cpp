// Several threads, processes and failures at once: what is kept is whole, and a sealed segment says what the journal
// says.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "store/file.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "store/scratch_folder.hpp"
#include "store/segment_header.hpp"
#include "store/segment_writer.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

using store::ScratchFolder;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

std::vector<float> ramp(std::size_t size, float start) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), start);
  return values;
}

void expect_whole(const std::filesystem::path& run) {
  for (const auto& problem : verify(run))
    if (problem.kind != ProblemKind::Loss) ADD_FAILURE() << problem.file << ": " << problem.reason;
}

// A large tensor is written before it is known whether its bytes are there already; the places of those that are come
// back in any order, between places that are kept.
TEST(Threads, large_tensors_of_which_some_are_known_leave_whole_segments) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.segment_bytes = 64 << 20});
  constexpr int kThreads = 3, kEach = 14;
  constexpr std::size_t kLarge = (8 << 20) / 4 + 5;
  const auto known = ramp(kLarge, -1);
  run.record("known", view(known.data(), {kLarge}));
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const std::string name = "t" + std::to_string(t);
      for (int i = 0; i < kEach; ++i) {
        const auto start = static_cast<float>(1000 * t + i);
        const auto large = i % 3 == 2 ? known : ramp(kLarge + static_cast<std::size_t>(i % 2), start);
        const auto small = ramp(7 + static_cast<std::size_t>(i), start);
        if (i % 3 == 2) together.arrive_and_wait();
        const auto recorded = run.record(name, view(large.data(), {static_cast<std::int64_t>(large.size())}));
        EXPECT_EQ(recorded.duplicate, i % 3 == 2);
        EXPECT_TRUE(run.record(name + ".small", view(small.data(), {static_cast<std::int64_t>(small.size())})).kept);
      }
    });
  for (auto& thread : threads) thread.join();
  run.close();
  expect_whole(run.path());
  const Reader reader(run.path());
  for (int t = 0; t < kThreads; ++t) {
    const auto ids = reader.find({.name = "t" + std::to_string(t)});
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(kEach));
    for (int i = 0; i < kEach; ++i) {
      const auto expected =
          i % 3 == 2 ? known : ramp(kLarge + static_cast<std::size_t>(i % 2), static_cast<float>(1000 * t + i));
      const auto data = reader.tensor(ids[i]);
      ASSERT_EQ(size_bytes(data.view), expected.size() * 4);
      EXPECT_EQ(std::memcmp(data.view.data, expected.data(), expected.size() * 4), 0);
    }
  }
}

TEST(Threads, the_note_that_a_run_is_closed_is_its_last_line) {
  for (int round = 0; round < 30; ++round) {
    ScratchFolder scratch;
    Recorder run(scratch.path());
    std::atomic<int> kept{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        const std::vector<float> data(100);
        for (int i = 0; run.enabled(); ++i) {
          auto values = data;
          values[0] = static_cast<float>(i);
          kept += run.record("x", view(values.data(), {100})).kept;
          kept += run.record("n", 1.0).kept;
        }
      });
    while (kept < 20) std::this_thread::yield();
    run.close();
    for (auto& thread : threads) thread.join();
    const Reader reader(run.path());
    ASSERT_TRUE(reader.writers()[0].closed);
    ASSERT_EQ(reader.find({.kind = EventKind::Value}).size(), static_cast<std::size_t>(kept));
    expect_whole(run.path());
  }
}

// The bytes find room in the segment, their line none in the journal.
TEST(Threads, a_tensor_whose_line_could_not_be_written_is_not_in_its_segment) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.on_warning = [](const std::string&) {}});
  auto data = ramp(10, 0);
  EXPECT_TRUE(run.record("x", view(data.data(), {10})).kept);
  store::set_reserve_fault(0, ENOSPC);
  const std::string text(200, 'x');
  while (run.record("n", text).kept) continue;  // fills what the journal has reserved
  store::set_reserve_fault(-1, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  store::set_reserve_fault(0, ENOSPC);
  data[0] = 42;
  EXPECT_FALSE(run.record("x", view(data.data(), {10})).kept);
  store::set_reserve_fault(-1, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  const auto again = run.record("x", view(data.data(), {10}));
  EXPECT_TRUE(again.kept);
  EXPECT_FALSE(again.duplicate);
  run.close();
  expect_whole(run.path());
}

// RLIMIT_FSIZE lets a write stop half-way.
TEST(Threads, a_write_that_fails_half_way_leaves_the_others) {
  ScratchFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    std::atomic<std::int64_t> next_number{0};
    store::SegmentWriter writer(scratch.path(), {.next_number = &next_number});
    const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    const std::string before(100'000, 'b'), lost(3 << 20, 'l'), after(100'000, 'a');
    const auto reserve = [&](const std::string& name, const std::string& bytes) {
      store::HeaderEntry entry;
      encode_header_entry(entry, name, 0, 0, DType::U8, std::vector{static_cast<std::int64_t>(bytes.size())});
      return writer.reserve(bytes.size(), DType::U8, entry, store::SegmentWriter::Access::Write);
    };
    store::Slot first = reserve("before", before), second = reserve("lost", lost), third = reserve("after", after);
    writer.write(first, bytes_of(before));
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit tight{1 << 20, limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
    bool has_thrown = false;
    try {
      writer.write(second, bytes_of(lost));
    } catch (const store::IoError&) {
      has_thrown = true;
    }
    ::setrlimit(RLIMIT_FSIZE, &limit);
    writer.write(third, bytes_of(after));
    writer.commit(std::move(third));
    writer.abandon(std::move(second));
    writer.commit(std::move(first));
    writer.close();
    ::_exit(has_thrown ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const store::ReadMapping mapping(scratch.path() / "000000.safetensors");
  const auto items = store::read_segment_header(mapping.bytes());
  EXPECT_EQ(items.size(), 3u);
  for (const auto& [key, letter] : {std::pair("before@0#0", 'b'), {"after@0#0", 'a'}}) {
    const auto& item = items.at(key);
    const std::string expected(100'000, letter);
    ASSERT_EQ(item.end - item.begin, expected.size());
    EXPECT_EQ(std::memcmp(mapping.bytes().data() + item.begin, expected.data(), expected.size()), 0);
  }
}

// A child that is forked while a file is being closed must not keep its lock.
TEST(Threads, a_fork_at_any_moment_keeps_no_lock) {
  ScratchFolder scratch;
  std::atomic<bool> is_done{false};
  std::atomic<int> locked{0};
  std::thread recording([&] {
    for (int i = 0; i < 150; ++i) {
      Recorder run(scratch.path(), {.name = "r" + std::to_string(i)});
      run.record("x", 1.0);
      run.close();
      locked += store::is_being_written(run.writer_path());
    }
    is_done = true;
  });
  std::vector<pid_t> children;
  while (!is_done) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::usleep(100'000);
      ::_exit(0);
    }
    children.push_back(child);
    ::usleep(300);
    if (children.size() > 200) {
      ::waitpid(children.front(), nullptr, 0);
      children.erase(children.begin());
    }
  }
  recording.join();
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  EXPECT_EQ(locked, 0);
}

TEST(Threads, a_child_that_closes_while_it_opens_its_folder_closes_it) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.name = "r"});
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::thread first([&] { run.record("x", 1.0); });
      run.close();
      first.join();
      ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }
  run.close();
  const Reader reader(run.path());
  for (const auto& writer : reader.writers()) EXPECT_TRUE(writer.closed) << writer.folder;
  expect_whole(run.path());
}

}  // namespace
}  // namespace tenscope
