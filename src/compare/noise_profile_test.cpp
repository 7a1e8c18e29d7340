#include "compare/noise_profile.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compare/noise.hpp"
#include "store/scratch_folder.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;
using Values32 = std::vector<float>;

constexpr double kUnit = 0x1p-24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Values32 wave(std::size_t count = 512) {
  Values32 values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 1.5F + std::sin(static_cast<float>(i));
  return values;
}

// By so many of the last bits, up and down in turn.
Values32 moved(Values32 values, std::int32_t bits) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::bit_cast<float>(std::bit_cast<std::int32_t>(values[i]) + (i % 2 == 0 ? bits : -bits));
  return values;
}

Values32 scaled(Values32 values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

class NoiseProfileTest : public ::testing::Test {
 protected:
  // A module "first" and a module "second", which is given what the first has returned.
  fs::path record(const std::string& name, const Values32& first, const Values32& second) {
    tenscope::Run run(folder_.path(), {.name = name, .strict = true});
    const Values32 input = wave();
    call(run, "first", input, first);
    call(run, "second", first, second);
    return run.path();
  }

  NoiseProfile measured(const fs::path& run, const std::vector<fs::path>& again) {
    NoiseProfile profile;
    for (const fs::path& one : again) measure_noise(run, one, {"moved"}, profile);
    return profile;
  }

  fs::path file(const std::string& text) {
    const fs::path path = folder_.path() / "profile.json";
    std::ofstream(path) << text;
    return path;
  }

 private:
  static void call(tenscope::Run& run, const std::string& module, const Values32& input, const Values32& output) {
    const auto info = [&](EventKind kind, const std::string& name, Io io) {
      return EventInfo{.kind = kind,
                       .name = name,
                       .step = 0,
                       .call = 0,
                       .scope = module,
                       .io = io,
                       .phase = Phase::Forward,
                       .root = "M#0"};
    };
    const auto view_of = [](const Values32& values) {
      return view(values.data(), {static_cast<std::int64_t>(values.size())});
    };
    const std::string in = module + ".input.0", out = module + ".output";
    run.record(info(EventKind::Enter, module, Io::None), EventValue());
    run.record(info(EventKind::Value, in, Io::Input), view_of(input));
    run.record(info(EventKind::Value, out, Io::Output), view_of(output));
    run.record(info(EventKind::Exit, module, Io::None), EventValue());
  }

  store::ScratchFolder folder_;
};

constexpr NoisePlace kFirst{
    .rank = 0, .name = "first.output", .io = "output", .phase = "forward", .step = 0, .call = 0};
constexpr NoisePlace kSecond{
    .rank = 0, .name = "second.output", .io = "output", .phase = "forward", .step = 0, .call = 0};

TEST_F(NoiseProfileTest, TheLargestMoveOfEachPlaceIsKept) {
  const fs::path run = record("run", wave(), wave());
  const NoiseProfile profile = measured(
      run, {record("once", moved(wave(), 1), moved(wave(), 8)), record("twice", moved(wave(), 4), moved(wave(), 2))});
  ASSERT_EQ(profile.runs.size(), 2U);
  EXPECT_EQ(profile.runs[0].compared, 4U);
  EXPECT_EQ(profile.runs[0].moved, 3U);  // what the first returns, and the second is given
  const PlaceNoise *first = profile.find(kFirst), *second = profile.find(kSecond);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_NEAR(second->rel_l2 / first->rel_l2, 2, 0.01);
  EXPECT_GT(first->rel_l2, 2 * kUnit);
  EXPECT_LT(first->rel_l2, 8 * kUnit);
  EXPECT_LT(first->systematic, 0.1 * first->rel_l2);
  EXPECT_EQ(profile.find({.name = "first.output", .io = "output", .phase = "forward", .step = 1}), nullptr);
}

TEST_F(NoiseProfileTest, IsReadAsItWasWritten) {
  NoiseProfile profile;
  profile.runs = {{.changes = {"a \"word\"", "1 thread"}, .compared = 3, .moved = 2, .missing = 1}};
  NoisePlace place{.rank = 2, .name = "a\nb", .io = "grad", .phase = "backward", .step = 7, .call = 1};
  profile.add(place, {.rel_max = 0.1, .rel_l2 = 1e-7, .systematic = 1e-9});
  place.step = 3;
  profile.add(place, {.rel_max = kInfinity, .rel_l2 = kInfinity, .systematic = kInfinity, .flipped = 1});
  profile.add(kFirst, {});
  const fs::path path = file("");
  profile.write(path);
  const NoiseProfile read = NoiseProfile::read(path);
  EXPECT_EQ(read.size(), 3U);
  EXPECT_EQ(read.runs[0].changes, profile.runs[0].changes);
  EXPECT_EQ(read.runs[0].missing, 1U);
  ASSERT_NE(read.find(place), nullptr);
  EXPECT_EQ(read.find(place)->rel_l2, kInfinity);
  place.step = 7;
  EXPECT_EQ(read.find(place)->rel_max, 0.1);
  EXPECT_EQ(read.find(kFirst)->rel_max, 0);
}

TEST_F(NoiseProfileTest, WhatIsNoProfileIsRefused) {
  const std::string start = R"({"format":"tenscope noise profile","version":1,"runs":[],"places":)";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), start, start + "[1]}", start + R"([{"rank":0}]})",
        start + R"([{"rank":0,"name":"x","io":"","phase":"","at":[[0,0,1]]}]})",
        start + R"([{"rank":0,"name":"x","io":"","phase":"","at":[[0,0,-1,0,0,0]]}]})",
        start + R"([{"rank":0,"name":"x","io":"","phase":"","at":[[0,0,"1",0,0,0]]}]})"})
    EXPECT_THROW(NoiseProfile::read(file(text)), Error) << text;
  try {
    NoiseProfile::read(file(R"({"format":"tenscope noise profile","version":2})"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Version);
  }
  EXPECT_THROW(NoiseProfile::read(file("") / "nothing"), Error);
}

