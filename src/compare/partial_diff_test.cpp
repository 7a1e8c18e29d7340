#include "compare/partial_diff.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

Start start_at(int rank, std::int64_t step, Phase phase, std::size_t position) {
  return {.moment = {.rank = rank, .step = step, .phase = phase, .position = position},
          .is_cause = phase == Phase::Forward,
          .is_exchanged = phase == Phase::Backward || phase == Phase::Optimizer,
          .is_another_draw = false,
          .tensors = 1,
          .origin = {}};
}

std::string name_of(const Start& start) {
  return fmt::format("rank {} at {}.{}.{}", start.moment.rank, start.moment.step, static_cast<int>(start.moment.phase),
                     start.moment.position);
}

// A part of the given ranks, made one after the other as diff_some_ranks does: only what may be listed is described.
PartialDiff part_of(const std::vector<std::vector<Start>>& starts, const std::vector<int>& ranks, std::size_t most) {
  PartialDiff part{.a = "a", .b = "b", .max_origins = most};
  Known known(most);
  for (const int rank : ranks) {
    PartialDiff one{.a = "a", .b = "b", .max_origins = most, .ranks = {rank}};
    for (Start start : starts[static_cast<std::size_t>(rank)]) {
      if (known.may_list(start)) {
        DiffOrigin origin;
        origin.seen_as = name_of(start);
        start.origin = std::make_shared<const DiffOrigin>(origin);
      }
      known.add(start);
      one.starts.push_back(std::move(start));
    }
    part.merge(std::move(one));
  }
  return part;
}

std::vector<std::string> listed(const RunDiff& diff) {
  std::vector<std::string> names;
  for (const DiffOrigin& origin : diff.origins) names.push_back(origin.seen_as);
  return names;
}

// What docs/diff.md says, place by place.
std::vector<std::string> expected_of(const std::vector<std::vector<Start>>& starts, std::size_t most) {
  std::vector<Start> left;
  for (const auto& of_rank : starts)
    for (const Start& start : of_rank) {
      const auto causes = [&](const Start& other) {
        return other.is_cause && other.moment.rank != start.moment.rank && other.moment.step <= start.moment.step;
      };
      const bool is_caused = start.is_exchanged && std::ranges::any_of(starts, [&](const auto& others) {
                               return std::ranges::any_of(others, causes);
                             });
      if (!is_caused) left.push_back(start);
    }
  std::ranges::sort(left, [](const Start& x, const Start& y) { return x.moment < y.moment; });
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(most, left.size()); ++i) names.push_back(name_of(left[i]));
  return names;
}

TEST(PartialDiff, parts_in_any_order_give_the_answer_of_all_ranks_at_once) {
  constexpr int kRanks = 9;
  std::mt19937 random(7);
  const auto draw = [&](std::size_t most) { return random() % most; };
  for (int round = 0; round < 400; ++round) {
    std::vector<std::vector<Start>> starts(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool has_forward = draw(3) == 0;  // where all ranks had one, next to nothing would be left of the others
      std::size_t position = 0;
      for (std::int64_t step = 0; step < 3; ++step)
        for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Optimizer})
          if (draw(2) == 0 && (phase != Phase::Forward || has_forward))
            starts[static_cast<std::size_t>(rank)].push_back(start_at(rank, step, phase, position += 1 + draw(3)));
    }
    const std::size_t most = 1 + draw(6);
    std::vector<int> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<std::string> expected = expected_of(starts, most);
    EXPECT_EQ(listed(part_of(starts, ranks, most).result()), expected);
    std::ranges::shuffle(ranks, random);
    PartialDiff merged{.a = "a", .b = "b", .max_origins = most};
    for (auto first = ranks.begin(); first != ranks.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(1 + draw(4)), ranks.end() - first);
      merged.merge(PartialDiff::from_bytes(part_of(starts, {first, last}, most).to_bytes()));
      first = last;
    }
    EXPECT_EQ(listed(merged.result()), expected) << "round " << round;
  }
}

TEST(PartialDiff, says_where_the_first_rank_is_not_known) {
  const std::vector<std::vector<Start>> starts{{start_at(0, 1, Phase::Forward, 9)},
                                               {start_at(1, 1, Phase::Forward, 3)},
                                               {start_at(2, 1, Phase::Backward, 20)},
                                               {start_at(3, 1, Phase::Forward, 9)}};
  const RunDiff diff = part_of(starts, {3, 2, 1, 0}, 10).result();
  EXPECT_EQ(diff.first_divergence->seen_as, name_of(starts[1][0]));
  ASSERT_EQ(diff.notes.size(), 1U);
  EXPECT_EQ(diff.notes[0].kind, DiffNote::Kind::OtherRanks);
  EXPECT_EQ(diff.notes[0].a, "ranks 0, 3");
  EXPECT_EQ(diff.consequences, 1U);  // the gradients of rank 2
  EXPECT_TRUE(part_of(starts, {1}, 10).result().notes.empty());
}

