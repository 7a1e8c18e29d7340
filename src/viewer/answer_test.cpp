#include "viewer/answer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "core/json_writer.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

TEST(Answer, ErrorsAreSentences) {
  const Answer answer = error_answer(404, "no \"such\" event");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.type, "application/json");
  EXPECT_EQ(answer.body, R"({"error":"no \"such\" event"})");
  EXPECT_FALSE(answer.is_final);
  EXPECT_TRUE(json_answer("{}", true).is_final);
  EXPECT_EQ(json_answer("{}").status, 200);
}

TEST(Answer, NumbersThatJsonLacksAreTexts) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double x : {1.5, std::numeric_limits<double>::quiet_NaN(), inf, -inf}) write_number(json, x);
  json.end_array();
  EXPECT_EQ(text, R"([1.5,"nan","inf","-inf"])");
}

TEST(Parameters, AreDecoded) {
  const Parameters parameters("event=5&slice=0%2C%3A&name=a+b%20c&empty=&alone&&t=1&bad=%C3%A9&rtol=1e-3");
  EXPECT_EQ(parameters.integer("event"), 5);
  EXPECT_EQ(parameters.text("slice"), "0,:");
  EXPECT_EQ(parameters.text("name"), "a b c");
  EXPECT_EQ(parameters.text("empty"), "");
  EXPECT_TRUE(parameters.has("alone"));
  EXPECT_TRUE(parameters.flag("t"));
  EXPECT_FALSE(parameters.flag("fold"));
  EXPECT_EQ(parameters.text("bad"), "\xC3\xA9");
  EXPECT_EQ(parameters.number("rtol", 0), 1e-3);
  EXPECT_EQ(parameters.number("atol", 0.5), 0.5);
  EXPECT_EQ(parameters.integer("step", -1), -1);
  EXPECT_EQ(parameters.text("side", "a"), "a");
  EXPECT_FALSE(parameters.has("side"));
}

TEST(Parameters, WhatIsWrongIsNamed) {
  const Parameters parameters("event=5x&big=99999999999999999999&rtol=nan");
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message([&] { parameters.integer("event"); }).find("'event'"), std::string::npos);
  EXPECT_NE(message([&] { parameters.integer("big"); }).find("'big'"), std::string::npos);
  EXPECT_NE(message([&] { parameters.number("rtol", 0); }).find("'rtol'"), std::string::npos);
  EXPECT_NE(message([&] { parameters.text("name"); }).find("'name'"), std::string::npos);
  EXPECT_NE(message([] { Parameters("a=1&a=2"); }), "");
  for (const char* query : {"a=%", "a=%4", "a=%zz", "%2=1"})
    EXPECT_NE(message([&] { Parameters{query}; }), "") << query;
}

TEST(Parameters, Ranges) {
  const auto range = [](std::string_view text) { return Parameters("rows=" + std::string(text)).range("rows", 10); };
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(range("3:7"), Range(3, 7));
  EXPECT_EQ(range(":7"), Range(0, 7));
  EXPECT_EQ(range("3:"), Range(3, 10));
  EXPECT_EQ(range(":"), Range(0, 10));
  EXPECT_EQ(range("-5:70"), Range(0, 10));
  EXPECT_EQ(range("20:30"), Range(10, 10));
  EXPECT_EQ(Parameters("").range("rows", 10), Range(0, 10));
  for (const char* text : {"5", "7:3", "a:b", "1:2:3", "1.5:2"}) EXPECT_THROW(range(text), Error) << text;
}

}  // namespace
}  // namespace tenscope::viewer
