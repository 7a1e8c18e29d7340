#include "tenscope/glob.hpp"

#include <gtest/gtest.h>

namespace tenscope {
namespace {

TEST(Glob, matches_whole_names) {
  EXPECT_TRUE(matches_glob("blocks.0.attn.q", "blocks.*.attn.?"));
  EXPECT_TRUE(matches_glob("loss", "loss"));
  EXPECT_TRUE(matches_glob("", "*"));
  EXPECT_TRUE(matches_glob("a*b", "a*b"));
  EXPECT_TRUE(matches_glob("aXbXbc", "a*bc"));
  EXPECT_FALSE(matches_glob("losses", "loss"));
  EXPECT_FALSE(matches_glob("loss", "?"));
  EXPECT_FALSE(matches_glob("", "?"));
}

}  // namespace
}  // namespace tenscope