TEST(PartialDiff, what_ranks_have_in_common_is_said_once_in_the_order_of_ranks) {
  PartialDiff parts[2];
  for (int rank = 0; rank < 2; ++rank) {
    PartialDiff& part = parts[rank];
    part.ranks = {rank};
    part.add(OfRank<DiffModule>{rank, 0, {.root = "M#0", .module = fmt::format("stage{}", rank)}});
    part.add(OfRank<DiffModule>{
        rank, 1, {.root = "M#0", .module = "shared", .is_within_tolerance = false, .step = 5 - rank}});
    part.add(OfRank<DiffUnmatched>{rank, 0, {.side = 1, .root = "M#0", .module = "extra", .events = 4}});
    part.add(OfRank<DiffNote>{rank, 0, {.kind = DiffNote::Kind::IdleInput, .subject = "mask", .count = 2}});
    part.add(OfRank<DiffNote>{rank, 1, {.kind = DiffNote::Kind::Failed, .a = "ValueError"}});
    part.settings_a.emplace("seeds.torch", OfRank<std::string>{rank, 0, std::to_string(rank)});
    part.settings_b.emplace("seeds.torch", OfRank<std::string>{rank, 0, "7"});
  }
  parts[1].merge(parts[0]);
  const RunDiff diff = parts[1].result();
  ASSERT_EQ(diff.modules.size(), 3U);
  EXPECT_EQ(diff.modules[0].module, "stage0");
  EXPECT_EQ(diff.modules[1].module, "shared");
  EXPECT_EQ(diff.modules[1].step, 4);
  EXPECT_EQ(diff.modules[2].module, "stage1");
  ASSERT_EQ(diff.unmatched.size(), 1U);
  EXPECT_EQ(diff.unmatched[0].events, 8U);
  ASSERT_EQ(diff.notes.size(), 2U);
  EXPECT_EQ(diff.notes[0].count, 5U);  // beside the one that is named
  EXPECT_EQ(diff.notes[1].kind, DiffNote::Kind::Failed);
  ASSERT_EQ(diff.settings.size(), 1U);
  EXPECT_EQ(diff.settings[0].a, "0");
}

TEST(PartialDiff, a_rule_that_fits_on_one_rank_is_used) {
  const auto with_unused = [](int rank, const std::vector<std::string>& rules) {
    PartialDiff part;
    part.ranks = {rank};
    part.unused_rules.emplace();
    for (std::size_t i = 0; i < rules.size(); ++i)
      part.unused_rules->emplace(rules[i], OfRank<std::string>{rank, i, rules[i] + " fits nothing"});
    return part;
  };
  PartialDiff part = with_unused(0, {"a=b", "c=d"});
  part.merge(with_unused(1, {"a=b"}));
  PartialDiff of_one_run;  // a rank that only one of the runs has
  of_one_run.ranks = {2};
  part.merge(of_one_run);
  EXPECT_EQ(part.unused_rules->size(), 1U);
  EXPECT_THROW(part.result(), Error);
  part.merge(with_unused(3, {}));
  EXPECT_NO_THROW(part.result());
}

TEST(PartialDiff, merges_only_what_belongs_together) {
  PartialDiff part{.a = "a", .b = "b", .ranks = {1}};
  EXPECT_THROW(part.merge({.a = "a", .b = "other", .ranks = {2}}), Error);
  EXPECT_THROW(part.merge({.a = "a", .b = "b", .ranks = {1}}), Error);
}

TEST(PartialDiff, bytes_that_are_cut_off_or_of_something_else_are_refused) {
  std::vector<std::vector<Start>> starts{{start_at(0, 0, Phase::Forward, 1)}};
  PartialDiff part = part_of(starts, {0}, 10);
  DiffOrigin origin;
  origin.metrics.ranges = {{0, 3}};
  origin.metrics.rel_max = -0.25;
  part.starts[0].origin = std::make_shared<const DiffOrigin>(origin);
  part.in_a = {0};
  const std::string bytes = part.to_bytes();
  const PartialDiff again = PartialDiff::from_bytes(bytes);
  EXPECT_EQ(again.to_bytes(), bytes);
  EXPECT_EQ(again.starts[0].origin->metrics.rel_max, -0.25);
  EXPECT_EQ(again.starts[0].origin->metrics.ranges, origin.metrics.ranges);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(PartialDiff::from_bytes(std::string_view(bytes).substr(0, size)), Error) << size;
  EXPECT_THROW(PartialDiff::from_bytes(bytes + "x"), Error);
}

}  // namespace
}  // namespace tenscope::compare
