#include "store/segment_writer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "store/blob_table.hpp"
#include "store/scratch_folder.hpp"

namespace tenscope::store {
namespace {

struct Entry {
  std::uint64_t begin, end;
  std::string dtype;
};

// Parses a sealed segment as safetensors demands it: the tensors cover the data without holes and without overlap.
std::map<std::string, Entry> parse(const std::filesystem::path& path, std::string& data) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_LE(8 + length, text.size());
  EXPECT_EQ(text[8], '{');
  data = text.substr(8 + length);
  std::map<std::string, Entry> entries;
  std::map<std::uint64_t, std::uint64_t> ranges;
  simdjson::dom::parser parser;
  for (const auto [key, value] : simdjson::dom::object(parser.parse(text.substr(8, length)))) {
    const Entry entry{std::uint64_t(value["data_offsets"].at(0)), std::uint64_t(value["data_offsets"].at(1)),
                      std::string(std::string_view(value["dtype"]))};
    EXPECT_TRUE(entries.emplace(std::string(key), entry).second) << "key repeated: " << key;
    if (entry.begin < entry.end) ranges[entry.begin] = entry.end;
  }
  std::uint64_t position = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, position);
    position = end;
  }
  EXPECT_EQ(position, data.size());
  return entries;
}

class SegmentWriterTest : public testing::TestWithParam<bool> {
 protected:
  SegmentWriter::Options options(std::uint64_t segment_bytes) {
    return {.segment_bytes = segment_bytes, .is_mapped = GetParam(), .next_number = &next_number};
  }
  static SegmentWriter::Access access() {
    return GetParam() ? SegmentWriter::Access::Memory : SegmentWriter::Access::Write;
  }
  BlobRef store(SegmentWriter& writer, const std::string& name, const std::string& bytes, DType dtype = DType::U8) {
    HeaderEntry entry;
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(bytes.size() / item_size(dtype))};
    encode_header_entry(entry, name, 0, 0, dtype, shape);
    Slot slot = writer.reserve(bytes.size(), dtype, entry, access());
    const auto ref = slot.ref;
    if (slot.memory != nullptr) {
      std::memcpy(slot.memory, bytes.data(), bytes.size());
    } else {
      writer.write(slot, std::as_bytes(std::span(bytes)));
    }
    writer.commit(std::move(slot));
    return ref;
  }

  ScratchFolder scratch;
  std::atomic<std::int64_t> next_number{0};
};

TEST_P(SegmentWriterTest, sealed_segments_have_no_holes) {
  SegmentWriter writer(scratch.path(), options(200'000));
  std::map<std::string, std::pair<std::string, BlobRef>> stored;
  for (int i = 0; i < 300; ++i) {
    const std::string bytes(static_cast<std::size_t>(i * 131 % 6000) / 8 * 8, static_cast<char>(i));
    const auto name = "x" + std::to_string(i);
    stored[name + "@0#0"] = {bytes, store(writer, name, bytes, i % 3 == 0 ? DType::F64 : DType::U8)};
  }
  writer.close();
  writer.close();
  EXPECT_GT(next_number, 2);
  std::size_t found = 0;
  for (std::int64_t number = 0; number < next_number; ++number) {
    const auto path = scratch.path() / fmt::format("{:06}.safetensors", number);
    std::string data;
    for (const auto& [key, entry] : parse(path, data)) {
      if (key.starts_with("__pad__")) continue;
      ++found;
      const auto& [bytes, ref] = stored.at(key);
      EXPECT_EQ(data.substr(entry.begin, entry.end - entry.begin), bytes);
      EXPECT_EQ(ref.segment, number);
      EXPECT_EQ(std::filesystem::file_size(path) - data.size() + entry.begin, ref.offset);
      EXPECT_EQ(ref.offset % (bytes.size() >= 4096 ? 64 : entry.dtype == "F64" ? 8 : 1), 0u);
    }
  }
  EXPECT_EQ(found, stored.size());
}

TEST_P(SegmentWriterTest, an_abandoned_slot_becomes_padding) {
  SegmentWriter writer(scratch.path(), options(1 << 20));
  store(writer, "a", "aaaa");
  HeaderEntry entry;
  encode_header_entry(entry, "lost", 0, 0, DType::U8, std::vector<std::int64_t>{100});
  Slot lost = writer.reserve(100, DType::U8, entry, access());
  store(writer, "b", "bbbb");
  writer.abandon(std::move(lost));
  writer.close();
  std::string data;
  const auto entries = parse(scratch.path() / "000000.safetensors", data);
  EXPECT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries.at("__pad__0").end - entries.at("__pad__0").begin, 100u);
}

TEST_P(SegmentWriterTest, an_abandoned_slot_at_the_end_is_given_out_again) {
  SegmentWriter writer(scratch.path(), options(1 << 20));
  store(writer, "a", "aaaa");
  HeaderEntry entry;
  encode_header_entry(entry, "lost", 0, 0, DType::U8, std::vector<std::int64_t>{100});
  const auto before = writer.total_bytes();
  for (int i = 0; i < 3; ++i) writer.abandon(writer.reserve(100, DType::U8, entry, access()));
  EXPECT_EQ(writer.total_bytes(), before);
  store(writer, "b", "bbbb");
  writer.close();
  std::string data;
  const auto entries = parse(scratch.path() / "000000.safetensors", data);
  EXPECT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries.at("b@0#0").begin, 4u);
}

