#include "core/json_writer.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace tenscope {
namespace {

std::string text(std::string_view value) {
  std::string out;
  append_json_text(out, value);
  return out;
}

std::string number(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

TEST(JsonWriter, places_commas) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("a").begin_array().number(1).number(2.0).begin_object().end_object().end_array();
  json.key("b").text("x").key("c").null().key("d").boolean(true).end_object();
  EXPECT_EQ(out, R"({"a":[1,2.0,{}],"b":"x","c":null,"d":true})");
}

TEST(JsonWriter, escapes_text) {
  EXPECT_EQ(text("a\"b\\c\n\t\x01"), R"("a\"b\\c\n\t\u0001")");
  EXPECT_EQ(text("é→😀"), "\"é→😀\"");
}

TEST(JsonWriter, replaces_what_is_not_utf8) {
  EXPECT_EQ(text("a\xFFz"), "\"a\xEF\xBF\xBDz\"");
  EXPECT_EQ(text("\xC3"), "\"\xEF\xBF\xBD\"");                                  // cut short
  EXPECT_EQ(text("\xC0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                  // overlong
  EXPECT_EQ(text("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
}

TEST(JsonWriter, numbers_read_back) {
  EXPECT_EQ(number(1), "1.0");
  EXPECT_EQ(number(-0.0), "-0.0");
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(1e300), "1e+300");
  EXPECT_EQ(number(5e-324), "5e-324");
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), R"({"float":"nan"})");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), R"({"float":"-inf"})");
}

}  // namespace
}  // namespace tenscope
