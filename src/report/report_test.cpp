#include <gtest/gtest.h>

#include "report/array_text.hpp"
#include "report/histogram.hpp"
#include "report/slice.hpp"
#include "report/table.hpp"
#include "report/values.hpp"
#include "tenscope/error.hpp"

// array_text is compared with NumPy itself in tests/test_cli.py.
namespace tenscope::report {
namespace {

TEST(ArrayText, looks_like_numpy) {
  const float values[] = {0.1F, -2.0F, 1.0F / 3, 1e-5F};
  EXPECT_EQ(array_text(view(values, {3})), "[ 0.1        -2.          0.33333334]");
  EXPECT_EQ(array_text(view(values, {2, 2})), "[[ 1.0000000e-01 -2.0000000e+00]\n [ 3.3333334e-01  9.9999997e-06]]");
  EXPECT_EQ(array_text(view(values, {0, 4})), "[]");
  EXPECT_EQ(array_text(view(values, {})), "0.1");
}

TEST(Slice, follows_python) {
  std::int32_t values[24];
  for (int i = 0; i < 24; ++i) values[i] = i;
  const ShapedView tensor = view(values, {2, 3, 4});
  EXPECT_EQ(array_text(Slice(tensor, "1, :, 1:3").view()), "[[13 14]\n [17 18]\n [21 22]]");
  EXPECT_EQ(array_text(Slice(tensor, "..., -1").view()), "[[ 3  7 11]\n [15 19 23]]");
  EXPECT_EQ(array_text(Slice(tensor, "0,0,::-2").view()), "[3 1]");
  EXPECT_EQ(array_text(Slice(tensor, "0,0,9:").view()), "[]");
  EXPECT_EQ(array_text(Slice(tensor, "1,2,3").view()), "23");
  EXPECT_THROW(Slice(tensor, "2"), Error);
  EXPECT_THROW(Slice(tensor, "0,0,0,0"), Error);
  EXPECT_THROW(Slice(tensor, "x"), Error);
  EXPECT_THROW(Slice(tensor, "::0"), Error);
}

TEST(Histogram, counts_finite_elements) {
  const double values[] = {0, 1, 2, 3, 4, std::numeric_limits<double>::quiet_NaN(), 10};
  const Histogram histogram = make_histogram(view(values, {7}), 5);
  EXPECT_EQ(histogram.counts, (std::vector<std::int64_t>{2, 2, 1, 0, 1}));
  EXPECT_EQ(histogram.edges.back(), 10);
  EXPECT_TRUE(make_histogram(view(values + 5, {1}), 5).counts.empty());
  const double wide[] = {-1.7e308, 1.7e308};
  EXPECT_EQ(make_histogram(view(wide, {2}), 2).counts, (std::vector<std::int64_t>{1, 1}));
}

TEST(Table, aligns_by_what_is_seen) {
  Table table({{"name"}, {"n", Align::Right}});
  table.add({"é", "10"});
  table.add({"ab", Cell("7", Tone::Red)});
  EXPECT_EQ(table.text(false), "name   n\né     10\nab     7\n");
  EXPECT_NE(table.text(true).find("\033[31m7"), std::string::npos);
}

TEST(Values, read_well) {
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KB");
  EXPECT_EQ(value_text(std::string("it's")), "\"it's\"");
  EXPECT_EQ(value_text(std::string("say \"x\"\n")), "'say \"x\"\\n'");
  EXPECT_EQ(value_text(nullptr), "None");
  EXPECT_EQ(value_text(1e-7), "1e-07");
  EXPECT_EQ(duration_text(1500), "1.5 µs");
}

}  // namespace
}  // namespace tenscope::report
