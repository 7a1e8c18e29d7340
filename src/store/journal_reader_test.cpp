#include "store/journal_reader.hpp"

#include <gtest/gtest.h>

#include "store/run_fixture.hpp"

namespace tenscope::store {
namespace {

struct Read {
  std::vector<std::string> lines;
  std::vector<std::uint64_t> offsets;
  std::vector<Problem> problems;
  std::uint64_t content_end = 0;
  std::uint64_t torn_bytes = 0;
};

Read read_journal(const fs::path& path) {
  Read result;
  const ReadFile file(path);
  JournalReader reader(file, path, result.problems);
  for (LineBatch batch; reader.next(batch);) {
    for (const LineRef& line : batch.lines) {
      result.lines.emplace_back(batch.text.substr(line.begin, line.size));
      result.offsets.push_back(batch.offset + line.begin);
    }
  }
  result.content_end = reader.content_end();
  result.torn_bytes = reader.torn_bytes();
  return result;
}

class JournalReaderTest : public ::testing::Test {
 protected:
  Read read(std::string_view text) {
    RunFixture::write(run_.journal(), text);
    return read_journal(run_.journal());
  }
  std::string line(std::string_view name) { return run_.line(fmt::format(R"("kind":"value","name":"{}")", name)); }

  RunFixture run_;
};

TEST_F(JournalReaderTest, an_empty_file_has_no_lines) {
  const Read got = read("");
  EXPECT_TRUE(got.lines.empty());
  EXPECT_TRUE(got.problems.empty());
}

TEST_F(JournalReaderTest, zeros_behind_the_content_are_its_end) {
  const std::string content = line("a") + line("b");
  const Read got = read(content + std::string(3 << 20, '\0'));
  EXPECT_EQ(got.lines.size(), 2u);
  EXPECT_TRUE(got.problems.empty());
  EXPECT_EQ(got.content_end, content.size());
  EXPECT_EQ(got.torn_bytes, 0u);
}

TEST_F(JournalReaderTest, a_torn_last_line_is_no_damage) {
  const std::string a = line("a");
  const std::string b = line("b");
  for (std::size_t cut = 1; cut < b.size(); ++cut) {
    for (const std::size_t zeros : {0, 5000}) {
      const Read got = read(a + b.substr(0, cut) + std::string(zeros, '\0'));
      ASSERT_EQ(got.lines.size(), 1u) << cut;
      ASSERT_TRUE(got.problems.empty()) << cut;
      ASSERT_EQ(got.content_end, a.size());
      ASSERT_EQ(got.torn_bytes, cut);
    }
  }
}

TEST_F(JournalReaderTest, a_line_whose_first_byte_was_to_be_written_last_is_torn) {
  std::string b = line("b");
  b[0] = '\0';
  const Read got = read(line("a") + b + std::string(5000, '\0'));
  EXPECT_EQ(got.lines.size(), 1u);
  EXPECT_TRUE(got.problems.empty());
}

TEST_F(JournalReaderTest, every_flipped_byte_is_found_and_the_rest_is_read) {
  const std::string a = line("a"), b = line("b"), c = line("c");
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::string damaged = b;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x04);
    const Read got = read(a + damaged + c);
    ASSERT_EQ(got.problems.size(), 1u) << i;
    ASSERT_EQ(got.problems[0].offset, a.size()) << i;
    ASSERT_GE(got.lines.size(), 1u);
    ASSERT_LE(got.lines.size(), 2u);
    ASSERT_EQ(got.lines[0] + "\n", a);
  }
}

TEST_F(JournalReaderTest, zeros_in_the_middle_are_damage) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += line(fmt::format("v{}", i));
  std::fill_n(text.begin() + 4096, 4096, '\0');
  const Read got = read(text);
  ASSERT_EQ(got.problems.size(), 1u);
  EXPECT_LE(got.problems[0].offset, 4096u);
  EXPECT_GT(got.lines.size(), 200u);
  EXPECT_EQ(got.content_end, text.size());
}

TEST_F(JournalReaderTest, more_than_one_bad_line_at_the_end_is_damage) {
  std::string b = line("b"), c = line("c");
  b[10] ^= 1;
  c[10] ^= 1;
  EXPECT_EQ(read(line("a") + b + c).problems.size(), 1u);
}

TEST_F(JournalReaderTest, lines_longer_than_a_batch_and_across_batches) {
  std::string text = line(std::string(3 << 20, 'x'));
  std::vector<std::uint64_t> offsets{0};
  while (text.size() < (8u << 20)) {
    offsets.push_back(text.size());
    text += line(std::string(text.size() % 1000, 'y'));
  }
  const Read got = read(text);
  EXPECT_EQ(got.offsets, offsets);
  EXPECT_TRUE(got.problems.empty());
  EXPECT_EQ(got.content_end, text.size());
}

}  // namespace
}  // namespace tenscope::store
