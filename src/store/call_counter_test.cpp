#include "store/call_counter.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>

namespace tenscope::store {
namespace {

class CallCounterTest : public testing::Test {
 protected:
  std::int64_t next(const std::string& name, std::int64_t step, EventKind kind = EventKind::Value) {
    return counter.next(name, kind, step, -1, run_step).call;
  }

  CallCounter counter;
  std::atomic<std::int64_t> run_step{0};
};

TEST_F(CallCounterTest, goes_on_in_every_step_whatever_their_order) {
  EXPECT_EQ(next("v", 5), 0);
  run_step = 1;
  EXPECT_EQ(next("v", 5), 1);
  EXPECT_EQ(next("v", -1), 0);
  EXPECT_EQ(next("v", 0), 0);
  run_step = 5;
  EXPECT_EQ(next("v", -1), 2);
  run_step = 1;
  EXPECT_EQ(next("v", -1), 1);
  EXPECT_EQ(next("v", 5, EventKind::Change), 3);
  EXPECT_EQ(next("v", 5, EventKind::Enter), 0);
  EXPECT_EQ(next("w", 5), 0);
}

TEST_F(CallCounterTest, what_the_caller_numbered_is_not_given_again) {
  EXPECT_EQ(counter.next("v", EventKind::Value, -1, 0, run_step).call, 0);
  EXPECT_EQ(next("v", -1), 1);
  EXPECT_EQ(counter.next("v", EventKind::Value, 0, 9, run_step).call, 9);
  EXPECT_EQ(counter.next("v", EventKind::Value, 0, 3, run_step).call, 3);
  EXPECT_EQ(next("v", 0), 10);
  const auto highest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(counter.next("w", EventKind::Value, 0, highest, run_step).call, highest);
  EXPECT_GE(next("w", 0), 0);
}

// Against a map that forgets nothing: exact while few pairs are live, unique always.
TEST_F(CallCounterTest, never_repeats_a_number_however_many_pairs_are_live) {
  std::mt19937_64 random(7);
  std::map<std::pair<int, std::int64_t>, std::int64_t> lowest;  // that may be given
  std::int64_t gaps = 0, count = 400'000;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % 100 == 0) ++run_step;
    const int name = static_cast<int>(random() % 200);
    const auto choice = random() % 10;
    const std::int64_t step = choice < 7 ? run_step.load()
                              : choice < 9
                                  ? std::max<std::int64_t>(0, run_step - static_cast<std::int64_t>(random() % 5))
                                  : static_cast<std::int64_t>(random() % 8000);
    const std::int64_t call = next("name" + std::to_string(name), step);
    std::int64_t& allowed = lowest[{name, step}];
    ASSERT_GE(call, allowed) << "name" << name << " step " << step << " was given before";
    gaps += call != allowed;
    allowed = call + 1;
  }
  EXPECT_GT(lowest.size(), 200'000u);
  EXPECT_LT(gaps, count / 10);  // only where a step comes back after a long time
}

TEST_F(CallCounterTest, steps_in_order_begin_at_0_however_many_names) {
  for (std::int64_t step = 0; step < 12; ++step) {
    run_step = step;
    for (int i = 0; i < 100'000; ++i) ASSERT_EQ(next("name" + std::to_string(i), -1), 0);
    ASSERT_EQ(next("name0", -1), 1);
    ASSERT_EQ(next("name99999", step), 1);
  }
}

TEST_F(CallCounterTest, a_step_far_ahead_leaves_those_before_it_exact) {
  EXPECT_EQ(next("v", 1'000'000), 0);
  for (std::int64_t step = 0; step < 50'000; ++step) {
    ASSERT_EQ(next("v", step), 0);
    ASSERT_EQ(next("v", step), 1);
  }
  EXPECT_GE(next("v", 1'000'000), 1);
}

TEST_F(CallCounterTest, a_step_that_comes_back_after_all_was_folded_goes_on) {
  EXPECT_EQ(next("v", 3), 0);
  EXPECT_EQ(next("v", 3), 1);
  constexpr int kCount = 3 * CallCounter::kMaxPairs;
  for (int i = 0; i < kCount; ++i) next("other" + std::to_string(i), 7);  // all in one step: too many to be kept
  EXPECT_GE(next("v", 3), 2);
  for (int i = 0; i < kCount; i += 1000) EXPECT_GE(next("other" + std::to_string(i), 7), 1);
  EXPECT_EQ(next("v", 8), 0);
}

TEST_F(CallCounterTest, threads_get_different_numbers) {
  std::vector<std::set<std::tuple<int, std::int64_t, std::int64_t>>> given(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        if (i % 50 == 0) ++run_step;
        const int name = i % 7;
        const auto index =
            counter.next("n" + std::to_string(name), EventKind::Value, i % 3 == 0 ? i % 900 : -1, -1, run_step);
        given[t].insert({name, index.step, index.call});
      }
    });
  for (auto& thread : threads) thread.join();
  std::set<std::tuple<int, std::int64_t, std::int64_t>> all;
  for (const auto& some : given) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), 80'000u);
}

}  // namespace
}  // namespace tenscope::store
