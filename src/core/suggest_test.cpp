#include "core/suggest.hpp"

#include <gtest/gtest.h>

namespace tenscope {
namespace {

TEST(Suggest, distance_counts_edits) {
  EXPECT_EQ(edit_distance("diff", "diff"), 0u);
  EXPECT_EQ(edit_distance("dfif", "diff"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(Suggest, names_the_nearest) {
  const std::vector<std::string> verbs{"ls", "show", "verify", "repair"};
  EXPECT_EQ(did_you_mean("shwo", verbs), "; did you mean 'show'?");
  EXPECT_EQ(did_you_mean("VERIFY", verbs), "; did you mean 'verify'?");
  EXPECT_EQ(did_you_mean("elephant", verbs), "");
  EXPECT_EQ(did_you_mean("ab", std::vector<std::string>{"ls"}), "");
}

TEST(Suggest, dashes_of_options_are_no_likeness) {
  EXPECT_EQ(did_you_mean("--stp", std::vector<std::string>{"--step", "--help", "--json"}), "; did you mean '--step'?");
}

TEST(Suggest, finds_parts_of_names) {
  const std::vector<std::string> names{"blocks.0.attn.q", "blocks.0.attn.k", "loss"};
  EXPECT_EQ(nearest("attn.q", names), std::vector<std::string>{"blocks.0.attn.q"});
}

TEST(Suggest, finds_what_lies_below_a_name) {
  const std::vector<std::string> names{"blocks.0.output", "blocks.0.attn.output", "blocks.0.attn.input.0"};
  EXPECT_EQ(nearest("blocks.0.atn", names, 2), (std::vector<std::string>{names[1], names[2]}));
}

}  // namespace
}  // namespace tenscope
