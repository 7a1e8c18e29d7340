#include "compare/checkpoint.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <random>

#include "compare/checkpoint_diff.hpp"
#include "compare/layout.hpp"
#include "format/format.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

// tests/test_checkpoints.py has models, types and mistakes.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tenscope_checkpoint_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Tensor random(std::vector<std::int64_t> shape) {
    std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
    for (float& value : values) value = std::normal_distribution<float>()(generator_);
    return Tensor::copy_of({.data = values.data(), .dtype = DType::F32, .shape = shape});
  }

  fs::path write(const std::string& name, std::vector<std::pair<std::string, Tensor>> tensors) {
    Dict dict;
    for (auto& [key, tensor] : tensors) dict.entries.emplace_back(key, std::move(tensor));
    save(folder_ / name, dict);
    return folder_ / name;
  }

  static Tensor transposed(const Tensor& tensor) {
    const std::vector<std::int64_t> shape = {tensor.shape[1], tensor.shape[0]}, strides = {1, tensor.shape[1]};
    return Tensor::copy_of({.data = tensor.data, .dtype = tensor.dtype, .shape = shape, .strides = strides});
  }

  std::mt19937 generator_{1};
  fs::path folder_;
};

TEST_F(CheckpointTest, TensorsByTheirDottedNames) {
  Dict inner;
  inner.entries.emplace_back("weight", random({2, 3}));
  Dict outer;
  outer.entries.emplace_back("model", inner);
  outer.entries.emplace_back("steps", 3);
  outer.entries.emplace_back("list", List{{random({4})}});
  save(folder_ / "state.pt", outer);
  const Checkpoint checkpoint(folder_ / "state.pt");
  ASSERT_EQ(checkpoint.tensors().size(), 2);
  EXPECT_EQ(checkpoint.tensors()[0].name, "model.weight");
  EXPECT_EQ(checkpoint.tensors()[1].name, "list.0");
  EXPECT_EQ(checkpoint.size_bytes(), 40);
}

TEST_F(CheckpointTest, ShardsWithOneNameTwiceAreRefused) {
  write("a.safetensors", {{"x", random({3})}});
  write("b.safetensors", {{"x", random({3})}});
  EXPECT_TRUE(is_checkpoint(folder_));
  EXPECT_THROW(Checkpoint{folder_}, Error);
  EXPECT_THROW(Checkpoint{folder_ / "none"}, Error);
}

TEST_F(CheckpointTest, NamesThatPairNeedNoContent) {
  const Tensor x = random({4, 5}), y = random({6});
  const fs::path a = write("a.safetensors", {{"x", x}, {"y", y}});
  EXPECT_FALSE(are_checkpoints(a, write("b.npz", {{"x", x}, {"y", y}})));
  EXPECT_TRUE(are_checkpoints(a, write("c.npz", {{"u", x}, {"v", y}})));
  EXPECT_FALSE(are_checkpoints(a, write("d.npy.npz", {{"u", x}})));  // one tensor is no checkpoint
  EXPECT_FALSE(are_checkpoints(a, folder_ / "none"));
}

TEST_F(CheckpointTest, RenamedTransposedJoinedAndMissing) {
  const Tensor w = random({12, 8}), q = random({16, 8}), k = random({4, 8}), lost = random({5, 7});
  std::vector<float> joined;
  for (const Tensor* part : {&q, &k}) {
    const auto* data = reinterpret_cast<const float*>(part->data);
    joined.insert(joined.end(), data, data + element_count(part->shape));
  }
  const std::vector<std::int64_t> shape = {20, 8};
  const Tensor qk = Tensor::copy_of({.data = joined.data(), .dtype = DType::F32, .shape = shape});
  const fs::path a = write("a.safetensors", {{"w", w}, {"q", q}, {"k", k}, {"lost", lost}});
  const fs::path b = write("b.safetensors", {{"dense", transposed(w)}, {"qk", qk}});
  const CheckpointDiff diff = diff_checkpoints(a, b);
  EXPECT_EQ(diff.verdict, DiffVerdict::Differs);
  ASSERT_EQ(diff.pairs.size(), 3);
  EXPECT_EQ(diff.pairs[0].b.name, "dense");
  EXPECT_EQ(diff.pairs[0].layout, "transposed");
  EXPECT_EQ(diff.pairs[1].layout, "rows [0, 16) of b");
  EXPECT_EQ(diff.pairs[2].layout, "rows [16, 20) of b");
  ASSERT_EQ(diff.only_a.size(), 1);
  EXPECT_EQ(diff.only_a[0].name, "lost");
  EXPECT_EQ(diff.paired_b, 2);
}

TEST_F(CheckpointTest, NothingInCommon) {
  const fs::path a = write("a.safetensors", {{"w", random({12, 8})}, {"v", random({9})}});
  const fs::path b = write("b.safetensors", {{"x", random({12, 8})}, {"y", random({9})}});
  EXPECT_EQ(diff_checkpoints(a, b).verdict, DiffVerdict::Nothing);
}

TEST_F(CheckpointTest, DistanceInALayout) {
  const Tensor w = random({600, 7});
  Tensor other = transposed(w);
  const Layout layout{.sizes = {600, 7}, .order = {1, 0}, .of_a = {}, .of_b = {}};
  const auto same = distance_in(w.view(), other.view(), layout);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->error, 0);
  EXPECT_NEAR(same->factor, 1, 1e-12);
  std::vector<float> values(600 * 7);
  copy_elements(other.view(), reinterpret_cast<std::byte*>(values.data()));
  for (float& value : values) value *= 3;
  values[5] += 0.5F;
  const TensorView tripled{.data = values.data(), .dtype = DType::F32, .shape = other.shape};
  const auto apart = distance_in(w.view(), tripled, layout);
  ASSERT_TRUE(apart);
  EXPECT_NEAR(apart->error, 2, 0.01);
  EXPECT_NEAR(apart->factor, 3, 0.01);
  EXPECT_GT(apart->rest, 0);
  EXPECT_FALSE(apart->has_other_finite);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(distance_in(w.view(), tripled, layout)->has_other_finite);
  EXPECT_FALSE(distance_in(w.view(), tripled, {.sizes = {7, 600}, .order = {1, 0}, .of_a = {}, .of_b = {}}));
}

}  // namespace
}  // namespace tenscope::compare
