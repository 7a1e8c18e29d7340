#include <gtest/gtest.h>
#include <sys/file.h>

#include "store/run_fixture.hpp"
#include "store/segment_header.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {
namespace {

std::string all(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems)
    text += fmt::format("{} {} {}\n", problem.file.string(), problem.offset, problem.reason);
  return text;
}

// A run as a crash leaves it: an open segment with bytes no event tells of, a torn line, zeros.
void crash(RunFixture& run) {
  run.add_tensor<std::uint8_t>("mask", 0, {1, 2, 3});
  run.add_tensor<double>("w", 0, {4.5, 5.5});
  run.add_tensor<double>("w", 1, {6.5, 7.5});
  RunFixture::append(segment_path(run.writer(), 0, true), std::string(5000, 'x'));
  RunFixture::append(run.journal(),
                     run.line(R"("kind":"value","name":"torn")").substr(0, 30) + std::string(9000, '\0'));
}

TEST(Repair, makes_a_crashed_run_whole) {
  RunFixture run;
  crash(run);
  EXPECT_EQ(verify(run.path()).size(), 1u) << all(verify(run.path()));
  EXPECT_EQ(repair(run.path()).size(), 3u);
  EXPECT_TRUE(verify(run.path()).empty()) << all(verify(run.path()));
  const Reader reader(run.path());
  ASSERT_EQ(reader.event_count(), 4u);
  EXPECT_TRUE(reader.writers()[0].repaired);
  EXPECT_EQ(static_cast<const double*>(reader.tensor(2).view.data)[1], 7.5);
  const ReadMapping segment(segment_path(run.writer(), 0, false));
  const auto items = read_segment_header(segment.bytes());
  EXPECT_EQ(items.size(), 4u);  // with a pad in front of the doubles
  EXPECT_EQ(items.at("w@1#0").layout, "F64 [2]");
}

// Another thread sealed the segment between a tensor's bytes and its line. Equal bytes that were recorded meanwhile
// refer to those whose line is missing.
TEST(Repair, a_sealed_segment_may_have_tensors_whose_events_a_crash_cut_off) {
  RunFixture run;
  run.add_tensor<float>("kept", 0, {1, 2});
  run.add_tensor<float>("first_of_equal", 0, {3, 4});
  run.add_tensor<float>("lost", 0, {5, 6});
  run.close();
  repair(run.path());
  ASSERT_TRUE(verify(run.path()).empty()) << all(verify(run.path()));
  RunFixture crashed;
  fs::copy(segment_path(run.writer(), 0, false), segment_path(crashed.writer(), 0, false));
  crashed.add_tensor_line<float>("kept", 0, {1, 2}, "[0,4096,8]");
  crashed.add_tensor_line<float>("second_of_equal", 0, {3, 4}, "[0,4104,8]");
  EXPECT_EQ(verify(crashed.path()).size(), 1u) << all(verify(crashed.path()));
  repair(crashed.path());
  EXPECT_TRUE(verify(crashed.path()).empty()) << all(verify(crashed.path()));
}

TEST(Verify, a_run_closed_in_order_tells_of_every_tensor) {
  RunFixture run;
  run.add_tensor<float>("w", 0, {1, 2});
  repair(run.path());
  RunFixture other;
  fs::copy(segment_path(run.writer(), 0, false), segment_path(other.writer(), 0, false));
  other.close();
  EXPECT_EQ(verify(other.path()).size(), 1u) << all(verify(other.path()));
}

TEST(Repair, is_idempotent) {
  RunFixture run;
  crash(run);
  repair(run.path());
  const std::string journal = RunFixture::read(run.journal());
  EXPECT_TRUE(repair(run.path()).empty());
  EXPECT_EQ(RunFixture::read(run.journal()), journal);
}

TEST(Repair, leaves_a_closed_run_alone) {
  RunFixture run;
  run.add(R"("kind":"value","name":"x","value":1)");
  run.close();
  EXPECT_TRUE(verify(run.path()).empty()) << all(verify(run.path()));
  EXPECT_TRUE(repair(run.path()).empty());
}

