// The sketches of recorded tensors, as a Reader gives them.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sketch.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope::store {
namespace {

std::vector<double> numbers(std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = std::normal_distribution<double>()(random);
  return values;
}

class SketchRecord : public ::testing::Test {
 protected:
  const std::filesystem::path& folder() const { return folder_.path(); }
  TensorRecord record_of(const Reader& reader, EventId id) const {
    return std::get<TensorRecord>(reader.event(id).value);
  }

 private:
  ScratchFolder folder_;
};

TEST_F(SketchRecord, IsToldOnceOfEachContent) {
  const auto values = numbers(1000), large = numbers(20000);
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
    for (const Values keep : {Values::Full, Values::Stats}) {
      for (int i = 0; i < 2; ++i) {
        run.record({.name = "small"}, view(values.data(), {10, 100}), keep);
        run.record({.name = "large"}, view(large.data(), {20000}), keep);
      }
    }
  }
  const Reader reader(folder() / "run");
  const Sketch small = kernels::sketch(view(values.data(), {1000})),
               of_large = kernels::sketch(view(large.data(), {20000}));
  for (EventId id = 0; id < 8; ++id) {
    EXPECT_EQ(*reader.sketch(id), id % 2 == 0 ? small : of_large);
    EXPECT_EQ(record_of(reader, id).sketch_of, id < 2 ? std::nullopt : std::optional<std::uint64_t>(id % 2));
    EXPECT_EQ(record_of(reader, id).sketch != nullptr, id < 2);
  }
}

TEST_F(SketchRecord, IsThatOfThePart) {
  const auto whole = numbers(12 * 50);
  const std::int64_t shape[] = {12, 25}, strides[] = {50, 1};
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
    for (std::int64_t part = 0; part < 2; ++part) {
      const Shard shard = shard_along(1, part, 2, {12, 25});
      const TensorView view{whole.data() + 25 * part, DType::F64, shape, strides};
      run.record({.name = "q", .shard = &shard}, view, part == 0 ? Values::Full : Values::Stats);
    }
  }
  const Reader reader(folder() / "run");
  const Sketch expected = kernels::sketch(view(whole.data(), {12, 50}));
  const Sketch sum = Sketch(*reader.sketch(0)).add(*reader.sketch(1));
  for (std::size_t i = 0; i < Sketch::kSums; ++i) EXPECT_NEAR(sum.sums[i], expected.sums[i], 1e-12);
}

TEST_F(SketchRecord, EqualBytesInAnotherPlaceHaveTheirOwn) {
  const auto values = numbers(300);
  const std::vector<std::int64_t> parts = {0, 1, 0, 1, 1};
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
    for (const std::int64_t part : parts) {
      const Shard shard = shard_along(0, part, 2, {300});
      run.record({.name = "q", .shard = &shard}, view(values.data(), {300}));
    }
    Shard outside = shard_along(0, 1, 2, {300});
    outside.offset = {400};
    run.record({.name = "q", .shard = &outside}, view(values.data(), {300}));
  }
  const Reader reader(folder() / "run");
  const std::int64_t whole[] = {600};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t offset[] = {300 * parts[i]};
    EXPECT_EQ(*reader.sketch(static_cast<EventId>(i)), kernels::sketch(view(values.data(), {300}), {whole, offset}));
  }
  EXPECT_FALSE(reader.sketch(5));
}

TEST_F(SketchRecord, NumbersEmptyTensorsAndOverflows) {
  const std::vector<double> one = {2.5}, huge(200, std::numeric_limits<double>::max());
  {
    tenscope::Run run(folder(), {.name = "run", .strict = true});
    run.record({.name = "one"}, view(one.data(), {}), Values::Stats);
    run.record({.name = "none"}, view(one.data(), {0}), Values::Stats);
    run.record({.name = "huge"}, view(huge.data(), {200}), Values::Stats);
    run.record("text", "no tensor");
  }
  const Reader reader(folder() / "run");
  EXPECT_EQ(reader.sketch(0)->sums[0], 2.5);
  for (EventId id = 1; id < 4; ++id) EXPECT_FALSE(reader.sketch(id));
}

TEST_F(SketchRecord, IsNotLostInARing) {
  const auto weight = numbers(1000);
  {
    tenscope::Run run(folder(), {.name = "run", .max_bytes = 4 << 20, .keep = Keep::Last, .strict = true});
    for (std::uint64_t i = 0; i < 4000; ++i) {
      run.record({.name = "weight"}, view(weight.data(), {1000}), i % 2 == 0 ? Values::Stats : Values::Full);
      const auto values = numbers(100, i);
      run.record({.name = "x"}, view(values.data(), {100}), Values::Stats);
    }
  }
  const Reader reader(folder() / "run");
  EXPECT_GT(reader.event(0).seq, 0U);
  std::size_t told = 0;
  const Sketch expected = kernels::sketch(view(weight.data(), {1000}));
  for (const EventId id : reader.find({.name = "weight"})) {
    ASSERT_TRUE(reader.sketch(id));
    EXPECT_EQ(*reader.sketch(id), expected);
    told += record_of(reader, id).sketch != nullptr ? 1 : 0;
  }
  EXPECT_GT(told, 1U);
  EXPECT_LT(told, 200U);
}

}  // namespace
}  // namespace tenscope::store
