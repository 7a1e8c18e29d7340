#include "kernels/value_histogram.hpp"

#include <gtest/gtest.h>

#include "kernels/look_fixture.hpp"
#include "kernels/simd_target.hpp"

namespace tenscope::kernels {
namespace {

void expect_histogram(const std::vector<double>& values, const ValueCensus& census, const HistogramEdges& edges,
                      const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> expected(edges.edges.empty() ? 0 : edges.edges.size() - 1);
  std::int64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;
  for (const double x : values) {
    nan += std::isnan(x);
    pos_inf += x == kTestInf;
    neg_inf += x == -kTestInf;
    zero += x == 0;
    if (!std::isfinite(x) || x == 0) continue;
    std::int64_t found = 0;
    for (std::size_t bin = 0; bin < expected.size(); ++bin) {
      const double low = edges.edges[bin], high = edges.edges[bin + 1];
      const bool is_first = bin == 0, is_last = bin + 1 == expected.size();
      const bool is_inside = edges.is_linear || x > 0 ? low <= x && (x < high || (is_last && x == high))
                                                      : (low < x || (is_first && x == low)) && x <= high;
      if (!is_inside) continue;
      ++expected[bin];
      ++found;
    }
    ASSERT_EQ(found, 1) << x;
  }
  EXPECT_EQ(counts, expected);
  EXPECT_EQ(census.nan, nan);
  EXPECT_EQ(census.pos_inf, pos_inf);
  EXPECT_EQ(census.neg_inf, neg_inf);
  EXPECT_EQ(census.zero, zero);
}

void expect_edges(const HistogramEdges& edges) {
  ASSERT_LE(edges.edges.size(), static_cast<std::size_t>(kMaxHistogramBins) + 1);
  for (std::size_t i = 0; i + 1 < edges.edges.size(); ++i) ASSERT_LT(edges.edges[i], edges.edges[i + 1]);
  for (const double edge : edges.edges) ASSERT_TRUE(std::isfinite(edge));
}

TEST(ValueHistogram, EveryElementIsInOneBin) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    for_each_case(10, 3, [&](const LookCase& one, std::mt19937_64& random) {
      const Look look = one.look();
      const int threads = 1 + static_cast<int>(random() % 3);
      const ValueCensus census = take_census(look, threads);
      const HistogramEdges edges = choose_edges({&census, 1});
      ASSERT_NO_FATAL_FAILURE(expect_edges(edges));
      // Read as the look reads them: a rounding may move an element over an edge.
      std::vector<double> values;
      LookBlock block;
      for (std::int64_t i = 0; i < look.count(); ++i) {
        look.read(i, 1, block);
        values.push_back(block.values[0]);
      }
      ASSERT_NO_FATAL_FAILURE(expect_histogram(values, census, edges, count_bins(look, census, edges, threads)))
          << to_string(one.a.dtype) << " kind " << static_cast<int>(one.kind) << " on " << target;
      ASSERT_FALSE(::testing::Test::HasFailure()) << to_string(one.a.dtype) << " kind " << static_cast<int>(one.kind);
      std::int64_t subnormal = 0;
      for (const double x : values) subnormal += x != 0 && std::abs(x) < look.min_normal();
      EXPECT_EQ(census.subnormal, subnormal);
    });
  }
  use_simd_target("");
}

TEST(ValueHistogram, BinsFollowTheData) {
  std::mt19937_64 random(11);
  std::vector<double> values(20'000);
  const auto edges_of = [&](auto&& make) {
    for (double& x : values) x = make();
    const ValueCensus census = take_census(Look(view(values.data(), {20'000})));
    HistogramEdges edges = choose_edges({&census, 1});
    expect_edges(edges);
    expect_histogram(values, census, edges, count_bins(Look(view(values.data(), {20'000})), census, edges));
    return edges;
  };
  std::normal_distribution<double> normal;
  // Both signs: logarithmic, with some eighty bins and more.
  const HistogramEdges weights = edges_of([&] { return 0.02 * normal(random); });
  EXPECT_FALSE(weights.is_linear);
  EXPECT_GE(weights.edges.size(), 60u);
  // Near to one another: linear between the least and the largest.
  const HistogramEdges gains = edges_of([&] { return 1 + 0.001 * normal(random); });
  EXPECT_TRUE(gains.is_linear);
  EXPECT_EQ(gains.edges.size(), 101u);
  EXPECT_EQ(gains.edges.front(), *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(gains.edges.back(), *std::max_element(values.begin(), values.end()));
  // The smallest and largest numbers there are.
  edges_of([&] {
    return random() % 2 == 0 ? std::numeric_limits<double>::max() : -std::numeric_limits<double>::denorm_min();
  });
  edges_of([&] { return -std::numeric_limits<double>::max(); });
  edges_of([&] { return std::numeric_limits<double>::denorm_min(); });
  edges_of([&] { return 1 + static_cast<double>(random() % 5) * 0x1p-52; });
  EXPECT_TRUE(edges_of([&] { return random() % 2 == 0 ? 0.0 : kTestNaN; }).edges.empty());
}

TEST(ValueHistogram, FewIntegersHaveABinEach) {
  const std::int32_t values[] = {-2, 5, 5, 0, 7, 0};
  const Look look(view(values, {6}));
  const ValueCensus census = take_census(look);
  const HistogramEdges edges = choose_edges({&census, 1});
  ASSERT_EQ(edges.edges.size(), 11u);
  EXPECT_EQ(edges.edges.front(), -2.5);
  EXPECT_EQ(edges.edges.back(), 7.5);
  EXPECT_EQ(count_bins(look, census, edges), (std::vector<std::int64_t>{1, 0, 0, 0, 0, 0, 0, 2, 0, 1}));
  EXPECT_EQ(census.zero, 2);
}

TEST(ValueHistogram, ThreadsDoNotChangeIt) {
  std::mt19937_64 random(13);
  std::vector<float> values(5'000'000);
  for (const bool is_narrow : {false, true}) {
    for (float& x : values) x = static_cast<float>(random() % 1000) * 0.001F - (is_narrow ? -1.0F : 0.5F);
    const Look look(view(values.data(), {5'000'000}));
    const ValueCensus alone = take_census(look, 1), both = take_census(look, 2);
    EXPECT_EQ(alone.keys, both.keys);
    const HistogramEdges edges = choose_edges({&alone, 1});
    EXPECT_EQ(edges.is_linear, is_narrow);
    EXPECT_EQ(count_bins(look, alone, edges, 1), count_bins(look, both, edges, 2));
  }
}

TEST(ValueHistogram, OneSetOfEdgesForSeveral) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 20; ++round) {
    std::vector<LookCase> cases;
    std::vector<ValueCensus> censuses;
    for (int i = 0; i < 5; ++i) {
      cases.push_back(random_case(DType::F32, LookKind::Value, {50, 20}, random));
      censuses.push_back(take_census(cases.back().look()));
    }
    const HistogramEdges edges = choose_edges(censuses);
    expect_edges(edges);
    for (std::size_t i = 0; i < cases.size(); ++i)
      expect_histogram(cases[i].expected, censuses[i], edges, count_bins(cases[i].look(), censuses[i], edges));
  }
}

}  // namespace
}  // namespace tenscope::kernels
