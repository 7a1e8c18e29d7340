// Full disks, lost folders, limits: the program goes on, what was lost is counted and said, what was kept is whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/summarize.hpp"
#include "store/file.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

using store::ScratchFolder;
using Recorder = Run;

struct Warnings {
  std::vector<std::string> all;
  RunOptions options(RunOptions base = {}) {
    base.on_warning = [this](const std::string& warning) { all.push_back(warning); };
    return base;
  }
};

struct Counts {
  int kept = 0;
  int dropped = 0;
};

Counts record_many(Run& run, int count, std::int64_t elements) {
  Counts counts;
  std::vector<float> data(static_cast<std::size_t>(elements));
  for (int i = 0; i < count; ++i) {
    std::iota(data.begin(), data.end(), static_cast<float>(i));
    run.record("x", view(data.data(), {elements})).kept ? ++counts.kept : ++counts.dropped;
  }
  return counts;
}

// Everything kept is there and right, and the journal tells how much was not.
void expect_consistent(const Run& run, const Counts& counts) {
  EXPECT_EQ(run.dropped(), static_cast<std::uint64_t>(counts.dropped));
  const Reader reader(run.path());
  for (const auto& problem : reader.problems())
    if (problem.kind == ProblemKind::Damage) ADD_FAILURE() << problem.file << ": " << problem.reason;
  const auto ids = reader.find({.name = "x"});
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(counts.kept));
  for (const auto id : ids) {
    const auto event = reader.event(id);
    EXPECT_EQ(kernels::fingerprint(reader.tensor(id).view), std::get<TensorRecord>(event.value).fingerprint);
  }
  std::int64_t said = 0;
  for (const auto id : reader.find({.kind = EventKind::Dropped})) {
    const auto event = reader.event(id);
    said += std::get<std::int64_t>(event.value);
  }
  EXPECT_EQ(said, counts.dropped);
  EXPECT_EQ(reader.writers()[0].dropped, static_cast<std::uint64_t>(counts.dropped));
  EXPECT_EQ(reader.losses().size(), counts.dropped > 0 ? 1u : 0u);
  EXPECT_EQ(reader.problems().size(), reader.losses().size());
}

class ReserveFault {
 public:
  ReserveFault(std::int64_t allowed_bytes, int error_number) { store::set_reserve_fault(allowed_bytes, error_number); }
  ~ReserveFault() { store::set_reserve_fault(-1, 0); }
};

