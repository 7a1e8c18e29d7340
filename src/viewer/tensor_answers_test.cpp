#include "viewer/tensor_answers.hpp"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/element.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Array = simdjson::dom::array;
using Element = simdjson::dom::element;

// The body of an answer, read back.
class Json {
 public:
  explicit Json(const Answer& answer) : Json(answer.body) { EXPECT_EQ(answer.status, 200); }
  explicit Json(const std::string& text) : root_(parser_.parse(text)) {}

  Element operator[](std::string_view key) const { return root_.at_key(key).value(); }
  std::int64_t integer(std::string_view key) const { return (*this)[key].get_int64(); }
  double number(std::string_view key) const { return (*this)[key].get_double(); }
  std::string text(std::string_view key) const { return std::string((*this)[key].get_string().value()); }
  bool is_null(std::string_view key) const { return (*this)[key].is_null(); }
  bool has(std::string_view key) const { return root_.at_key(key).error() == simdjson::SUCCESS; }

  std::vector<std::int64_t> integers(std::string_view key) const {
    std::vector<std::int64_t> result;
    for (const Element one : Array((*this)[key])) result.push_back(one.get_int64());
    return result;
  }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> result;
    for (const Element one : Array((*this)[key])) result.emplace_back(one.get_string().value());
    return result;
  }

 private:
  simdjson::dom::parser parser_;
  Element root_;
};

// A tile, taken apart.
struct TileParts {
  std::string header;
  std::vector<std::vector<float>> planes;
  std::vector<std::uint8_t> flags;
};

TileParts take_apart(const Answer& answer) {
  TileParts parts;
  EXPECT_EQ(answer.type, "application/octet-stream");
  EXPECT_EQ(answer.body.substr(0, 4), "TST1");
  std::uint32_t length = 0;
  std::memcpy(&length, answer.body.data() + 4, 4);
  EXPECT_EQ(length % 8, 0u);
  parts.header = answer.body.substr(8, length);
  const Json header(parts.header);
  const auto cells = static_cast<std::size_t>(header.integer("height") * header.integer("width"));
  const std::size_t planes = header.texts("planes").size() - 1;
  EXPECT_EQ(header.texts("planes").back(), "flags");
  const char* at = answer.body.data() + 8 + length;
  EXPECT_EQ(answer.body.size(), 8 + length + cells * (4 * planes + 1));
  for (std::size_t i = 0; i < planes; ++i) {
    parts.planes.emplace_back(cells);
    if (cells > 0) std::memcpy(parts.planes.back().data(), at, cells * 4);
    at += cells * 4;
  }
  parts.flags.assign(at, at + cells);
  return parts;
}

std::vector<float> ramp(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

// A pair that holds its shapes.
struct HeldPair {
  ShapedView a;
  std::optional<ShapedView> b;
  operator TensorPair() const { return {a, b ? std::optional<TensorView>(*b) : std::nullopt}; }  // NOLINT: implicit
};

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::Io;
}

