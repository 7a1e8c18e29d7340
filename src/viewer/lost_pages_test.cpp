#include "viewer/lost_pages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tenscope::viewer {
namespace {

TEST(LostPages, a_file_that_is_cut_short_reads_as_zeros_and_is_known) {
  keep_going_without_lost_pages();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const std::vector<unsigned char> ones(4 * page, 1);
  ASSERT_EQ(std::fwrite(ones.data(), 1, ones.size(), file), ones.size());
  ASSERT_EQ(std::fflush(file), 0);
  void* const mapped = ::mmap(nullptr, ones.size(), PROT_READ, MAP_SHARED, ::fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* const bytes = static_cast<const unsigned char*>(mapped);
  const auto sum = [&] { return std::accumulate(bytes, bytes + ones.size(), std::size_t{0}); };
  EXPECT_EQ(sum(), 4 * page);
  EXPECT_FALSE(has_lost_pages(bytes, ones.size()));

  ASSERT_EQ(::ftruncate(::fileno(file), static_cast<off_t>(page)), 0);
  std::size_t other = 0;
  std::thread([&] { other = sum(); }).join();
  EXPECT_EQ(other, page);
  EXPECT_EQ(sum(), page);
  EXPECT_EQ(lost_page_count(), 3U);
  EXPECT_FALSE(has_lost_pages(bytes, page));
  EXPECT_TRUE(has_lost_pages(bytes, page + 1));
  EXPECT_TRUE(has_lost_pages(bytes + 3 * page, page));
  EXPECT_FALSE(has_lost_pages(bytes + 4 * page, page));
  ::munmap(mapped, ones.size());
  std::fclose(file);
}

}  // namespace
}  // namespace tenscope::viewer
