#include "viewer/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/json_writer.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::InvalidArgument, message); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) refuse(fmt::format("cannot read the request: '{}' is no percent-encoded text", text));
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

template <class T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Answer json_answer(std::string body, bool is_final) {
  return {.status = 200, .type = "application/json", .body = std::move(body), .is_final = is_final};
}

Answer error_answer(int status, std::string_view sentence) {
  Answer answer{.status = status};
  JsonWriter(answer.body).begin_object().key("error").text(sentence).end_object();
  return answer;
}

void write_number(JsonWriter& json, double value) {
  if (std::isnan(value))
    json.text("nan");
  else if (std::isinf(value))
    json.text(value > 0 ? "inf" : "-inf");
  else
    json.number(value);
}

Parameters::Parameters(std::string_view query) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    std::string name = decode(part.substr(0, equals));
    std::string value = equals == part.npos ? "" : decode(part.substr(equals + 1));
    const auto [place, is_new] = values_.emplace(std::move(name), std::move(value));
    if (!is_new) refuse(fmt::format("the request gives '{}' twice", place->first));
  }
}

std::string Parameters::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) refuse(fmt::format("the request lacks '{}'", name));
  return found->second;
}

std::string Parameters::text(std::string_view name, std::string_view otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string(otherwise) : found->second;
}

std::int64_t Parameters::integer(std::string_view name) const {
  const std::string given = text(name);
  std::int64_t value = 0;
  if (!parse_all(given, value)) refuse(fmt::format("'{}' must be a whole number, and is '{}'", name, given));
  return value;
}

std::int64_t Parameters::integer(std::string_view name, std::int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}

double Parameters::number(std::string_view name, double otherwise) const {
  if (!has(name)) return otherwise;
  const std::string given = text(name);
  double value = 0;
  if (!parse_all(given, value) || std::isnan(value))
    refuse(fmt::format("'{}' must be a number, and is '{}'", name, given));
  return value;
}

std::pair<std::int64_t, std::int64_t> Parameters::range(std::string_view name, std::int64_t size) const {
  if (!has(name)) return {0, size};
  const std::string given = text(name);
  const std::string_view all = given;
  const std::size_t colon = all.find(':');
  const auto bound = [&](std::string_view part, std::int64_t absent) {
    std::int64_t value = absent;
    if (!part.empty() && !parse_all(part, value))
      refuse(fmt::format("'{}' must be a range such as 0:64, and is '{}'", name, given));
    return std::clamp<std::int64_t>(value, 0, size);
  };
  if (colon == all.npos) refuse(fmt::format("'{}' must be a range such as 0:64, and is '{}'", name, given));
  const std::int64_t begin = bound(all.substr(0, colon), 0), end = bound(all.substr(colon + 1), size);
  if (begin > end) refuse(fmt::format("the range '{}' of '{}' ends before it begins", given, name));
  return {begin, end};
}

}  // namespace tenscope::viewer
