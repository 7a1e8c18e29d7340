#include <gtest/gtest.h>
#include <sys/resource.h>

#include "store/run_fixture.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {
namespace {

constexpr std::string_view kRunJson = R"({"tenscope_format":1,"started_ns":1,"world_size":1})";

std::string event_line(int seq, std::string_view name, int value) {
  return sealed_line(fmt::format(R"({{"seq":{},"t":{},"th":1,"kind":"value","name":"{}","step":{},"call":0,"value":{})",
                                 seq, seq, name, seq, value));
}

std::string closing_line(int seq) {
  return sealed_line(fmt::format(R"({{"seq":{},"t":{},"th":1,"kind":"note","name":"closed","step":0)", seq, seq));
}

// What a writer leaves behind: by `rank` whole, crashed, damaged at the start, with a gap, with losses, or nothing.
std::string journal_of(int rank) {
  std::string text;
  for (int seq = 0; seq < 20; ++seq)
    if (rank % 7 != 3 || seq != 5)
      text += event_line(seq, fmt::format("rank{}.{}", rank % 3, seq % 4), 100 * rank + seq);
  if (rank % 7 == 2) text[10] ^= 1;
  if (rank % 7 == 4) text += sealed_line(R"({"seq":20,"t":0,"th":1,"kind":"dropped","name":"no space","value":3)");
  if (rank % 7 == 5) return "";
  if (rank % 7 != 1) text += closing_line(rank % 7 == 4 ? 21 : 20);
  return text;
}

void write_writer(const fs::path& run, const std::string& folder, std::string_view journal) {
  fs::create_directories(run / folder);
  RunFixture::write(run / folder / "journal.jsonl", journal);
}

std::vector<std::string> told(const Reader& reader) {
  std::vector<std::string> lines;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    const Event event = reader.event(id);
    const auto* value = std::get_if<std::int64_t>(&event.value);
    lines.push_back(fmt::format("{} {} {} {} {}", reader.writers()[reader.writer_index(id)].folder, reader.name(id),
                                event.name, event.seq, value == nullptr ? -1 : *value));
  }
  return lines;
}

std::vector<std::string> problems_of(const Reader& reader) {
  std::vector<std::string> lines;
  for (const Problem& problem : reader.problems())
    lines.push_back(fmt::format("{} {} {} {}", problem.file.lexically_proximate(reader.path()).string(), problem.offset,
                                problem.reason, static_cast<int>(problem.kind)));
  for (const Loss& loss : reader.losses()) lines.push_back(to_string(loss));
  return lines;
}

class OpenFileLimit {
 public:
  explicit OpenFileLimit(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const struct rlimit tight{files, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~OpenFileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  struct rlimit before_;
};

TEST(ManyWriters, read_together_are_as_read_alone) {
  constexpr int kRanks = 40;
  RunFixture fixture(kRunJson);
  std::vector<std::string> folders, events, problems, losses;
  for (int rank = 0; rank < kRanks; ++rank) {
    folders.push_back(fmt::format("rank-{}", rank));
    if (rank % 10 == 0) folders.push_back(fmt::format("rank-{}.pid-{}", rank, 4000 + rank));
  }
  for (const std::string& folder : folders) {
    const std::string journal = journal_of(parse_writer_folder(folder)->rank);
    write_writer(fixture.path(), folder, journal);
    const fs::path alone = fixture.base() / "alone" / folder;
    write_writer(alone, folder, journal);
    RunFixture::write(alone / "run.json", sealed_line(kRunJson.substr(0, kRunJson.size() - 1)));
    const Reader reader(alone);
    for (std::string& line : told(reader)) events.push_back(std::move(line));
    for (std::string& line : problems_of(reader))
      if (line.find("no such folder") == line.npos)  // that rank 0 is missing there
        (line.starts_with(folder + ":") ? losses : problems).push_back(std::move(line));
  }
  problems.insert(problems.end(), losses.begin(), losses.end());
  for (int round = 0; round < 5; ++round) {
    const Reader reader(fixture.path());
    ASSERT_EQ(reader.writers().size(), folders.size());
    for (std::size_t i = 0; i < folders.size(); ++i) EXPECT_EQ(reader.writers()[i].folder, folders[i]);
    EXPECT_EQ(told(reader), events);
    EXPECT_EQ(problems_of(reader), problems);
  }
}

TEST(ManyWriters, a_damaged_start_explains_the_gap_on_every_rank) {
  RunFixture fixture(kRunJson);
  for (const char* folder : {"rank-0", "rank-1"}) write_writer(fixture.path(), folder, journal_of(2));
  const Reader reader(fixture.path());
  EXPECT_EQ(reader.problems().size(), 2u) << fmt::format("{}", fmt::join(problems_of(reader), "\n"));
}

TEST(ManyWriters, are_found_by_rank) {
  RunFixture fixture(kRunJson);
  for (const char* folder : {"rank-0", "rank-1", "rank-1.pid-7", "rank-2"})
    write_writer(fixture.path(), folder, journal_of(0));
  const Reader reader(fixture.path());
  const std::vector<EventId> found = reader.find({.name = "rank0.1", .step = 5, .rank = 1});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(reader.writers()[reader.writer_index(found[0])].folder, "rank-1");
  EXPECT_EQ(reader.writers()[reader.writer_index(found[1])].folder, "rank-1.pid-7");
  EXPECT_TRUE(reader.find({.rank = 3}).empty());
  EXPECT_EQ(reader.find({}).size(), reader.event_count());
}

TEST(ManyWriters, need_few_open_files) {
  constexpr int kRanks = 200;
  RunFixture fixture(kRunJson);
  for (int rank = 0; rank < kRanks; ++rank) write_writer(fixture.path(), fmt::format("rank-{}", rank), journal_of(0));
  const OpenFileLimit limit(64);
  const Reader reader(fixture.path()), another(fixture.path());
  EXPECT_TRUE(reader.problems().empty()) << reader.problems()[0].reason;
  EXPECT_TRUE(another.problems().empty());
  EXPECT_EQ(told(reader), told(another));
  EXPECT_EQ(reader.event_count(), 21u * kRanks);
}

TEST(ManyWriters, are_read_on_where_a_ring_moved_their_journals) {
  constexpr int kRanks = 20;
  RunFixture fixture(R"({"tenscope_format":1,"started_ns":1,"keep":"last"})");
  for (int rank = 0; rank < kRanks; ++rank) write_writer(fixture.path(), fmt::format("rank-{}", rank), journal_of(0));
  const OpenFileLimit limit(64);  // so that none of them is kept open
  const Reader reader(fixture.path());
  const std::vector<std::string> before = told(reader);
  for (int rank = 0; rank < kRanks; ++rank) {
    const fs::path folder = fixture.path() / fmt::format("rank-{}", rank);
    fs::rename(folder / "journal.jsonl", folder / "journal-000000.jsonl");
    RunFixture::write(folder / "journal.jsonl", event_line(21, "later", 1));
  }
  EXPECT_EQ(told(reader), before);
  fs::remove(fixture.path() / "rank-3" / "journal-000000.jsonl");
  EXPECT_EQ(reader.event(reader.find({.rank = 4})[0]).seq, 0u);
  EXPECT_THROW(reader.event(reader.find({.rank = 3})[0]), Error);
}

}  // namespace
}  // namespace tenscope::store
