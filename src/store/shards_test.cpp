#include "store/shards.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "store/scratch_folder.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

namespace tenscope::store {
namespace {

std::vector<float> floats(const TensorData& data) {
  std::vector<float> values(static_cast<std::size_t>(element_count(data.view.shape)));
  if (!values.empty()) std::memcpy(values.data(), data.view.data, values.size() * sizeof(float));
  return values;
}

// Records `parts` as so many ranks and reads them.
template <class Record>
Reader as_ranks(const std::filesystem::path& base, int count, Record record) {
  for (int rank = 0; rank < count; ++rank) {
    RunOptions options;
    options.name = "run";
    options.rank = rank;
    options.world_size = count;
    options.join = rank > 0;
    tenscope::Run run(base, options);
    record(run, rank);
  }
  return Reader(base / "run");
}

TEST(Shards, slices_are_put_together) {
  ScratchFolder scratch;
  const Reader reader = as_ranks(scratch.path(), 2, [](tenscope::Run& run, int rank) {
    const std::vector<float> part = rank == 0 ? std::vector<float>{0, 1, 4, 5} : std::vector<float>{2, 3, 6, 7};
    const Shard shard = shard_along(1, rank, 2, {2, 2});
    run.record({.name = "q", .meta = R"({"op":"mm"})", .inputs = {"x"}, .shard = &shard}, view(part.data(), {2, 2}));
  });
  const std::vector<EventId> parts = parts_of(reader, 0);
  ASSERT_EQ(parts.size(), 2U);
  const TensorData whole = assemble(reader, parts);
  EXPECT_EQ(std::vector<std::int64_t>(whole.view.shape.begin(), whole.view.shape.end()),
            (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(floats(whole), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  const std::string expected =
      R"x({"inputs":["x"],"shard":{"mesh":[2],"placements":["S(1)"],"coordinate":[1],"shape":[2,4],"offset":[0,2]},)x"
      R"x("op":"mm"})x";
  EXPECT_EQ(reader.event(parts[1]).meta, expected);
}

TEST(Shards, summands_are_added_up) {
  ScratchFolder scratch;
  const Reader reader = as_ranks(scratch.path(), 3, [](tenscope::Run& run, int rank) {
    const std::vector<float> part{1.0F * static_cast<float>(rank), 2};
    const Shard shard = part_of_sum(rank, 3, {2});
    run.record({.name = "o", .shard = &shard}, view(part.data(), {2}));
  });
  EXPECT_EQ(floats(assemble(reader, parts_of(reader, 0))), (std::vector<float>{3, 6}));
}

TEST(Shards, a_missing_part_is_told) {
  ScratchFolder scratch;
  const Reader reader = as_ranks(scratch.path(), 2, [](tenscope::Run& run, int rank) {
    const float value = 1;
    const Shard shard = shard_along(0, rank, 4, {1});
    run.record({.name = "q", .shard = &shard}, view(&value, {1}));
  });
  try {
    assemble(reader, parts_of(reader, 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::NotFound);
    EXPECT_NE(std::string(error.what()).find("2 of 4 parts are there"), std::string::npos) << error.what();
  }
}

TEST(Shards, what_does_not_fit_together_is_no_shard) {
  EXPECT_FALSE(parse_shard("{}"));
  EXPECT_FALSE(parse_shard(R"({"shard":3})"));
  EXPECT_FALSE(parse_shard(R"({"shard":{"mesh":[2],"placements":[],"coordinate":[0],"shape":[4],"offset":[0]}})"));
  EXPECT_FALSE(parse_shard(R"({"shard":{"mesh":[2],"placements":["R"],"coordinate":[2],"shape":[4],"offset":[0]}})"));
  EXPECT_FALSE(parse_shard(R"({"shard":{"mesh":[2],"placements":["R"],"coordinate":[0],"shape":[4],"offset":[-1]}})"));
  EXPECT_FALSE(parse_shard(R"({"shard":{"mesh":[4000000000,4000000000],"placements":["R","R"],"coordinate":[0,0],)"
                           R"("shape":[4],"offset":[0]}})"));
  EXPECT_TRUE(parse_shard(R"({"shard":{"mesh":[2],"placements":["R"],"coordinate":[1],"shape":[4],"offset":[0]}})"));
}

}  // namespace
}  // namespace tenscope::store
