// What is on the disk when flush() has returned. The judge is a model of a disk that keeps as little as it may: of a
// file the bytes it had when a sync of it began, of a folder the entries it had then, and of all else nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "store/file.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;
using store::ScratchFolder;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

class Disk {
 public:
  Disk() {
    store::set_sync_observer([this](int fd, bool is_done) { observe(fd, is_done); });
  }
  ~Disk() { store::set_sync_observer({}); }

  // Called by the syncing thread before it syncs a file or folder.
  void on_sync(std::function<void(const fs::path&)> action) {
    std::lock_guard guard(mutex_);
    action_ = std::move(action);
  }

  // What a power cut would leave of `folder`, of which itself is there. Written to `to`.
  void restore(const fs::path& folder, const fs::path& to) {
    std::lock_guard guard(mutex_);
    restore(inode_of(folder), to);
  }

 private:
  struct Content {
    std::map<std::string, ino_t> entries;
    std::string bytes;
    bool is_folder = false;
  };

  static ino_t inode_of(const fs::path& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  }

  void observe(int fd, bool is_done) {
    struct stat status{};
    ASSERT_EQ(::fstat(fd, &status), 0);
    std::unique_lock lock(mutex_);
    if (is_done) {
      durable_[status.st_ino] = std::move(pending_[{std::this_thread::get_id(), fd}]);
      return;
    }
    const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
    Content& content = pending_[{std::this_thread::get_id(), fd}];
    content = {.entries = {}, .bytes = {}, .is_folder = S_ISDIR(status.st_mode)};
    if (content.is_folder) {
      for (const auto& entry : fs::directory_iterator(path)) {
        content.entries[entry.path().filename()] = inode_of(entry.path());
      }
    } else {
      std::ifstream file(path, std::ios::binary);
      content.bytes.assign(std::istreambuf_iterator<char>(file), {});
    }
    const auto action = action_;
    lock.unlock();
    if (action) action(path);
  }

  void restore(ino_t inode, const fs::path& to) {
    const auto found = durable_.find(inode);
    if (found == durable_.end() || !found->second.is_folder) {
      std::ofstream(to, std::ios::binary) << (found == durable_.end() ? "" : found->second.bytes);
      return;
    }
    fs::create_directories(to);
    for (const auto& [name, entry] : found->second.entries) restore(entry, to / name);
  }

  std::mutex mutex_;
  std::function<void(const fs::path&)> action_;
  std::map<std::pair<std::thread::id, int>, Content> pending_;
  std::map<ino_t, Content> durable_;
};

// Lets a thread wait at a point until it is told to go on.
class Gate {
 public:
  void wait_here() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_reached_; });
  }
  void open() {
    std::lock_guard guard(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false, is_open_ = false;
};

std::vector<float> ramp(std::size_t size, float start) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), start);
  return values;
}

