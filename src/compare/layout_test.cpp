#include "compare/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

namespace tenscope::compare {
namespace {

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 1.7F) + 2;
  return values;
}

TEST(Layout, SizesOfOneAndReshapes) {
  const std::vector<float> a = numbers(24);
  const auto found = find_layout(view(a.data(), {1, 4, 6}), view(a.data(), {4, 2, 3}), {2, 3, 4, 6}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, 0);
  EXPECT_TRUE(found->layout.is_same_order());
}

TEST(Layout, HeadsInFrontOfTokens) {
  // [tokens 3, heads 2 * size 4] against [heads 2, tokens 3, size 4]
  const std::vector<float> a = numbers(24);
  std::vector<float> b(24);
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t d = 0; d < 4; ++d) b[h * 12 + t * 4 + d] = a[t * 8 + h * 4 + d];
  const auto found = find_layout(view(a.data(), {1, 3, 8}), view(b.data(), {1, 2, 3, 4}), {2, 3, 4, 8}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, 0);
  EXPECT_EQ(found->layout.in_words(), "[3, 2, 4] permuted to [1, 0, 2]");
  const auto both = lay_out(view(a.data(), {1, 3, 8}), view(b.data(), {1, 2, 3, 4}), found->layout);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->a, both->b);
  EXPECT_EQ(both->shape, (std::vector<std::int64_t>{3, 8}));
  EXPECT_EQ(both->a[5], static_cast<double>(a[5]));
  EXPECT_FALSE(lay_out(view(a.data(), {3, 7}), view(b.data(), {3, 7}), found->layout));
}

TEST(Layout, InterleavedHalves) {
  const std::vector<float> a = numbers(3 * 8);
  std::vector<float> b(a.size());
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t i = 0; i < 8; ++i) b[t * 8 + (i % 4) * 2 + i / 4] = a[t * 8 + i];
  const auto found = find_layout(view(a.data(), {3, 8}), view(b.data(), {3, 8}), {3, 4, 8}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, 0);
}

TEST(Layout, PaddingIsCutOff) {
  const std::vector<float> a = numbers(6);
  std::vector<float> b(5 * 3, 0.0F);
  std::copy(a.begin(), a.end(), b.begin());
  const auto found = find_layout(view(a.data(), {2, 3}), view(b.data(), {5, 3}), {2, 3, 5}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, 0);
  ASSERT_EQ(found->layout.of_b.size(), 1U);
  EXPECT_EQ(lay_out(view(a.data(), {2, 3}), view(b.data(), {5, 3}), found->layout)->a.size(), 6U);
}

TEST(Layout, WhatDoesNotAgreeHasALargeError) {
  const std::vector<float> a = numbers(24);
  std::vector<float> b(a.rbegin(), a.rend());
  const auto found = find_layout(view(a.data(), {4, 6}), view(b.data(), {4, 6}), {2, 3, 4, 6}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_GT(found->error, 1e-3);
  EXPECT_FALSE(find_layout(view(a.data(), {4, 6}), view(b.data(), {5, 4}), {}, 1e-6));
}

TEST(Layout, ARangeMayRepeatAlongAnAxis) {
  const std::vector<float> whole = numbers(12);  // two heads of (q, k, v), two rows of each
  const std::vector<float> k = {whole[2], whole[3], whole[8], whole[9]};
  Layout layout = same_order({4});
  layout.of_b = {{.axis = 0, .begin = 2, .end = 4, .period = 6}};
  const auto both = lay_out(view(k.data(), {4}), view(whole.data(), {12}), layout);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->a, both->b);
  EXPECT_EQ(sampled_error(view(k.data(), {4}), view(whole.data(), {12}), layout), 0);
  layout.of_b[0].period = 5;
  EXPECT_FALSE(lay_out(view(k.data(), {4}), view(whole.data(), {12}), layout));
}

TEST(Layout, IsExactOrNotFound) {
  const std::vector<std::int64_t> a = {1LL << 60, 2, 3, 4}, b = {(1LL << 60) + 1, 2, 3, 4};
  EXPECT_FALSE(find_layout(view(a.data(), {2, 2}), view(b.data(), {4}), {2, 4}, 0));
  const std::vector<std::complex<float>> c = {{1, 2}, {3, 4}}, d = {{1, 5}, {3, 6}};
  EXPECT_FALSE(find_layout(view(c.data(), {2}), view(d.data(), {1, 2}), {2}, 1e-3));
  std::vector<float> e = numbers(6);
  const std::vector<float> f = {0, e[1], e[2], e[3], e[4], e[5]};
  e[0] = std::nanf("");
  const auto found = find_layout(view(e.data(), {6}), view(f.data(), {2, 3}), {2, 3, 6}, 1e-6);
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::isnan(lay_out(view(e.data(), {6}), view(f.data(), {2, 3}), found->layout)->a[0]));
}

}  // namespace
}  // namespace tenscope::compare
