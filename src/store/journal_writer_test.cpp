#include "store/journal_writer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/scratch_folder.hpp"

namespace tenscope::store {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(0, text.find('\0'));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    EXPECT_NE(end, std::string::npos) << "a torn line";
    if (end == std::string::npos) break;
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void expect_sum(const std::string& line) {
  const auto at = line.rfind(",\"sum\":");
  ASSERT_NE(at, std::string::npos) << line;
  EXPECT_EQ(line.substr(at), fmt::format(R"(,"sum":"{:016x}"}})", XXH3_64bits(line.data(), at)));
}

TEST(JournalWriter, lines_are_numbered_summed_and_visible_at_once) {
  ScratchFolder scratch;
  JournalWriter journal(scratch.path(), {});
  EXPECT_EQ(journal.append(R"(,"kind":"note")"), 0u);
  EXPECT_EQ(journal.append(R"(,"kind":"value")"), 1u);
  const auto lines = lines_of(content(scratch.path() / "journal.jsonl"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(std::regex_match(lines[1], std::regex(R"re(\{"seq":1,"t":\d+,"kind":"value","sum":"[0-9a-f]{16}"\})re")));
  for (const auto& line : lines) expect_sum(line);
}

TEST(JournalWriter, close_trims_and_is_idempotent) {
  ScratchFolder scratch;
  JournalWriter journal(scratch.path(), {});
  journal.append(",\"kind\":\"note\"");
  const auto size = journal.size_bytes();
  EXPECT_GT(std::filesystem::file_size(scratch.path() / "journal.jsonl"), size);
  journal.close();
  journal.close();
  EXPECT_EQ(std::filesystem::file_size(scratch.path() / "journal.jsonl"), size);
  EXPECT_THROW(journal.append(",\"kind\":\"note\""), Error);
}

TEST(JournalWriter, lines_of_any_length_cross_every_chunk) {
  ScratchFolder scratch;
  JournalWriter journal(scratch.path(), {});
  std::vector<std::size_t> sizes{1, 100, 60'000, 70'000, 5'000'000, 10};
  for (int i = 0; i < 400; ++i) sizes.push_back(static_cast<std::size_t>(i * 97 % 9000));
  for (const auto size : sizes) journal.append(R"(,"value":")" + std::string(size, 'x') + '"');
  journal.close();
  const auto lines = lines_of(content(scratch.path() / "journal.jsonl"));
  ASSERT_EQ(lines.size(), sizes.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with(fmt::format(R"({{"seq":{},)", i)));
    EXPECT_NE(lines[i].find(fmt::format(R"("value":"{}",)", std::string(sizes[i], 'x'))), std::string::npos);
    expect_sum(lines[i]);
  }
}

TEST(JournalWriter, rotation_continues_the_numbers) {
  ScratchFolder scratch;
  std::vector<std::filesystem::path> parts;
  JournalWriter journal(scratch.path(), {.part_bytes = 64 << 10, .on_part = [&](const auto& path, std::uint64_t size) {
                                           EXPECT_EQ(std::filesystem::file_size(path), size);
                                           parts.push_back(path);
                                         }});
  for (int i = 0; i < 3000; ++i) journal.append(R"(,"kind":"value","name":"something")");
  journal.append(R"(,"value":")" + std::string(200'000, 'x') + '"');
  journal.append(R"(,"kind":"note")");
  journal.close();
  ASSERT_GT(parts.size(), 3u);
  EXPECT_EQ(parts[0].filename(), "journal-000000.jsonl");
  parts.push_back(scratch.path() / "journal.jsonl");
  std::size_t seq = 0;
  for (const auto& part : parts) {
    for (const auto& line : lines_of(content(part))) {
      EXPECT_TRUE(line.starts_with(fmt::format(R"({{"seq":{},)", seq++)));
      expect_sum(line);
    }
  }
  EXPECT_EQ(seq, 3002u);
}

TEST(JournalWriter, threads_append_without_gaps) {
  ScratchFolder scratch;
  JournalWriter journal(scratch.path(), {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) journal.append(R"(,"kind":"value","name":"x")");
    });
  for (auto& thread : threads) thread.join();
  journal.close();
  const auto lines = lines_of(content(scratch.path() / "journal.jsonl"));
  ASSERT_EQ(lines.size(), 4000u);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with(fmt::format(R"({{"seq":{},)", i)));
}

TEST(JournalWriter, never_takes_over_an_existing_journal) {
  ScratchFolder scratch;
  {
    JournalWriter(scratch.path(), {}).append(",\"kind\":\"note\"");
  }
  EXPECT_THROW(JournalWriter(scratch.path(), {}), IoError);
}

}  // namespace
}  // namespace tenscope::store