TEST(TileAnswer, LastTwoAxesByDefault) {
  const auto values = ramp(2 * 3 * 4);
  const auto tensor = view(values.data(), {2, 3, 4});
  const TileParts tile = take_apart(tile_answer({tensor, {}}, Parameters("event=1")));
  const Json header(tile.header);
  EXPECT_EQ(header.integers("rows"), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(header.integers("cols"), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(header.integer("of_rows"), 3);
  EXPECT_EQ(header.integer("of_cols"), 4);
  EXPECT_TRUE(header["exact"].get_bool().value());
  EXPECT_EQ(header.texts("planes"), (std::vector<std::string>{"value", "flags"}));
  EXPECT_EQ(header.integers("axes"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(header.integers("shape"), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(header.text("slice"), "0,:,:");
  EXPECT_EQ(header.text("dtype"), "float32");
  const Json scale(std::string(simdjson::minify(header["scale"])));
  EXPECT_EQ(scale.number("min"), 0);
  EXPECT_EQ(scale.number("max"), 11);
  EXPECT_EQ(scale.number("abs"), 11);
  EXPECT_EQ(scale.number("p999"), 11);
  EXPECT_EQ(scale.integer("zero"), 1);
  EXPECT_EQ(tile.planes[0], ramp(12));
  EXPECT_FALSE(Json(take_apart(tile_answer({tensor, {}}, Parameters("scale=0"))).header).has("scale"));
}

TEST(TileAnswer, SlicesFoldsAndTurns) {
  const auto values = ramp(2 * 3 * 4);
  const auto tensor = view(values.data(), {2, 3, 4});
  struct Case {
    const char* query;
    std::int64_t height, width;
    std::vector<std::int64_t> axes;
    std::vector<float> expected;
  };
  const Case cases[] = {
      {"slice=1,:,2", 1, 3, {-1, 1}, {14, 18, 22}},
      {"slice=:,1,:", 2, 4, {0, 2}, {4, 5, 6, 7, 16, 17, 18, 19}},
      {"slice=:,1,:&t=1", 4, 2, {2, 0}, {4, 16, 5, 17, 6, 18, 7, 19}},
      {"slice=...,-1", 2, 3, {0, 1}, {3, 7, 11, 15, 19, 23}},
      {"slice=1,%20::2,%203", 1, 2, {-1, 1}, {15, 23}},
      {"slice=1,2,3", 1, 1, {-1, -1}, {23}},
      {"slice=1,2,3&t=1", 1, 1, {-1, -1}, {23}},
      {"slice=1", 3, 4, {1, 2}, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
      {"slice=0,0&t=1", 4, 1, {2, -1}, {0, 1, 2, 3}},
      {"fold=1", 6, 4, {-2, 2}, ramp(24)},
      {"fold=1&rows=5:&cols=1:3", 1, 2, {-2, 2}, {21, 22}},
      {"fold=1&t=1&cols=4:6&rows=:2", 2, 2, {2, -2}, {16, 20, 17, 21}},
      {"rows=1:3&cols=2:3&slice=0,::-1", 2, 1, {1, 2}, {6, 2}},
  };
  for (const Case& one : cases) {
    const TileParts tile = take_apart(tile_answer({tensor, {}}, Parameters(one.query)));
    const Json header(tile.header);
    EXPECT_EQ(header.integer("height"), one.height) << one.query;
    EXPECT_EQ(header.integer("width"), one.width) << one.query;
    EXPECT_EQ(header.integers("axes"), one.axes) << one.query;
    EXPECT_EQ(tile.planes[0], one.expected) << one.query;
  }
}

TEST(TileAnswer, FewAxesAndNoElements) {
  const float one = 3;
  const TileParts single = take_apart(tile_answer({view(&one, {}), {}}, Parameters("")));
  EXPECT_EQ(single.planes[0], std::vector<float>{3});
  EXPECT_EQ(Json(single.header).integers("axes"), (std::vector<std::int64_t>{-1, -1}));
  const auto values = ramp(5);
  const TileParts row = take_apart(tile_answer({view(values.data(), {5}), {}}, Parameters("")));
  EXPECT_EQ(Json(row.header).integer("height"), 1);
  EXPECT_EQ(Json(row.header).integers("axes"), (std::vector<std::int64_t>{-1, 0}));
  EXPECT_EQ(Json(take_apart(tile_answer({view(values.data(), {5}), {}}, Parameters("t=1"))).header).integer("height"),
            5);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0}, {3, 0}, {0, 3}, {0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0, 7}}) {
    for (const char* query : {"", "fold=1", "t=1", "slice=...,0:0"}) {
      if (shape.size() != 2 && std::string_view(query).starts_with("slice")) continue;
      const TensorView empty{nullptr, DType::F32, shape, {}};
      const TileParts tile = take_apart(tile_answer({empty, empty}, Parameters(query)));
      const Json header(tile.header);
      EXPECT_EQ(header.integer("height") * header.integer("width"), 0) << query;
      EXPECT_TRUE(tile.flags.empty());
      const Json scale(std::string(simdjson::minify(header["scale"])));
      EXPECT_EQ(scale.text("p999"), "nan");
      EXPECT_EQ(take_apart(tile_answer({empty, empty}, Parameters(std::string(query) + "&of=diff"))).flags.size(), 0u);
    }
  }
}

TEST(TileAnswer, ReducesAnyStridesAlike) {
  // A matrix of 64 x 96 as it is, in Fortran's order, and backwards.
  std::mt19937 random(1);
  std::vector<float> plain(64 * 96), turned(plain.size()), backward(plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    plain[i] = static_cast<float>(random() % 1000) - 500;
    if (random() % 50 == 0) plain[i] = random() % 2 == 0 ? kNaN : -kInf;
    turned[i % 96 * 64 + i / 96] = plain[i];
    backward[plain.size() - 1 - i] = plain[i];
  }
  const auto a = view(plain.data(), {64, 96}), b = view(turned.data(), {64, 96}, {1, 64}),
             c = view(&backward.back(), {64, 96}, {-96, -1});
  for (const char* query :
       {"h=7&w=10", "h=7&w=10&t=1", "h=64&w=3&rows=3:60", "rows=2:9&cols=5:7", "h=1&w=1&t=1&cols=1:50"}) {
    const TileParts first = take_apart(tile_answer({a, {}}, Parameters(query)));
    for (const TensorView& other : {TensorView(b), TensorView(c)}) {
      const TileParts second = take_apart(tile_answer({other, {}}, Parameters(query)));
      EXPECT_EQ(second.header, first.header) << query;
      EXPECT_EQ(second.flags, first.flags) << query;
      ASSERT_EQ(second.planes.size(), first.planes.size());
      for (std::size_t plane = 0; plane < first.planes.size(); ++plane) {
        for (std::size_t i = 0; i < first.planes[plane].size(); ++i) {
          const float x = first.planes[plane][i], y = second.planes[plane][i];
          EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) < 1e-3) << query;
        }
      }
    }
  }
  // A cell of 4096 = 64 * 96 / 1.5 elements by hand.
  const TileParts whole = take_apart(tile_answer({a, {}}, Parameters("h=1&w=1")));
  float least = kInf, most = -kInf;
  for (const float x : plain) {
    if (!std::isfinite(x)) continue;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_EQ(whole.planes[0][0], least);
  EXPECT_EQ(whole.planes[1][0], most);
  EXPECT_EQ(whole.flags[0], 1 | 4);
}

TEST(TileAnswer, Pairs) {
  const float a[] = {1, 0, kNaN, kNaN, kInf, 2};
  const float b[] = {1, 2, kNaN, 1, kInf, 1};
  const HeldPair pair{view(a, {6}), view(b, {6})};
  const TileParts difference = take_apart(tile_answer(pair, Parameters("of=diff")));
  EXPECT_EQ(difference.flags, (std::vector<std::uint8_t>{0, 8, 0, 9, 0, 8}));
  EXPECT_EQ(difference.planes[0][1], 2);
  EXPECT_EQ(difference.planes[0][2], 0);
  EXPECT_TRUE(std::isnan(difference.planes[0][3]));
  EXPECT_EQ(difference.planes[0][5], -1);
  const TileParts relative = take_apart(tile_answer(pair, Parameters("of=rel")));
  EXPECT_EQ(relative.flags, (std::vector<std::uint8_t>{0, 10, 0, 9, 0, 8}));
  EXPECT_EQ(relative.planes[0][1], kInf);
  EXPECT_EQ(relative.planes[0][5], 0.5F);
  EXPECT_EQ(take_apart(tile_answer(pair, Parameters("of=ulp"))).planes[0][5], 8388608);
  EXPECT_EQ(take_apart(tile_answer(pair, Parameters("of=b"))).planes[0][1], 2);
  const TileParts cell = take_apart(tile_answer(pair, Parameters("of=diff&w=2")));
  EXPECT_EQ(cell.flags, (std::vector<std::uint8_t>{8, 9}));
}

TEST(TileAnswer, WhatDoesNotFitIsRefused) {
  const auto values = ramp(24);
  const auto tensor = view(values.data(), {2, 3, 4});
  const std::int32_t whole[24] = {};
  const HeldPair alone{tensor, {}}, mixed{tensor, view(whole, {2, 3, 4})}, uneven{tensor, view(whole, {3, 2, 4})};
  for (const char* query :
       {"slice=:", "slice=5", "slice=0,0,0,0", "slice=x", "fold=1&slice=0", "h=0", "w=100000", "of=c", "rows=3"}) {
    EXPECT_EQ(code_of([&] { tile_answer(alone, Parameters(query)); }), ErrorCode::InvalidArgument) << query;
  }
  for (const char* query : {"of=b", "of=diff", "of=rel", "of=ulp"}) {
    EXPECT_EQ(code_of([&] { tile_answer(alone, Parameters(query)); }), ErrorCode::NotFound) << query;
    EXPECT_EQ(code_of([&] { tile_answer(uneven, Parameters(query)); }), ErrorCode::InvalidArgument) << query;
  }
  EXPECT_EQ(code_of([&] { tile_answer(mixed, Parameters("of=ulp")); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(tile_answer(mixed, Parameters("of=diff")).status, 200);
}

TEST(TileAnswer, ManyAxes) {
  std::vector<std::int64_t> shape(64, 1);
  shape[0] = 2;
  shape[63] = 3;
  const auto values = ramp(6);
  const TensorView tensor{values.data(), DType::F32, shape, {}};
  EXPECT_EQ(take_apart(tile_answer({tensor, {}}, Parameters("fold=1"))).planes[0], ramp(6));
  EXPECT_EQ(take_apart(tile_answer({tensor, {}}, Parameters(""))).planes[0], ramp(3));
}

TEST(ElementsAnswer, DigitsReadBack) {
  const float values[] = {0.1F, 1e-5F, kNaN, -kInf, 3, 16777216};
  const Json json(elements_answer({view(values, {2, 3}), {}}, Parameters("t=1&rows=1:3")));
  EXPECT_EQ(json.integers("rows"), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(json.integers("cols"), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(std::string(simdjson::minify(json["text"])), R"([["1e-05","3.0"],["nan","1.6777216e+07"]])");
  const Json all(elements_answer({view(values, {6}), {}}, Parameters("")));
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string text{Array(all["text"]).at(0).at(i).get_string().value()};
    if (std::isnan(values[i])) continue;
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), values[i]) << text;
  }
  const std::int64_t a[] = {INT64_MAX, -1}, b[] = {INT64_MIN, 1};
  const HeldPair pair{view(a, {2}), view(b, {2})};
  const auto texts = [&](const char* query) {
    return std::string(simdjson::minify(Json(elements_answer(pair, Parameters(query)))["text"]));
  };
  EXPECT_EQ(texts("of=a"), R"([["9223372036854775807","-1"]])");
  EXPECT_EQ(texts("of=b"), R"([["-9223372036854775808","1"]])");
  EXPECT_EQ(texts("of=diff"), R"([["-18446744073709551615","2"]])");
  EXPECT_EQ(texts("of=rel"), R"([["2.0","2.0"]])");
  const auto many = ramp(5000);
  EXPECT_EQ(code_of([&] { elements_answer({view(many.data(), {5000}), {}}, Parameters("")); }),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(elements_answer({view(many.data(), {5000}), {}}, Parameters("cols=904:")).status, 200);
}

TEST(ElementAnswer, BitsAndDistances) {
  const float a[] = {1, 2, -1, 0}, b[] = {1, 2.0000005F, 1, kNaN};
  const HeldPair pair{view(a, {2, 2}), view(b, {2, 2})};
  const Json near(element_answer(pair, Parameters("index=0,1")));
  EXPECT_EQ(near.integers("index"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(std::string(simdjson::minify(near["a"])), R"({"text":"2.0","bits":"40000000","dtype":"float32"})");
  EXPECT_EQ(near["b"]["bits"].get_string().value(), "40000002");
  EXPECT_EQ(near.text("difference"), "4.76837158203125e-07");
  EXPECT_EQ(near.number("relative"), 4.76837158203125e-07 / 2);
  EXPECT_EQ(near.integer("ulp"), 2);
  const Json nan(element_answer(pair, Parameters("index=1,1")));
  EXPECT_EQ(nan.text("difference"), "nan");
  EXPECT_EQ(nan.text("relative"), "nan");
  EXPECT_TRUE(nan.is_null("ulp"));
  const Json alone(element_answer({view(a, {4}), {}}, Parameters("index=2")));
  EXPECT_EQ(alone["a"]["bits"].get_string().value(), "bf800000");
  EXPECT_TRUE(alone.is_null("b") && alone.is_null("difference") && alone.is_null("relative") && alone.is_null("ulp"));
  const std::complex<float> z(1, -2);
  const Json complex(element_answer({view(&z, {}), view(&z, {})}, Parameters("index=")));
  EXPECT_EQ(complex["a"]["text"].get_string().value(), "(1-2j)");
  EXPECT_EQ(complex["a"]["bits"].get_string().value(), "3f800000 c0000000");
  const std::uint16_t half = 0x3C01;
  EXPECT_EQ(Json(element_answer({view(&half, DType::BF16, {}), {}}, Parameters("")))["a"]["bits"].get_string().value(),
            "3c01");
  for (const char* query : {"index=0", "index=0,2", "index=-1,0", "index=a,b", "index=0,1,", "index=0,,1", ""}) {
    EXPECT_EQ(code_of([&] { element_answer(pair, Parameters(query)); }), ErrorCode::InvalidArgument) << query;
  }
}

TEST(FindAnswer, GoesRoundOnce) {
  const float a[] = {1, kNaN, 3, -kInf, kNaN, 5}, b[] = {1, kNaN, 3.5F, 2, kNaN, 4};
  const HeldPair pair{view(a, {2, 3}), view(b, {2, 3})};
  const auto find = [&](const char* query) {
    const Json json(find_answer(pair, Parameters(query)));
    return std::string(simdjson::minify(json["index"])) + " " + std::string(simdjson::minify(json["count"]));
  };
  EXPECT_EQ(find("what=nan"), "[0,1] 2");
  EXPECT_EQ(find("what=nan&from=0,1"), "[1,1] 2");
  EXPECT_EQ(find("what=nan&from=1,1"), "[0,1] 2");
  EXPECT_EQ(find("what=nan&from=0,0&back=1"), "[1,1] 2");
  EXPECT_EQ(find("what=nan&back=1"), "[1,1] 2");
  EXPECT_EQ(find("what=nan&count=0"), "[0,1] null");
  EXPECT_EQ(find("what=inf&from=1,0"), "[1,0] 1");
  EXPECT_EQ(find("what=inf&of=b"), "null 0");
  EXPECT_EQ(find("what=bad"), "[0,1] 3");
  EXPECT_EQ(find("what=largest"), "[1,2] 1");
  EXPECT_EQ(find("what=differs"), "[0,2] 3");
  EXPECT_EQ(find("what=worst"), "[1,2] 1");
  EXPECT_EQ(find("what=mismatch&rtol=0&atol=0.6"), "[1,0] 2");
  EXPECT_EQ(find("what=mismatch&rtol=0.2&atol=0"), "[1,0] 1");
  const HeldPair same{pair.a, pair.a};
  for (const char* what : {"worst", "differs", "mismatch"})
    EXPECT_TRUE(Json(find_answer(same, Parameters(std::string("what=") + what))).is_null("index")) << what;
  EXPECT_EQ(code_of([&] { find_answer(pair, Parameters("what=best")); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([&] { find_answer(pair, Parameters("what=nan&from=9,9")); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([&] { find_answer(HeldPair{pair.a, {}}, Parameters("what=worst")); }), ErrorCode::NotFound);
  EXPECT_EQ(code_of([&] { find_answer(pair, Parameters("what=mismatch&rtol=-1")); }), ErrorCode::InvalidArgument);
}

TEST(ToleranceAnswer, MeasuresBAgainstA) {
  const float a[] = {1, 2, kNaN, 4}, b[] = {1, 2.5F, kNaN, 4};
  const HeldPair pair{view(a, {4}), view(b, {4})};
  const Json json(tolerance_answer(pair, Parameters("rtol=0.1&atol=0")));
  EXPECT_EQ(json.integer("mismatches"), 1);
  EXPECT_EQ(json.integer("count"), 4);
  EXPECT_EQ(json.number("max_abs"), 0.5);
  EXPECT_EQ(json.number("max_rel"), 0.25);
  EXPECT_EQ(json.integer("max_ulps"), 0x40200000 - 0x40000000);
  EXPECT_NEAR(json.number("relative_l2"), 0.5 / std::sqrt(21.0), 1e-12);
  EXPECT_EQ(Json(tolerance_answer(pair, Parameters("rtol=0.3&atol=0"))).integer("mismatches"), 0);
  EXPECT_EQ(code_of([&] { tolerance_answer(HeldPair{pair.a, {}}, Parameters("")); }), ErrorCode::NotFound);
}

TEST(ProfileAnswer, AlongAnAxis) {
  const float a[] = {1, 2, 3, kNaN, 5, 6}, b[] = {1, 2, 4, kNaN, 5, 7};
  const HeldPair pair{view(a, {2, 3}), view(b, {2, 3})};
  const Json rows(profile_answer(pair, Parameters("axis=0")));
  EXPECT_EQ(rows.integer("size"), 2);
  EXPECT_EQ(rows.integer("bin"), 1);
  EXPECT_EQ(std::string(simdjson::minify(rows["min"])), "[1.0,5.0]");
  EXPECT_EQ(std::string(simdjson::minify(rows["mean"])), "[2.0,5.5]");
  EXPECT_EQ(rows.integers("bad"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(rows.is_null("differing"));
  const Json columns(profile_answer(pair, Parameters("axis=1&of=diff")));
  EXPECT_EQ(columns.integers("differing"), (std::vector<std::int64_t>{0, 0, 2}));
  EXPECT_EQ(std::string(simdjson::minify(columns["max"])), "[0.0,0.0,1.0]");
  for (const char* query : {"axis=2", "axis=-1", ""})
    EXPECT_EQ(code_of([&] { profile_answer(pair, Parameters(query)); }), ErrorCode::InvalidArgument);
}

TEST(HistogramAnswer, EveryElementIsCountedOnce) {
  std::mt19937_64 random(2);
  std::vector<float> values(1000);
  for (float& x : values) x = static_cast<float>(std::normal_distribution<double>()(random));
  values[0] = values[1] = 0;
  values[2] = kNaN;
  values[3] = kInf;
  values[4] = values[5] = values[6] = -kInf;
  values[7] = 1e-40F;
  const Json json(histogram_answer({view(values.data(), {10, 100}), {}}, Parameters("")));
  EXPECT_EQ(json.integer("zero"), 2);
  EXPECT_EQ(json.integer("nan"), 1);
  EXPECT_EQ(json.integer("pos_inf"), 1);
  EXPECT_EQ(json.integer("neg_inf"), 3);
  EXPECT_EQ(json.integer("subnormal"), 1);
  std::int64_t total = 7;
  for (const std::int64_t count : json.integers("counts")) total += count;
  EXPECT_EQ(total, 1000);
  EXPECT_EQ(Array(json["edges"]).size(), Array(json["counts"]).size() + 1);
}

TEST(HistogramsAnswer, StepsShareTheirEdges) {
  const float first[] = {1, 2, 0}, second[] = {-4, 0.001F, kNaN, 8};
  const ShapedView early = view(first, {3}), late = view(second, {4});
  const HistogramStep steps[] = {{0, 17, {early, {}}}, {5, 40, {late, early}}};
  const Json json(histograms_answer(steps, 3));
  EXPECT_EQ(json.integer("left_out"), 3);
  const Array list(json["steps"]);
  ASSERT_EQ(list.size(), 2u);
  const auto total = [](Element one) {
    std::int64_t sum = 0;
    for (const Element count : Array(one["counts"])) sum += count.get_int64().value();
    return sum;
  };
  EXPECT_EQ(list.at(0)["step"].get_int64().value(), 0);
  EXPECT_EQ(list.at(0)["event"].get_int64().value(), 17);
  EXPECT_EQ(list.at(0)["zero"].get_int64().value(), 1);
  EXPECT_TRUE(list.at(0)["b"].value().is_null());
  EXPECT_EQ(total(list.at(0)), 2);
  EXPECT_EQ(total(list.at(1)), 3);
  EXPECT_EQ(list.at(1)["nan"].get_int64().value(), 1);
  EXPECT_EQ(total(list.at(1)["b"]), 2);
  EXPECT_EQ(Array(list.at(1)["b"]["counts"]).size() + 1, Array(json["edges"]).size());
  EXPECT_EQ(Array(Json(histograms_answer({}, 0))["edges"]).size(), 0u);
}

// Every answer of every type, with and without elements, can be made.
TEST(TensorAnswers, EveryType) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<std::byte> a(60 * item_size(dtype)), b(a.size());
    for (auto& byte : a) byte = static_cast<std::byte>(random());
    for (auto& byte : b) byte = static_cast<std::byte>(random());
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {60}, {5, 12}, {3, 4, 5}, {3, 0, 5}}) {
      const TensorPair pair{{a.data(), dtype, shape, {}}, TensorView{b.data(), dtype, shape, {}}};
      const bool is_float = kind_of(dtype) == DTypeKind::Float;
      for (const std::string of : {"a", "b", "diff", "rel", "ulp"}) {
        if (of == "ulp" && !is_float) continue;
        const Parameters parameters("axis=0&h=3&w=3&of=" + of);
        take_apart(tile_answer(pair, parameters));
        Json{elements_answer(pair, parameters)};
        Json{histogram_answer(pair, parameters)};
        if (!shape.empty()) Json{profile_answer(pair, parameters)};
      }
      for (const char* what : {"worst", "largest", "nan", "inf", "bad", "differs", "mismatch"})
        Json{find_answer(pair, Parameters(std::string("what=") + what))};
      Json{tolerance_answer(pair, Parameters(""))};
      if (shape.size() == 1) Json{element_answer(pair, Parameters("index=59"))};
    }
  }
}

}  // namespace
}  // namespace tenscope::viewer