TEST(Trouble, a_full_disk_drops_and_the_rest_is_whole) {
  for (const std::int64_t elements : {500, 100'000}) {
    ScratchFolder scratch;
    Warnings warnings;
    Recorder run(scratch.path(), warnings.options());
    Counts counts;
    {
      const ReserveFault fault(4 << 20, ENOSPC);
      counts = record_many(run, elements == 500 ? 5000 : 50, elements);
    }
    EXPECT_GT(counts.kept, 0);
    EXPECT_GT(counts.dropped, 0);
    ASSERT_EQ(warnings.all.size(), 1u);
    EXPECT_NE(warnings.all[0].find("No space left"), std::string::npos) << warnings.all[0];
    run.close();
    expect_consistent(run, counts);
    EXPECT_TRUE(Reader(run.path()).writers()[0].closed);
  }
}

TEST(Trouble, a_crash_on_a_full_disk_leaves_at_least_half_of_the_loss_said) {
  ScratchFolder scratch;
  constexpr int kEvents = 100;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Warnings warnings;
    Recorder run(scratch.path(), warnings.options({.name = "r"}));
    store::set_reserve_fault(0, ENOSPC);
    record_many(run, kEvents, 100'000);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const Reader reader(scratch.path() / "r");
  EXPECT_EQ(run_state(reader.writers()), RunState::Crashed);
  ASSERT_EQ(reader.losses().size(), 1u);
  EXPECT_FALSE(reader.losses()[0].is_exact);
  EXPECT_GE(reader.losses()[0].events, kEvents / 2u);
  EXPECT_LE(reader.losses()[0].events, static_cast<std::uint64_t>(kEvents));
  ASSERT_EQ(reader.problems().size(), 1u);
  EXPECT_NE(reader.problems()[0].reason.find("at least"), std::string::npos) << reader.problems()[0].reason;
}

TEST(Trouble, recording_resumes_when_there_is_space_again) {
  ScratchFolder scratch;
  Warnings warnings;
  Recorder run(scratch.path(), warnings.options());
  Counts counts;
  {
    const ReserveFault fault(0, ENOSPC);
    counts = record_many(run, 3, 100'000);
    EXPECT_EQ(counts.kept, 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  const auto later = record_many(run, 3, 100'000);
  EXPECT_EQ(later.dropped, 0);
  run.close();
  expect_consistent(run, {counts.kept + later.kept, counts.dropped + later.dropped});
}

TEST(Trouble, a_run_that_began_on_a_full_disk_records_later) {
  ScratchFolder scratch;
  Warnings warnings;
  std::unique_ptr<Recorder> run;
  {
    const ReserveFault fault(0, ENOSPC);
    run = std::make_unique<Recorder>(scratch.path(), warnings.options());
    EXPECT_FALSE(run->record("n", 1.0).kept);
    EXPECT_FALSE(run->record("n", 1.0).kept);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  EXPECT_TRUE(run->record("n", 2.0).kept);
  run->close();
  EXPECT_EQ(warnings.all.size(), 1u);
  EXPECT_EQ(run->dropped(), 2u);
  const Reader reader(run->path());
  EXPECT_EQ(reader.find({.name = "n"}).size(), 1u);
  ASSERT_EQ(reader.losses().size(), 1u);
  EXPECT_EQ(to_string(reader.losses()[0]), "rank-0: 2 events were lost: no space");
}

TEST(Trouble, a_full_journal_drops_numbers) {
  ScratchFolder scratch;
  Warnings warnings;
  Recorder run(scratch.path(), warnings.options());
  int kept = 0;
  {
    const ReserveFault fault(0, ENOSPC);
    for (int i = 0; i < 2000; ++i) kept += run.record("n", static_cast<double>(i)).kept;
    run.close();
  }
  EXPECT_GT(kept, 100);
  EXPECT_LT(kept, 2000);
  EXPECT_EQ(run.dropped(), static_cast<std::uint64_t>(2000 - kept));
  const Reader reader(run.path());
  EXPECT_EQ(reader.writers()[0].dropped, static_cast<std::uint64_t>(2000 - kept));
  EXPECT_EQ(reader.problems().size(), 1u);
  EXPECT_TRUE(reader.writers()[0].closed);
  EXPECT_EQ(reader.find({.name = "n"}).size(), static_cast<std::size_t>(kept));
}

TEST(Trouble, a_strict_run_throws) {
  ScratchFolder scratch;
  Recorder run(scratch.path(), {.strict = true});
  const ReserveFault fault(0, ENOSPC);
  std::vector<float> data(100'000);
  try {
    run.record("x", view(data.data(), {100'000}));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    EXPECT_NE(std::string(error.what()).find(".safetensors.open"), std::string::npos);
  }
}

// A real small file system, where mounting one is permitted.
class SmallDisk {
 public:
  SmallDisk() : is_mounted_(::mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, "size=6m") == 0) {}
  ~SmallDisk() {
    if (is_mounted_) ::umount2(scratch_.path().c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }
  bool make_read_only() const {
    return ::mount("tmpfs", scratch_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }
  const std::filesystem::path& path() const { return scratch_.path(); }

 private:
  ScratchFolder scratch_;
  bool is_mounted_;
};

TEST(Trouble, a_real_full_disk) {
  for (const std::int64_t elements : {500, 3000, 100'000}) {
    SmallDisk disk;
    if (!disk.is_mounted()) GTEST_SKIP() << "mounting is not permitted here";
    Warnings warnings;
    Recorder run(disk.path(), warnings.options());
    const auto counts = record_many(run, elements == 500 ? 20'000 : elements == 3000 ? 3000 : 100, elements);
    EXPECT_GT(counts.kept, 0);
    EXPECT_GT(counts.dropped, 0);
    EXPECT_EQ(warnings.all.size(), 1u);
    run.close();
    expect_consistent(run, counts);
  }
}

TEST(Trouble, a_read_only_file_system) {
  SmallDisk disk;
  if (!disk.is_mounted() || !disk.make_read_only()) GTEST_SKIP() << "mounting is not permitted here";
  Warnings warnings;
  Recorder run(disk.path(), warnings.options());
  EXPECT_FALSE(run.record("x", 1.0).kept);
  EXPECT_FALSE(run.record("x", 1.0).kept);
  EXPECT_EQ(run.dropped(), 2u);
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("Read-only file system"), std::string::npos) << warnings.all[0];
  EXPECT_THROW(Recorder(disk.path(), {.strict = true}), Error);
}

TEST(Trouble, a_base_that_is_a_file) {
  ScratchFolder scratch;
  const auto path = scratch.path() / "file";
  store::File(path, O_WRONLY | O_CREAT);
  Warnings warnings;
  Recorder run(path, warnings.options());
  EXPECT_FALSE(run.record("x", 1.0).kept);
  run.step();
  run.flush();
  run.close();
  EXPECT_EQ(warnings.all.size(), 1u);
}

TEST(Trouble, a_vanished_folder) {
  ScratchFolder scratch;
  Warnings warnings;
  Recorder run(scratch.path(), warnings.options());
  run.record("x", 1.0);
  std::filesystem::remove_all(run.path());
  const auto counts = record_many(run, 200, 50'000);
  EXPECT_EQ(counts.kept, 0);
  EXPECT_EQ(run.dropped(), 200u);
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("No such file"), std::string::npos) << warnings.all[0];
  run.close();
}

TEST(Trouble, too_many_open_files) {
  ScratchFolder scratch;
  Warnings warnings;
  Recorder run(scratch.path(), warnings.options());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int next = ::open("/dev/null", O_RDONLY);
  rlimit tight{static_cast<rlim_t>(next), before.rlim_max};
  ::close(next);
  ::setrlimit(RLIMIT_NOFILE, &tight);
  const auto counts = record_many(run, 10, 1000);
  const bool number_kept = run.record("n", 1.0).kept;
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(counts.kept, 0);
  EXPECT_TRUE(number_kept);
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("Too many open files"), std::string::npos) << warnings.all[0];
  run.close();
  expect_consistent(run, counts);
}

TEST(Trouble, what_is_too_large_for_the_disk_does_not_hold_up_the_small) {
  ScratchFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{2 << 20, 2 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Warnings warnings;
    Recorder run(scratch.path(), warnings.options({.name = "r"}));
    const auto large = record_many(run, 3, 1 << 20), small = record_many(run, 5, 100);
    run.close();
    ::_exit(large.kept == 0 && small.kept == 5 && warnings.all.size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const auto problems = verify(scratch.path() / "r");  // the three that were too large
  EXPECT_TRUE(problems.size() == 1 && problems[0].kind == ProblemKind::Loss);
}

TEST(Trouble, a_file_size_limit_does_not_kill) {
  ScratchFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{2 << 20, 2 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Warnings warnings;
    Recorder run(scratch.path(), warnings.options({.name = "r"}));
    const auto counts = record_many(run, 30, 50'000);
    run.close();
    ::_exit(counts.kept > 0 && counts.dropped > 0 && warnings.all.size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const Reader reader(scratch.path() / "r");
  EXPECT_EQ(reader.losses().size(), 1u);
  ASSERT_EQ(reader.problems().size(), 1u);
  EXPECT_EQ(reader.problems()[0].kind, ProblemKind::Loss);
}

}  // namespace
}  // namespace tenscope
