#include "compare/name_rules.hpp"

#include <gtest/gtest.h>

namespace tenscope::compare {
namespace {

TEST(NameRules, NumbersAreUnknowns) {
  const NameTemplate name = numbered("model.layers.12.mlp.output", 3);
  EXPECT_EQ(name.text, "model.layers.{}.mlp.output");
  EXPECT_EQ(name.numbers, (std::vector<std::int64_t>{12, 3}));
  EXPECT_EQ(numbered("cache_k_l3 (view)", 0).text, "cache_k_l{} (view)");
  EXPECT_EQ(numbered("conv1.q8", 0).text, "conv1.q8");
  EXPECT_EQ(numbered("Qcur-0", 0).text, "Qcur-{}");
}

TEST(NameRules, LearnsHowNumbersFollow) {
  NameRules rules;
  for (int layer = 0; layer < 3; ++layer)
    rules.learn(numbered("layers." + std::to_string(layer) + ".q", 0),
                numbered("linear_" + std::to_string(7 * layer + 2), 0));
  const auto answers = rules.ask(numbered("layers.5.q", 0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].name, numbered("linear_37", 0));
  EXPECT_EQ(answers[0].votes, 3U);
  EXPECT_TRUE(rules.ask(numbered("blocks.5.q", 0)).empty());
}

TEST(NameRules, OneExampleGoesByPlaces) {
  NameRules rules;
  rules.learn(numbered("layers.0.norm.weight", 0), numbered("blk.0.norm", 0));
  const std::vector<RuleAnswer> answers = rules.ask(numbered("layers.1.norm.weight", 0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].name, numbered("blk.1.norm", 0));
}

TEST(NameRules, MostExamplesSayWhatOneContradicts) {
  NameRules rules;
  for (const auto& [a, b] :
       {std::pair{"x.0", "y.0"}, {"x.1", "y.1"}, {"x.2", "y.3"}, {"x.3", "y.2"}, {"x.4", "y.4"}, {"x.5", "y.5"}})
    rules.learn(numbered(a, 0), numbered(b, 0));
  const std::vector<RuleAnswer> answers = rules.ask(numbered("x.2", 0));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].name, numbered("y.2", 0));
  EXPECT_EQ(answers[0].votes, 4U);
  EXPECT_FALSE(answers[0].is_exact);
}

TEST(NameRules, ANumberInBetweenIsNone) {
  NameRules rules;
  for (int layer = 0; layer < 3; ++layer)
    rules.learn(numbered("add_" + std::to_string(6 * layer + 6), 0), numbered("layers." + std::to_string(layer), 0));
  EXPECT_EQ(rules.ask(numbered("add_24", 0)).size(), 1U);
  EXPECT_TRUE(rules.ask(numbered("add_16", 0)).empty());
}

}  // namespace
}  // namespace tenscope::compare