// `count` of each: small, large and strided tensors, numbers.
void record_all(Run& run, const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    const auto small = ramp(50, static_cast<float>(i)), large = ramp(30'000, static_cast<float>(i));
    const std::vector<std::int64_t> shape{100, 300}, strides{1, 100};
    EXPECT_TRUE(run.record(name + ".small", view(small.data(), {50})).kept);
    EXPECT_TRUE(run.record(name + ".large", view(large.data(), {30'000})).kept);
    EXPECT_TRUE(run.record(name + ".strided", {large.data(), DType::F32, shape, strides}).kept);
    EXPECT_TRUE(run.record(name + ".number", static_cast<double>(i)).kept);
  }
}

void expect_all(const Reader& reader, const std::string& name, int count) {
  for (const auto& problem : reader.problems()) ADD_FAILURE() << problem.file << ": " << problem.reason;
  EXPECT_EQ(reader.find({.name = name + ".number"}).size(), static_cast<std::size_t>(count));
  for (const char* kind : {".small", ".large", ".strided"}) {
    const auto ids = reader.find({.name = name + kind});
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(count)) << kind;
    for (int i = 0; i < count; ++i) {
      const auto data = reader.tensor(ids[i]);  // checks its fingerprint
      EXPECT_EQ(static_cast<const float*>(data.view.data)[0], static_cast<float>(i)) << kind;
    }
  }
}

TEST(PowerCut, what_was_recorded_before_a_flush_is_there) {
  ScratchFolder scratch, after;
  Disk disk;
  const fs::path base = scratch.path() / "new" / "runs";
  Recorder run(base, {.name = "r", .durability = Durability::Disk, .segment_bytes = 400'000});
  record_all(run, "x", 8);  // several sealed segments, and open ones
  run.flush();
  disk.restore(scratch.path(), after.path() / "copy");
  expect_all(Reader(after.path() / "copy" / "new" / "runs" / "r"), "x", 8);
}

TEST(PowerCut, a_flush_covers_a_segment_that_another_thread_is_sealing) {
  ScratchFolder scratch, after;
  Disk disk;
  Recorder run(scratch.path(), {.name = "r", .durability = Durability::Disk, .segment_bytes = 400'000});
  Gate gate;
  std::thread other;
  std::atomic<int> recorded{0};
  disk.on_sync([&](const fs::path& path) {
    if (std::this_thread::get_id() == other.get_id() && path.extension() == ".open") gate.wait_here();
  });
  std::atomic<bool> is_started{false};
  other = std::thread([&] {
    while (!is_started) std::this_thread::yield();
    for (int i = 0; i < 6; ++i) {
      const auto large = ramp(30'000, static_cast<float>(i));
      if (run.record("y", view(large.data(), {30'000})).kept) ++recorded;
    }
  });
  is_started = true;
  gate.wait_until_reached();
  const int count = recorded;
  EXPECT_GT(count, 0);
  run.flush();
  disk.restore(scratch.path(), after.path() / "copy");
  gate.open();
  other.join();
  const Reader reader(after.path() / "copy" / "r");
  const auto ids = reader.find({.name = "y"});
  ASSERT_GE(ids.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(static_cast<const float*>(reader.tensor(ids[i]).view.data)[0], static_cast<float>(i));
  }
}

TEST(PowerCut, a_flush_waits_for_a_thread_that_closes) {
  ScratchFolder scratch, after;
  Disk disk;
  Recorder run(scratch.path(), {.name = "r", .durability = Durability::Disk});
  record_all(run, "x", 3);
  Gate gate;
  disk.on_sync([&](const fs::path&) { gate.wait_here(); });
  std::thread closing([&] { run.close(); });
  gate.wait_until_reached();
  std::atomic<bool> has_returned{false};
  std::thread flushing([&] {
    run.flush();
    has_returned = true;
    disk.restore(scratch.path(), after.path() / "copy");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_returned);
  gate.open();
  flushing.join();
  closing.join();
  const Reader reader(after.path() / "copy" / "r");
  expect_all(reader, "x", 3);
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_TRUE(verify(after.path() / "copy" / "r").empty());
}

TEST(PowerCut, a_flush_covers_the_parts_of_a_ring) {
  ScratchFolder scratch, after;
  Disk disk;
  Recorder run(scratch.path(), {.name = "r", .durability = Durability::Disk, .max_bytes = 4 << 20, .keep = Keep::Last});
  for (int i = 0; i < 3000; ++i) run.record("n", static_cast<double>(i));  // two parts and more
  run.flush();
  disk.restore(scratch.path(), after.path() / "copy");
  const auto live = Reader(run.path()).find({.name = "n"}).size();
  EXPECT_GT(live, 1000u);
  EXPECT_EQ(Reader(after.path() / "copy" / "r").find({.name = "n"}).size(), live);
  EXPECT_TRUE(fs::exists(run.writer_path() / "journal-000000.jsonl"));
}

TEST(PowerCut, a_forked_childs_folder_is_there) {
  ScratchFolder scratch, after;
  Disk disk;
  Recorder run(scratch.path(), {.name = "r", .durability = Durability::Disk});
  Recorder joined(scratch.path(), {.name = "r", .join = true, .durability = Durability::Disk});  // as a child's is made
  record_all(joined, "x", 2);
  joined.flush();
  disk.restore(scratch.path(), after.path() / "copy");
  expect_all(Reader(after.path() / "copy" / "r"), "x", 2);
}

}  // namespace
}  // namespace tenscope
