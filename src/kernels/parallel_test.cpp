#include "kernels/parallel.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace tenscope::kernels {
namespace {

TEST(MakeInOrder, takes_in_order_whoever_is_ready_first) {
  for (const int threads : {1, 4}) {
    std::vector<std::size_t> taken;
    make_in_order(
        40, threads,
        [](std::size_t i) {
          if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return i * i;
        },
        [&](std::size_t square) { taken.push_back(square); });
    ASSERT_EQ(taken.size(), 40u);
    for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i * i);
  }
}

TEST(MakeInOrder, throws_the_first_error_and_takes_nothing_behind_it) {
  for (const int threads : {1, 4}) {
    std::vector<std::size_t> taken;
    const auto make = [](std::size_t i) {
      if (i == 5) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (i >= 5) throw std::runtime_error(std::to_string(i));
      return i;
    };
    try {
      make_in_order(20, threads, make, [&](std::size_t i) { taken.push_back(i); });
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
    }
    EXPECT_EQ(taken, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(MakeInOrder, makes_nothing_of_nothing) {
  make_in_order(0, 4, [](std::size_t i) { return i; }, [](std::size_t) { FAIL(); });
}

}  // namespace
}  // namespace tenscope::kernels