TEST(MeasuredNoise, IsWhatAPlaceIsJudgedBy) {
  const NoiseJudge judge{std::nullopt};
  const PlaceNoise quiet{.rel_max = 2e-7, .rel_l2 = 1e-7, .systematic = 1e-8}, chaos{.rel_max = 0.5, .rel_l2 = 0.2};
  const auto is_noise = [&](PairError error, const PlaceNoise* measured, Trust inputs = {}) {
    if (error.count == 0) error.count = 1000;
    error.scale = 1;
    return judge.is_noise(error, {.dtype = DType::F32, .measured = measured}, inputs);
  };
  const PairError small{.max_abs = 5e-6, .rel_l2 = 2e-6}, large{.max_abs = 0.3, .rel_l2 = 0.1};
  EXPECT_TRUE(is_noise(small, nullptr));
  EXPECT_FALSE(is_noise(small, &quiet));
  EXPECT_FALSE(is_noise(large, nullptr));
  EXPECT_TRUE(is_noise(large, &chaos));
  // A factor shows before the size does.
  const PairError factor{.max_abs = 3e-7, .rel_l2 = 3e-7, .correlation = 1};
  EXPECT_TRUE(is_noise(factor, nullptr));
  EXPECT_FALSE(is_noise(factor, &quiet));
  EXPECT_TRUE(is_noise({.max_abs = 3e-7, .rel_l2 = 3e-7, .correlation = 0.01}, &quiet));
  // What arrives with more noise than was measured may leave with more.
  EXPECT_TRUE(is_noise(small, &quiet, {.noise = 1e-6, .times_measured = 20}));
  // An input that was not measured: what is assumed of all places holds.
  EXPECT_TRUE(is_noise(small, &quiet, {.noise = 1e-6, .times_measured = kInfinity}));
  // Of a few numbers three runs say little.
  EXPECT_TRUE(is_noise({.count = 1, .max_abs = 5e-6, .rel_l2 = 5e-6}, &quiet));
  EXPECT_FALSE(is_noise({.has_other_finite = true}, &quiet));
  const PlaceNoise endless{.rel_max = kInfinity, .rel_l2 = kInfinity, .systematic = kInfinity};
  EXPECT_TRUE(is_noise({.has_other_finite = true}, &endless));
}

TEST_F(NoiseProfileTest, ADiffFindsItBesideEitherRun) {
  const fs::path run = record("run", wave(), wave());
  // Twenty units in all numbers alike: less than is allowed where nothing was measured.
  const fs::path other = record("other", moved(wave(), 12), moved(wave(), 12));
  const fs::path chaotic = record("chaotic", wave(), scaled(wave(), 1.2F));
  const NoiseProfile profile = measured(run, {record("again", moved(wave(), 1), scaled(moved(wave(), 1), 1.3F))});
  EXPECT_EQ(diff_runs(run, other).verdict, DiffVerdict::Noise);
  EXPECT_EQ(diff_runs(run, chaotic).verdict, DiffVerdict::Differs);
  profile.write(run / NoiseProfile::kFileName);
  const RunDiff found = diff_runs(run, other);
  EXPECT_EQ(found.verdict, DiffVerdict::Differs);
  ASSERT_TRUE(found.first_divergence);
  EXPECT_EQ(found.first_divergence->place.module, "first");
  EXPECT_EQ(found.noise_profiles.size(), 1U);
  const RunDiff hidden = diff_runs(run, chaotic);
  EXPECT_EQ(hidden.verdict, DiffVerdict::Noise);
  EXPECT_EQ(hidden.judged_by_profile, 1U);
  ASSERT_EQ(hidden.notes.size(), 1U);
  EXPECT_EQ(hidden.notes[0].kind, DiffNote::Kind::HiddenByNoise);
  EXPECT_EQ(hidden.notes[0].subject, "second.output");
  // The other way round it lies beside the second run, and by its path it serves any pair.
  EXPECT_EQ(diff_runs(other, run).verdict, DiffVerdict::Differs);
  EXPECT_EQ(diff_runs(chaotic, other, {.noise = run}).verdict, DiffVerdict::Differs);
  EXPECT_EQ(diff_runs(run, other, {.noise = std::nullopt}).verdict, DiffVerdict::Noise);
  EXPECT_EQ(diff_runs(run, other, {.tolerance = 1e-3}).verdict, DiffVerdict::Noise);
  EXPECT_THROW(diff_runs(run, other, {.noise = other}), Error);  // which has none
}

}  // namespace
}  // namespace tenscope::compare
