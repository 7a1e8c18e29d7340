#include "store/large_writes.hpp"

#include <gtest/gtest.h>

namespace tenscope::store {
namespace {

using Way = LargeWrites::Way;

int direct_of(LargeWrites& writes, int choices, std::int64_t cached_ns, std::int64_t direct_ns) {
  int direct = 0;
  for (int i = 0; i < choices; ++i) {
    const Way way = writes.choose();
    direct += way == Way::Direct;
    writes.learn(way, 1000, way == Way::Direct ? direct_ns : cached_ns);
  }
  return direct;
}

TEST(LargeWrites, a_fast_cache_is_never_left) {
  LargeWrites writes;
  EXPECT_EQ(direct_of(writes, 1000, 200, 1), 0);
}

TEST(LargeWrites, a_slow_cache_is_left_for_a_faster_disk) {
  LargeWrites writes;
  EXPECT_GT(direct_of(writes, 1000, 3000, 600), 970);
}

TEST(LargeWrites, a_slower_disk_is_tried_now_and_then) {
  LargeWrites writes;
  const int direct = direct_of(writes, 1000, 3000, 9000);
  EXPECT_GT(direct, 5);
  EXPECT_LT(direct, 30);
}

TEST(LargeWrites, what_has_changed_is_found_out) {
  LargeWrites writes;
  direct_of(writes, 100, 3000, 600);
  EXPECT_LT(direct_of(writes, 1000, 200, 600), 900);
  EXPECT_EQ(direct_of(writes, 100, 200, 600), 0);
}

TEST(LargeWrites, what_does_not_work_is_given_up) {
  LargeWrites writes(LargeWrites::Policy::Direct);
  EXPECT_EQ(writes.choose(), Way::Direct);
  writes.give_up_direct();
  EXPECT_EQ(writes.choose(), Way::Cached);
}

}  // namespace
}  // namespace tenscope::store
