#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tenscope {
class JsonWriter;
}

namespace tenscope::viewer {

// What is sent back for one request.
struct Answer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  bool is_final = false;  // the same request will always be answered so: the browser may keep it
};

Answer json_answer(std::string body, bool is_final = false);
Answer error_answer(int status, std::string_view sentence);

// A number; what JSON lacks as the text "nan", "inf" or "-inf".
void write_number(JsonWriter& json, double value);

// The query of a request: "event=5&slice=0%2C%3A". What is missing or wrong is an InvalidArgument that names it.
class Parameters {
 public:
  explicit Parameters(std::string_view query);

  bool has(std::string_view name) const { return values_.contains(name); }
  std::string text(std::string_view name) const;
  std::string text(std::string_view name, std::string_view otherwise) const;
  std::int64_t integer(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;
  bool flag(std::string_view name) const { return text(name, "0") == "1"; }
  // "3:7" of an axis of `size`, both ends optional, what lies outside is cut off; all of it where the parameter is
  // absent.
  std::pair<std::int64_t, std::int64_t> range(std::string_view name, std::int64_t size) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace tenscope::viewer