TEST_P(SegmentWriterTest, an_abandoned_slot_before_an_empty_tensor_becomes_padding) {
  SegmentWriter writer(scratch.path(), options(1 << 20));
  HeaderEntry entry;
  encode_header_entry(entry, "lost", 0, 0, DType::U8, std::vector<std::int64_t>{100});
  Slot lost = writer.reserve(100, DType::U8, entry, access());
  store(writer, "empty", "");
  writer.abandon(std::move(lost));
  store(writer, "b", "bbbb");
  writer.close();
  std::string data;
  const auto entries = parse(scratch.path() / "000000.safetensors", data);
  EXPECT_EQ(entries.at("empty@0#0").begin, 100u);
  EXPECT_EQ(entries.at("b@0#0").begin, 100u);
  EXPECT_EQ(entries.at("__pad__0").end, 100u);
}

TEST_P(SegmentWriterTest, a_segment_in_use_is_sealed_when_its_last_slot_comes_back) {
  SegmentWriter writer(scratch.path(), options(10'000));
  HeaderEntry entry;
  encode_header_entry(entry, "slow", 0, 0, DType::U8, std::vector<std::int64_t>{8});
  Slot slow = writer.reserve(8, DType::U8, entry, access());
  for (int i = 0; i < 5; ++i) store(writer, "x" + std::to_string(i), std::string(9000, 'x'));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "000000.safetensors.open"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "000001.safetensors"));
  if (slow.memory != nullptr) {
    std::memset(slow.memory, 's', 8);
  } else {
    writer.write(slow, std::as_bytes(std::span("ssssssss", 8)));
  }
  writer.commit(std::move(slow));
  std::string data;
  const auto slow_entry = parse(scratch.path() / "000000.safetensors", data).at("slow@0#0");
  EXPECT_EQ(data.substr(slow_entry.begin, 8), "ssssssss");
  writer.close();
}

TEST_P(SegmentWriterTest, nothing_written_leaves_nothing) {
  SegmentWriter writer(scratch.path(), options(1 << 20));
  HeaderEntry entry;
  encode_header_entry(entry, "lost", 0, 0, DType::U8, std::vector<std::int64_t>{100});
  writer.abandon(writer.reserve(100, DType::U8, entry, access()));
  writer.close();
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST_P(SegmentWriterTest, threads_store_at_the_same_time) {
  SegmentWriter writer(scratch.path(), options(50'000));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        store(writer, fmt::format("{}.{}", t, i), std::string(100 + i, static_cast<char>('a' + t)));
    });
  for (auto& thread : threads) thread.join();
  writer.close();
  std::size_t found = 0;
  for (std::int64_t number = 0; number < next_number; ++number) {
    std::string data;
    for (const auto& [key, entry] : parse(scratch.path() / fmt::format("{:06}.safetensors", number), data)) {
      if (key.starts_with("__pad__")) continue;
      ++found;
      EXPECT_EQ(data.substr(entry.begin, entry.end - entry.begin),
                std::string(entry.end - entry.begin, static_cast<char>('a' + key[0] - '0')));
    }
  }
  EXPECT_EQ(found, 800u);
}

INSTANTIATE_TEST_SUITE_P(, SegmentWriterTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "mapped" : "written"; });

TEST(BlobTable, finds_by_content_and_stays_bounded) {
  BlobTable table;
  const auto summary = [](std::uint64_t i) {
    return Summary{.fingerprint = {i * 0x9E3779B97F4A7C15, i}, .stats = {.max = static_cast<double>(i)}};
  };
  constexpr std::uint64_t kCount = 2 * BlobTable::kMaxBlobs;
  for (std::uint64_t i = 1; i <= kCount; ++i) table.insert(summary(i), DType::F32, 8, BlobRef{1, i, 8});
  std::uint64_t found = 0;
  for (std::uint64_t i = 1; i <= kCount; ++i) {
    const auto known = table.find(summary(i).fingerprint, DType::F32, 8);
    if (!known) continue;
    ++found;
    EXPECT_EQ(known->blob->offset, i);
    EXPECT_EQ(known->stats.max, static_cast<double>(i));
  }
  EXPECT_LE(found, BlobTable::kMaxBlobs);
  EXPECT_GT(found, BlobTable::kMaxBlobs / 2);
  EXPECT_TRUE(table.find(summary(kCount).fingerprint, DType::F32, 8));
  EXPECT_FALSE(table.find(summary(kCount).fingerprint, DType::I32, 8));
  EXPECT_FALSE(table.find(summary(kCount).fingerprint, DType::F32, 16));
  EXPECT_FALSE(table.find(summary(kCount).fingerprint, DType::F32, 8, 2)->blob);
}

}  // namespace
}  // namespace tenscope::store
