#include "store/writer_groups.hpp"

#include <gtest/gtest.h>

#include "store/run_fixture.hpp"

namespace tenscope::store {
namespace {

// A run of `ranks` writers that all ended in order, but for those in `crashed`.
class ManyRanks {
 public:
  explicit ManyRanks(int ranks, const std::vector<std::string>& crashed = {}) {
    for (int rank = 0; rank < ranks; ++rank) add(fmt::format("rank-{}", rank), closing());
    for (const std::string& folder : crashed) add(folder, "");
  }
  void add(const std::string& folder, std::string_view journal) {
    fs::create_directories(fixture_.path() / folder);
    RunFixture::write(fixture_.path() / folder / "journal.jsonl", journal);
  }
  static std::string closing(int seq = 0) {
    return sealed_line(fmt::format(R"({{"seq":{},"t":0,"th":1,"kind":"note","name":"closed","step":0)", seq));
  }
  static std::string losing(int events) {
    return sealed_line(fmt::format(R"({{"seq":0,"t":0,"th":1,"kind":"dropped","name":"no space","value":{})", events)) +
           closing(1);
  }
  Reader open() const { return Reader(fixture_.path()); }

 private:
  RunFixture fixture_;
};

std::string text(const Reader& reader, const std::vector<int>& ranks) {
  std::vector<std::string> folders;
  for (const int rank : ranks) folders.push_back(fmt::format("rank-{}", rank));
  return writers_text(folders, reader);
}

TEST(WriterGroups, ranks_are_said_in_few_words) {
  const ManyRanks run(512);
  const Reader reader = run.open();
  std::vector<int> all, even;
  for (int rank = 0; rank < 512; ++rank) {
    all.push_back(rank);
    if (rank % 2 == 0) even.push_back(rank);
  }
  EXPECT_EQ(text(reader, {3}), "rank-3");
  EXPECT_EQ(text(reader, {3, 7}), "ranks 3, 7 of 512");
  EXPECT_EQ(text(reader, {3, 4}), "ranks 3, 4 of 512");
  EXPECT_EQ(text(reader, {0, 1, 2, 5, 8, 9}), "ranks 0-2, 5, 8, 9 of 512");
  EXPECT_EQ(text(reader, {5, 6, 7}), "rank-5 … rank-7");
  EXPECT_EQ(text(reader, all), "rank-0 … rank-511");
  EXPECT_EQ(text(reader, even), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24 and 243 more of 512");
  EXPECT_EQ(text(reader, {3, 600}), "ranks 3, 600 of 601");
  EXPECT_EQ(writers_text({"rank-0", "rank-0.pid-7"}, reader), "rank-0, rank-0.pid-7");
}

TEST(WriterGroups, two_ranks_are_both_named) {
  const ManyRanks run(2);
  EXPECT_EQ(text(run.open(), {0, 1}), "rank-0, rank-1");
}

TEST(WriterGroups, the_worst_end_comes_first) {
  const ManyRanks run(40, {"rank-3", "rank-7"});
  const std::vector<std::pair<std::string, std::string>> expected{{"ranks 3, 7 of 40", "crashed"},
                                                                  {"ranks 0-2, 4-6, 8-39 of 40", "closed"}};
  EXPECT_EQ(writers_by_state(run.open()), expected);
}

TEST(WriterGroups, losses_alike_are_added) {
  ManyRanks run(40);
  for (const char* folder : {"rank-4", "rank-6"}) run.add(folder, ManyRanks::losing(15));
  const std::vector<Loss> losses = folded_losses(run.open());
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(to_string(losses[0]), "ranks 4, 6 of 40: 30 events were lost: no space");
}

}  // namespace
}  // namespace tenscope::store
