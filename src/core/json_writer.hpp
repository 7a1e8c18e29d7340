#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenscope {

// Appends `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD, so the result always
// parses.
void append_json_text(std::string& out, std::string_view text);

// Appends a number so that it reads back bit for bit and as a floating-point number (1 is written 1.0); what JSON lacks
// is written as the run folder's format does: {"float":"nan"}.
void append_json_number(std::string& out, double value);

// Writes one JSON document into a string, placing commas itself:
//   JsonWriter(text).begin_object().key("name").text("q").key("shape").begin_array().number(2).end_array().end_object();
// `out` must outlive it. The caller closes what it opens.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& number(double value);
  JsonWriter& number(std::int64_t value);
  JsonWriter& number(std::uint64_t value);
  JsonWriter& number(int value) { return number(static_cast<std::int64_t>(value)); }
  JsonWriter& raw(std::string_view json);  // a value that is JSON already

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace tenscope
