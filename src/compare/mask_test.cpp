#include "compare/mask.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

namespace tenscope::compare {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Mask, FormsThatAllowTheSame) {
  const std::array<bool, 4> causal = {true, false, true, true}, forbidden = {false, true, false, false};
  const std::vector<float> added = {0, -kInf, 0, 0}, large = {0, -3.4e38F, 0, 0};
  const std::vector<std::int64_t> integers = {1, 0, 1, 1};
  EXPECT_TRUE(is_same_mask(view(causal.data(), {2, 2}), view(added.data(), {1, 1, 2, 2})));
  EXPECT_TRUE(is_same_mask(view(added.data(), {2, 2}), view(large.data(), {1, 2, 2})));
  EXPECT_TRUE(is_same_mask(view(forbidden.data(), {2, 2}), view(added.data(), {2, 2})));  // True may mean forbidden
  EXPECT_TRUE(is_same_mask(view(integers.data(), {2, 2}), view(causal.data(), {2, 2})));
}

TEST(Mask, RepeatedAlongAnAxis) {
  const std::vector<float> row = {0, 0, -kInf}, rows = {0, 0, -kInf, 0, 0, -kInf};
  const std::vector<float> causal = {0, -kInf, -kInf, 0, 0, -kInf};
  EXPECT_TRUE(is_same_mask(view(row.data(), {1, 1, 3}), view(rows.data(), {1, 2, 3})));
  EXPECT_TRUE(is_same_mask(view(rows.data(), {2, 1, 3}), view(rows.data(), {2, 3})));
  EXPECT_FALSE(is_same_mask(view(row.data(), {1, 1, 3}), view(causal.data(), {1, 2, 3})));
}

TEST(Mask, OtherMasksAndWhatIsNone) {
  const std::array<bool, 4> causal = {true, false, true, true}, full = {true, true, true, true};
  const std::vector<float> added = {0, -kInf, 0, 0}, numbers = {0, -1, 0, 0.5F}, zeros = {0, 0, 0, 0};
  EXPECT_FALSE(is_same_mask(view(causal.data(), {2, 2}), view(full.data(), {2, 2})));
  EXPECT_FALSE(is_same_mask(view(causal.data(), {2, 2}), view(zeros.data(), {2, 2})));
  EXPECT_TRUE(is_same_mask(view(full.data(), {2, 2}), view(zeros.data(), {2, 2})));
  EXPECT_FALSE(is_same_mask(view(numbers.data(), {2, 2}), view(added.data(), {2, 2})));
  EXPECT_FALSE(is_same_mask(view(causal.data(), {4}), view(added.data(), {2, 2})));
  EXPECT_FALSE(is_same_mask(view(causal.data(), {0}), view(added.data(), {0})));
}

}  // namespace
}  // namespace tenscope::compare
