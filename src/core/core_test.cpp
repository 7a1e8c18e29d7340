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

TEST(Event, words_round_trip_and_others_are_kept) {
  for (int i = 0; i <= static_cast<int>(Io::Other); ++i)
    EXPECT_EQ(parse_io(to_string(static_cast<Io>(i))), static_cast<Io>(i));
  for (int i = 0; i <= static_cast<int>(Phase::Other); ++i)
    EXPECT_EQ(parse_phase(to_string(static_cast<Phase>(i))), static_cast<Phase>(i));
  EventInfo info{.io = "router_logits", .phase = "decode"};
  EXPECT_EQ(info.io, Io::Other);
  EXPECT_EQ(info.phase, Phase::Other);
  EXPECT_EQ(info.io.text(), "router_logits");
  EXPECT_EQ(info.phase.text(), "decode");
  info.io = "grad_input";
  EXPECT_EQ(info.io, Io::GradInput);
  EXPECT_EQ(info.io.text(), "grad_input");
  info.io = Io::Loss;
  EXPECT_EQ(info.io.text(), "loss");
}

TEST(Event, names_that_follow_from_another) {
  EXPECT_EQ(parameter_of_gradient("fc.weight.grad"), "fc.weight");
  EXPECT_EQ(parameter_of_gradient("fc.grad_scale"), "fc.grad_scale");
  EXPECT_EQ(input_of_changed_input("input.0.after"), "input.0");
  EXPECT_EQ(name_in_scope("fc.input.0", "fc"), "input.0");
  EXPECT_EQ(name_in_scope("fc2.input.0", "fc"), "fc2.input.0");
  EXPECT_TRUE(is_changed_input("fc.input.0.after", "fc", Io::Output));
  EXPECT_TRUE(is_changed_input("input.x.after", "", Io::Output));
  EXPECT_FALSE(is_changed_input("fc.input.0.after", "fc", Io::Input));
  EXPECT_FALSE(is_changed_input("fc.output.after", "fc", Io::Output));        // a member `after` of what it returns
  EXPECT_FALSE(is_changed_input("input.output.after", "input", Io::Output));  // a module called input
}

}  // namespace
}  // namespace tenscope