TEST(Repair, refuses_a_run_that_is_being_written) {
  RunFixture run;
  crash(run);
  const std::string before = RunFixture::read(run.journal());
  const int lock = ::open(run.journal().c_str(), O_RDONLY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  EXPECT_THROW(repair(run.path()), Error);
  EXPECT_TRUE(verify(run.path()).empty()) << "a running run is not unhealthy";
  ::close(lock);
  EXPECT_EQ(RunFixture::read(run.journal()), before);
  EXPECT_TRUE(fs::exists(segment_path(run.writer(), 0, true)));
}

TEST(Repair, keeps_what_it_cannot_explain) {
  RunFixture run;
  run.add_tensor<float>("a", 0, {1, 2});
  run.add_tensor<float>("b", 0, {3, 4});
  std::string journal = RunFixture::read(run.journal());
  journal[journal.size() - 30] ^= 1;  // the line of b; the one that follows makes it damage
  RunFixture::write(run.journal(), journal);
  run.add(R"("kind":"value","name":"c","value":1)");
  repair(run.path());
  EXPECT_EQ(fs::file_size(segment_path(run.writer(), 0, false)), RunFixture::kHeader + 16);
  EXPECT_EQ(verify(run.path()).size(), 1u) << all(verify(run.path()));
}

TEST(Repair, a_header_without_room_keeps_bytes_and_offsets) {
  std::vector<SegmentTensor> tensors;
  const std::uint64_t begin = 1024;
  for (std::uint64_t i = 0; i < 50; ++i) {
    tensors.push_back({fmt::format("name{}@0#0", i), DType::F32, {1}, begin + 4 * i, begin + 4 * i + 4});
  }
  std::size_t unnamed = 0;
  std::string file(8, '\0');
  file += make_segment_header(tensors, begin, begin + 200, unnamed);
  file[0] = static_cast<char>((begin - 8) & 255);
  file[1] = static_cast<char>((begin - 8) >> 8);
  file.resize(begin + 200);
  EXPECT_GT(unnamed, 0u);
  EXPECT_LT(unnamed, 50u);
  const auto items = read_segment_header(std::as_bytes(std::span(file)));
  EXPECT_EQ(items.size(), 50 - unnamed + 1);
  EXPECT_TRUE(items.contains("__unnamed__0"));
  EXPECT_THROW(make_segment_header(tensors, 60, 260, unnamed), Error);
}

TEST(Verify, finds_every_flipped_byte_of_a_segment) {
  RunFixture run;
  run.add_tensor<float>("w", 0, {1, 2, 3});
  run.add_tensor<double>("v", 0, {4});
  run.close();
  repair(run.path());
  ASSERT_TRUE(verify(run.path()).empty()) << all(verify(run.path()));
  const fs::path segment = segment_path(run.writer(), 0, false);
  const std::string good = RunFixture::read(segment);
  const std::uint64_t pad_begin = RunFixture::kHeader + 12;  // what lies between tensors is nobody's
  for (std::size_t i = 0; i < good.size(); i += i < 300 || i > 4080 ? 1 : 97) {
    if (i >= pad_begin && i < pad_begin + 4) continue;
    std::string bad = good;
    bad[i] ^= 0x10;
    RunFixture::write(segment, bad);
    ASSERT_FALSE(verify(run.path()).empty()) << i;
  }
  for (std::size_t size = 0; size < good.size(); size += size < 20 || size > 4080 ? 1 : 97) {
    RunFixture::write(segment, good.substr(0, size));
    ASSERT_FALSE(verify(run.path()).empty()) << size;
  }
  fs::remove(segment);
  EXPECT_EQ(verify(run.path()).size(), 1u);
}

TEST(Verify, a_dropped_segment_of_a_ring_is_no_damage) {
  RunFixture run(R"({"tenscope_format":1,"started_ns":1,"keep":"last"})");
  run.add_tensor_line<float>("w", 0, {1, 2}, "[0,4096,8]");
  run.close();
  EXPECT_TRUE(verify(run.path()).empty()) << all(verify(run.path()));
  try {
    Reader(run.path()).tensor(0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::NotFound);
    EXPECT_NE(std::string(error.what()).find("dropped"), std::string::npos);
  }
}

}  // namespace
}  // namespace tenscope::store
