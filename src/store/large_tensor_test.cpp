// Tensors that are written while a second thread takes their summary.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

#include "kernels/summarize.hpp"
#include "store/file.hpp"
#include "store/scratch_folder.hpp"
#include "store/segment_writer.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope {
namespace {

using store::ScratchFolder;
using Recorder = Run;  // inside a test, Run is a member of testing::Test

constexpr std::int64_t kCount = (9 << 20) / 4;

std::vector<float> large(float start) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), start);
  return values;
}

void expect_values(const Reader& reader, const Query& query, const std::vector<float>& expected) {
  const auto ids = reader.find(query);
  ASSERT_EQ(ids.size(), 1u);
  const auto data = reader.tensor(ids[0]);
  ASSERT_EQ(size_bytes(data.view), expected.size() * 4);
  EXPECT_EQ(std::memcmp(data.view.data, expected.data(), expected.size() * 4), 0);
}

std::uint64_t segment_bytes(const std::filesystem::path& run) {
  std::uint64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run / "rank-0")) {
    if (entry.path().extension() == ".safetensors") total += entry.file_size();
  }
  return total;
}

TEST(LargeTensor, each_new_one_reads_back_with_its_summary) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  for (int i = 0; i < 4; ++i) {
    const auto values = large(static_cast<float>(i));
    const Recorded recorded = run.record("x", view(values.data(), {kCount}));
    EXPECT_TRUE(recorded.kept);
    EXPECT_FALSE(recorded.duplicate);
    EXPECT_EQ(recorded.summary.fingerprint, kernels::fingerprint(view(values.data(), {kCount})));
    EXPECT_EQ(recorded.summary.stats.min, i);
    run.step();
  }
  run.close();
  const Reader reader(run.path());
  for (int i = 0; i < 4; ++i) expect_values(reader, {.name = "x", .step = i}, large(static_cast<float>(i)));
  EXPECT_TRUE(verify(run.path()).empty());
}

TEST(LargeTensor, one_that_was_stored_already_after_all_takes_no_space) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  const auto a = large(0), b = large(1), c = large(2), d = large(3);
  run.record("x", view(a.data(), {kCount}));
  run.record("y", view(b.data(), {kCount}));
  run.record("y", view(d.data(), {kCount}));  // two new ones in a row: the next is taken for new, too
  const Recorded again = run.record("y", view(a.data(), {kCount}));
  EXPECT_TRUE(again.duplicate);
  EXPECT_EQ(again.summary.stats.min, 0);
  EXPECT_FALSE(run.record("x", view(c.data(), {kCount})).duplicate);
  run.close();
  EXPECT_LT(segment_bytes(run.path()), 4u * kCount * 4 + (1 << 20));
  const Reader reader(run.path());
  expect_values(reader, {.name = "y", .call = 2}, a);
  expect_values(reader, {.name = "x", .call = 1}, c);
  EXPECT_TRUE(verify(run.path()).empty());
}

// Straight from memory to the disk: the place in the file follows from the address, what is left at both ends does not.
TEST(LargeTensor, goes_past_the_page_cache_from_any_address) {
  ScratchFolder scratch;
  std::atomic<std::int64_t> next_number{0};
  store::SegmentWriter writer(scratch.path(),
                              {.large_writes = store::LargeWrites::Policy::Direct, .next_number = &next_number});
  const std::vector<std::uint64_t> source = [] {
    std::vector<std::uint64_t> words((10 << 20) / 8);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9E3779B97F4A7C15;
    return words;
  }();
  const auto bytes = std::as_bytes(std::span(source));
  const std::size_t aligned = -reinterpret_cast<std::uintptr_t>(bytes.data()) % 16;
  std::vector<std::pair<BlobRef, std::span<const std::byte>>> stored;
  for (const auto& [skip, size] : {std::pair(0, 8 << 20), {16, (8 << 20) + 1}, {4032, (8 << 20) + 4000}, {128, 77}}) {
    const auto part = bytes.subspan(aligned + static_cast<std::size_t>(skip), static_cast<std::size_t>(size));
    store::HeaderEntry entry;
    encode_header_entry(entry, "x", skip, 0, DType::U8, std::vector<std::int64_t>{size});
    store::Slot slot = writer.reserve(part.size(), DType::U8, entry, store::SegmentWriter::Access::Write, part.data());
    if (size > 77 && !slot.is_direct) GTEST_SKIP() << "the file system has no O_DIRECT";
    EXPECT_EQ(slot.is_direct, size > 77);
    EXPECT_EQ(slot.ref.offset % (size > 77 ? 16 : 1), 0u);
    stored.emplace_back(slot.ref, part);
    writer.write(slot, part);
    writer.commit(std::move(slot));
  }
  writer.close();
  std::ifstream stream(scratch.path() / "000000.safetensors", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(file.size(), stored.back().first.offset + 77);
  for (const auto& [ref, part] : stored) {
    EXPECT_EQ(std::memcmp(file.data() + ref.offset, part.data(), part.size()), 0);
  }
}

TEST(LargeTensor, a_full_disk_drops_it_and_leaves_the_others) {
  ScratchFolder scratch;
  Recorder run(scratch.path());
  const auto a = large(0);
  EXPECT_TRUE(run.record("x", view(a.data(), {kCount})).kept);
  store::set_reserve_fault(0, ENOSPC);
  bool was_dropped = false;
  for (int i = 0; i < 40 && !was_dropped; ++i) {
    const auto values = large(static_cast<float>(10 + i));
    was_dropped = !run.record("x", view(values.data(), {kCount})).kept;
  }
  store::set_reserve_fault(-1, 0);
  EXPECT_TRUE(was_dropped);
  run.close();
  expect_values(Reader(run.path()), {.name = "x", .call = 0}, a);
}

}  // namespace
}  // namespace tenscope
