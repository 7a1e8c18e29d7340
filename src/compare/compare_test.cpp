#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "compare/places.hpp"
#include "compare/tensor_diff.hpp"
#include "compare/value_diff.hpp"
#include "format/format.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;

Value tensor(std::vector<float> values, std::initializer_list<std::int64_t> shape) {
  return Tensor::copy_of(view(values.data(), shape));
}

Value dict(std::vector<std::pair<Value, Value>> entries) { return Dict{.entries = std::move(entries)}; }

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("tenscope_compare_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const {
    fs::create_directories((path_ / name).parent_path());
    return path_ / name;
  }

 private:
  fs::path path_;
};

TEST(TensorDiff, SaysWhereTheMismatchesAre) {
  std::vector<float> a(8 * 128);
  const auto where = [&](auto&& is_wrong) {
    auto b = a;
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 128; ++column) {
        if (is_wrong(row, column)) b[static_cast<std::size_t>(row * 128 + column)] = 1;
      }
    }
    return diff_tensors(view(a.data(), {8, 128}), view(b.data(), {8, 128})).where;
  };
  EXPECT_EQ(where([](int, int) { return false; }), "");
  EXPECT_EQ(where([](int, int) { return true; }), "everywhere");
  EXPECT_EQ(where([](int, int column) { return column >= 64; }), "all of [:, 64:128]");
  EXPECT_EQ(where([](int row, int column) { return column >= 64 && (row + column) % 2 == 0; }), "all in [:, 64:128]");
  EXPECT_EQ(where([](int row, int) { return row == 3 || row == 7; }), "all of rows 3 and 7");
  EXPECT_EQ(where([](int row, int) { return row == 3; }), "all of row 3");
  EXPECT_EQ(where([](int row, int column) { return row == 3 && column == 5; }), "all of [3, 5]");
  EXPECT_EQ(where([](int row, int column) { return (row == 3 || row == 5) && column < 2; }), "all of [{3, 5}, 0:2]");
  EXPECT_EQ(where([](int row, int column) { return (row + column) % 2 == 0; }), "spread over all of it");
}

TEST(TensorDiff, VerdictsAndDefaultTolerances) {
  const std::vector<float> a{1.0F, 2.0F};
  const std::vector<float> near{1.000001F, 2.0F};
  const std::vector<float> far{1.001F, 2.0F};
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(a.data(), {2})).verdict, Verdict::Identical);
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(near.data(), {2})).verdict, Verdict::Close);
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(far.data(), {2})).verdict, Verdict::Different);
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(near.data(), {2}), {.ulps = 1}).verdict, Verdict::Different);
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(near.data(), {2}), {.ulps = 20}).verdict, Verdict::Close);
  EXPECT_EQ(diff_tensors(view(a.data(), {2}), view(a.data(), {1, 2})).verdict, Verdict::Different);
  const std::vector<std::int64_t> big{(std::int64_t{1} << 53) + 1};
  const std::vector<std::int64_t> less{std::int64_t{1} << 53};
  const auto integers = diff_tensors(view(big.data(), {1}), view(less.data(), {1}));
  EXPECT_EQ(integers.verdict, Verdict::Different);
  EXPECT_EQ(integers.worst->a, "9007199254740993");
}

TEST(TensorDiff, TheFirstIsTheReference) {
  const std::vector<double> a{100, std::nan(""), HUGE_VAL, HUGE_VAL};
  const std::vector<double> b{110, 1, 1, 1};
  const auto there = diff_tensors(view(a.data(), {4}), view(b.data(), {4}), {.rtol = 0.095});
  const auto back = diff_tensors(view(b.data(), {4}), view(a.data(), {4}), {.rtol = 0.095});
  EXPECT_EQ(there.mismatches, 4);
  EXPECT_EQ(back.mismatches, 3);
  EXPECT_EQ(there.max_rel, 0.1);
  EXPECT_EQ(there.mean_rel, 0.1);
  EXPECT_EQ(there.relative_l2, 0.1);
  EXPECT_EQ(back.max_rel, 10.0 / 110.0);
  EXPECT_EQ(there.nan_only_a, 1);
  EXPECT_EQ(there.nan_only_b, 0);
  EXPECT_EQ(there.inf_only_a, 2);
  EXPECT_EQ(back.inf_only_b, 2);
  EXPECT_EQ(there.worst->a, "100.0");
  EXPECT_EQ(there.worst->b, "110.0");
  const auto numbers = [](double x, double y) { return diff_values(x, y, {.rtol = 0.095}).is_different(); };
  EXPECT_TRUE(numbers(100, 110));
  EXPECT_FALSE(numbers(110, 100));
  EXPECT_TRUE(same_values(100.0, 110.0, {.tolerance = {0, 0.095}}));  // as NumPy's allclose
  EXPECT_FALSE(same_values(110.0, 100.0, {.tolerance = {0, 0.095}}));
}

