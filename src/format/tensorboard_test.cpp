#include "format/tensorboard.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "format/crc32c.hpp"

// What stands in the files is read back by the tensorboard package in tests/test_tensorboard.py.
namespace tenscope {
namespace {

TEST(Crc32c, is_that_of_the_standard) {  // RFC 3720, B.4, and the check value of the catalogue of CRCs
  EXPECT_EQ(crc32c_of("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c_of(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c_of(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (char i = 0; i < 32; ++i) rising += i;
  EXPECT_EQ(crc32c_of(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c_of(""), 0u);
}

TEST(TensorBoard, a_file_begins_with_its_version) {
  const auto path = std::filesystem::temp_directory_path() / ("tensorboard_test." + std::to_string(::getpid()));
  TensorBoardFile file(path, 1.0);
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(path);
  using namespace std::string_literals;
  EXPECT_EQ(bytes.size(), 8 + 4 + 24 + 4u);
  EXPECT_EQ(bytes.substr(0, 8), "\x18\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes.substr(12, 24),
            "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"
            "brain.Event:2"s);
}

}  // namespace
}  // namespace tenscope
