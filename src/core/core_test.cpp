#include <gtest/gtest.h>

#include <vector>

#include "tenscope/error.hpp"
#include "tenscope/event.hpp"
#include "tenscope/summary.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope {
namespace {

TEST(DType, names_round_trip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    if (dtype != DType::C128) {
      EXPECT_EQ(parse_safetensors_dtype(safetensors_name(dtype)), dtype);
    }
  }
  EXPECT_EQ(parse_dtype("float31"), std::nullopt);
  EXPECT_EQ(parse_safetensors_dtype(""), std::nullopt);
}

TEST(TensorView, c_order_ignores_strides_of_length_one_axes) {
  std::vector<float> data(6);
  const std::vector<std::int64_t> shape{2, 1, 3}, odd{3, 77, 1}, transposed{1, 2, 2};
  EXPECT_TRUE(is_c_order({data.data(), DType::F32, shape, odd}));
  EXPECT_FALSE(is_c_order({data.data(), DType::F32, shape, transposed}));
  EXPECT_TRUE(is_c_order({data.data(), DType::F32, shape, {}}));
}

TEST(TensorView, validate_refuses_what_cannot_be_read) {
  float value = 0;
  const auto check = [&](std::vector<std::int64_t> shape, const void* data) {
    validate({data, DType::F32, shape, {}});
  };
  EXPECT_NO_THROW(check({}, &value));
  EXPECT_NO_THROW(check({0, 1L << 62, 1L << 62}, nullptr));
  EXPECT_THROW(check({2}, nullptr), Error);
  EXPECT_THROW(check({-1}, &value), Error);
  EXPECT_THROW(check({1L << 40, 1L << 40}, &value), Error);
  EXPECT_THROW(check(std::vector<std::int64_t>(65, 1), &value), Error);
}

TEST(Fingerprint, hex_round_trips) {
  const Fingerprint print{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(print.hex(), "fedcba98765432100123456789abcdef");
  EXPECT_EQ(Fingerprint::parse(print.hex()), print);
  EXPECT_EQ(Fingerprint::parse("xedcba98765432100123456789abcdef"), std::nullopt);
  EXPECT_EQ(Fingerprint::parse("12"), std::nullopt);
}

TEST(EventKind, names_round_trip) {
  for (int i = 0; i <= static_cast<int>(EventKind::Dropped); ++i) {
    EXPECT_EQ(parse_event_kind(to_string(static_cast<EventKind>(i))), static_cast<EventKind>(i));
  }
  EXPECT_EQ(parse_event_kind("nothing"), std::nullopt);
}

}  // namespace
}  // namespace tenscope