TEST(TensorDiff, AnswerInOneLine) {
  const std::vector<float> a{1, 2, 3, 4};
  const std::vector<float> b{1, 2, 3, 5};
  const auto diff = diff_tensors(view(a.data(), {4}), view(b.data(), {4}));
  EXPECT_EQ(summary_line(diff), "different: 1 of 4 elements (25 %) beyond atol 1e-05, rtol 1.3e-06, all of [3]");
}

TEST(ValueDiff, StructureCounts) {
  const Value a = dict({{"w", tensor({1, 2}, {2})}, {"n", 3}, {"only", 1.5}});
  const Value b = dict({{"n", 3}, {"w", tensor({1, 2}, {2})}});
  const auto diff = diff_values(a, b);
  EXPECT_EQ(diff.different, 1);
  EXPECT_EQ(diff.one_sided, 1);
  EXPECT_EQ(diff.tensors, 1);
  const kernels::CompareOptions options;
  EXPECT_FALSE(same_values(a, b, options));
  EXPECT_TRUE(same_values(b, b, options));
  EXPECT_FALSE(same_values(List{{1, 2}}, Tuple{{1, 2}}, options));
  EXPECT_FALSE(same_values(List{{1, 2}}, List{{1}}, options));
  EXPECT_TRUE(same_values(1, 1.0, options));
  EXPECT_TRUE(same_values(true, 1, options));
  EXPECT_TRUE(same_values(1.0, 1.0 + 1e-9, options));
  EXPECT_FALSE(same_values(100000001, 100000000, options));
  EXPECT_FALSE(same_values(std::nan(""), std::nan(""), options));
  EXPECT_TRUE(same_values(std::nan(""), std::nan(""), {.equal_nan = true}));
  EXPECT_TRUE(same_values(tensor({1.5F}, {}), 1.5, options));
  EXPECT_FALSE(same_values(tensor({1.5F}, {1}), 1.5, options));
  EXPECT_FALSE(same_values(BigInt{"123456789012345678901"}, BigInt{"123456789012345678902"}, options));
  EXPECT_FALSE(same_values("a", "b", options));
  EXPECT_FALSE(same_values(nullptr, 0, options));
}

TEST(PathDiff, FoldersArePairedByNameAndOneSidedFilesCount) {
  const Folder folder;
  save(folder / "a/x.npy", tensor({1, 2}, {2}));
  save(folder / "b/x.pt", tensor({1, 2}, {2}));
  save(folder / "a/sub/y.npy", tensor({1, 2}, {2}));
  save(folder / "b/sub/y.npy", tensor({1, 9}, {2}));
  save(folder / "a/z.npy", tensor({1}, {1}));
  std::ofstream(folder / "a/bad.npy") << "junk";
  std::ofstream(folder / "b/bad.npy") << "junk";
  const auto diff = diff_paths(folder / "a", folder / "b");
  EXPECT_EQ(diff.files, 3);
  EXPECT_EQ(diff.one_sided, 1);
  EXPECT_EQ(diff.trouble, 1);
  EXPECT_EQ(diff.different, 3);
  EXPECT_EQ(diff.tensors, 2);
  std::string text;
  JsonWriter json(text);
  write_json(json, diff);
  EXPECT_NE(text.find(R"("name":"sub/y.npy","status":"different")"), std::string::npos) << text;
  EXPECT_THROW(diff_paths(folder / "a", folder / "a/x.npy"), Error);
  EXPECT_THROW(diff_paths(folder / "a", folder / "none"), Error);
  EXPECT_FALSE(diff_paths(folder / "a/x.npy", folder / "b/x.pt").is_different());
}

}  // namespace
}  // namespace tenscope
