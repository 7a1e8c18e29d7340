#include "compare/assembly.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compare/arrangement.hpp"

namespace tenscope::compare {
namespace {

using How = Fold::How;
using Numbers = std::vector<double>;

HostTensor counted(Shape shape, double first) {
  Numbers numbers(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<double>(i);
  return tensor_of(numbers, std::move(shape), DType::F32);
}

Numbers whole(const Assembly& assembly, const std::vector<HostTensor>& parts) {
  std::vector<TensorView> views;
  for (const HostTensor& part : parts) views.push_back(part.view());
  return doubles_of(assemble(assembly, views).view());
}

TEST(Assembly, joins_along_an_axis) {
  const std::vector<HostTensor> parts = {counted({2, 2}, 0), counted({2, 1}, 10)};
  const Assembly assembly{.grid = {2}, .folds = {{.how = How::Join, .axis = 1}}, .taken = {}};
  EXPECT_EQ(shape_of(assembly, std::vector<Shape>{{2, 2}, {2, 1}}), (Shape{2, 3}));
  EXPECT_EQ(whole(assembly, parts), (Numbers{0, 1, 10, 2, 3, 11}));
  EXPECT_EQ(assembly.in_words(), "2 joined along axis 1");
}

TEST(Assembly, joins_pieces) {
  const std::vector<HostTensor> parts = {counted({4}, 0), counted({4}, 10)};
  const auto joined = [&](int pieces, bool is_zigzag) {
    const Fold fold{.how = How::Join, .axis = 0, .pieces = pieces, .is_zigzag = is_zigzag};
    return whole({.grid = {2}, .folds = {fold}, .taken = {}}, parts);
  };
  EXPECT_EQ(joined(2, false), (Numbers{0, 1, 10, 11, 2, 3, 12, 13}));
  EXPECT_EQ(joined(2, true), (Numbers{0, 1, 10, 11, 12, 13, 2, 3}));
  EXPECT_EQ(joined(0, false), (Numbers{0, 10, 1, 11, 2, 12, 3, 13}));
}

TEST(Assembly, joins_pieces_of_which_the_first_is_longer) {
  const std::vector<HostTensor> parts = {counted({4}, 0), counted({4}, 10)};
  const Fold fold{.how = How::Join, .axis = 0, .pieces = 3, .first = 2};
  const Assembly assembly{.grid = {2}, .folds = {fold}, .taken = {}};
  EXPECT_EQ(whole(assembly, parts), (Numbers{0, 1, 10, 11, 2, 12, 3, 13}));
  EXPECT_EQ(assembly.in_words(), "2 joined along axis 0, 3 pieces of each, the first of them 2 times as long");
  EXPECT_FALSE(shape_of(assembly, std::vector<Shape>{{6}, {6}}));
}

TEST(Assembly, adds_up_and_takes_one) {
  const std::vector<HostTensor> parts = {counted({2}, 0), counted({2}, 10), counted({2}, 20), counted({2}, 30)};
  const auto made = [&](How outer, How inner, std::vector<std::size_t> taken) {
    return whole({.grid = {2, 2}, .folds = {{.how = outer}, {.how = inner}}, .taken = std::move(taken)}, parts);
  };
  EXPECT_EQ(made(How::Sum, How::Sum, {}), (Numbers{60, 64}));
  EXPECT_EQ(made(How::Mean, How::Sum, {}), (Numbers{30, 32}));
  EXPECT_EQ(made(How::Same, How::Sum, {1, 0}), (Numbers{50, 52}));
  EXPECT_EQ(made(How::Sum, How::Same, {0, 1}), (Numbers{40, 42}));
}

TEST(Assembly, says_where_parts_do_not_fit) {
  const Fold join{.how = How::Join, .axis = 0};
  EXPECT_FALSE(shape_of({.grid = {2}, .folds = {join}, .taken = {}}, std::vector<Shape>{{2, 2}, {2, 3}}));
  EXPECT_FALSE(shape_of({.grid = {2}, .folds = {join}, .taken = {}}, std::vector<Shape>{{}, {}}));
  EXPECT_FALSE(shape_of({.grid = {2}, .folds = {Fold{}}, .taken = {}}, std::vector<Shape>{{2}, {3}}));
  EXPECT_FALSE(shape_of({.grid = {3}, .folds = {join}, .taken = {}}, std::vector<Shape>{{2}, {3}}));
}

TEST(Assembly, rounds_sums_to_the_type_of_the_parts) {
  const HostTensor half = tensor_of(Numbers{1, 0x1p-9}, {2}, DType::BF16);
  const Assembly sum{.grid = {2}, .folds = {{.how = How::Sum}}, .taken = {}};
  const HostTensor made = assemble(sum, std::vector<TensorView>{half.view(), half.view()});
  EXPECT_EQ(made.dtype, DType::BF16);
  EXPECT_EQ(doubles_of(made.view()), (Numbers{2, 0x1p-8}));
  // 1 + 2^-8 lies between two numbers of 8 bits: the even one is taken.
  const HostTensor odd = tensor_of(Numbers{1 + 0x1p-8, 1 + 3 * 0x1p-8}, {2}, DType::BF16);
  EXPECT_EQ(doubles_of(odd.view()), (Numbers{1, 1 + 0x1p-6}));
  EXPECT_TRUE(std::isnan(doubles_of(tensor_of(Numbers{std::nan("")}, {1}, DType::BF16).view()).front()));
}

TEST(Arrangement, lists_what_shapes_allow_the_simplest_first) {
  const std::vector<Shape> shapes(4, Shape{2, 3});
  const auto all = list_arrangements(4, 1, shapes, PartKind::Value);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().shape, (Shape{2, 3}));
  const auto has = [&](const Shape& shape) {
    return std::ranges::any_of(all, [&](const ShapedArrangement& one) { return one.shape == shape; });
  };
  EXPECT_TRUE(has({8, 3}) && has({2, 12}) && has({4, 6}) && has({4, 3}) && has({2, 6}));
  EXPECT_FALSE(has({6, 3}));
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].arrangement.cost, all[i].arrangement.cost);
}

TEST(Arrangement, parameters_are_never_summands) {
  for (const ShapedArrangement& one : list_arrangements(2, 1, std::vector<Shape>(2, Shape{4}), PartKind::Parameter))
    EXPECT_FALSE(one.arrangement.assembly.has(How::Sum));
}

TEST(Arrangement, passes_stand_inside_or_outside_of_the_ranks) {
  const std::vector<int> parts = {0, 1, 10, 11};  // two ranks, two passes each
  Arrangement inside, outside;
  outside.are_passes_outside = true;
  EXPECT_EQ(in_order(inside, 2, 2, parts), parts);
  EXPECT_EQ(in_order(outside, 2, 2, parts), (std::vector<int>{0, 10, 1, 11}));
}

}  // namespace
}  // namespace tenscope::compare
