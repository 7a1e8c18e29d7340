#include "viewer/catalog.hpp"

#include <gtest/gtest.h>

namespace tenscope::viewer {
namespace {

EventRow row_of_step(std::int64_t step) {
  EventRow row;
  row.step = step;
  return row;
}

TEST(Rows, copies_go_on_by_themselves) {
  // Within the first block, at the end of one, and behind it.
  for (const std::int64_t count : {10, 32768, 70000}) {
    Rows rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(row_of_step(i));
    Rows copy(rows);
    rows.push_back(row_of_step(-1));
    copy.push_back(row_of_step(-2));
    copy.push_back(row_of_step(-3));
    const auto known = static_cast<std::size_t>(count);
    ASSERT_EQ(rows.size(), known + 1);
    ASSERT_EQ(copy.size(), known + 2);
    for (std::size_t i = 0; i < known; ++i) {
      ASSERT_EQ(rows[i].step, static_cast<std::int64_t>(i));
      ASSERT_EQ(copy[i].step, static_cast<std::int64_t>(i));
    }
    EXPECT_EQ(rows[known].step, -1);
    EXPECT_EQ(copy[known].step, -2);
    EXPECT_EQ(copy[known + 1].step, -3);
  }
}

}  // namespace
}  // namespace tenscope::viewer
