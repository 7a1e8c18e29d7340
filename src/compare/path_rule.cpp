#include "compare/path_rule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tenscope/error.hpp"

namespace tenscope::compare {

PathRule::PathRule(const std::string& rule) {
  const auto equals = rule.find('=');
  if (equals == std::string::npos || equals == 0)
    throw Error(ErrorCode::InvalidArgument, fmt::format("cannot use the map '{}': it must be of the form A=B", rule));
  left_ = rule.substr(0, equals);
  right_ = rule.substr(equals + 1);
  if (std::count(left_.begin(), left_.end(), '*') < std::count(right_.begin(), right_.end(), '*'))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot use the map '{}': more * on the right than on the left", rule));
}

std::optional<std::string> PathRule::apply(std::string_view path) const {
  std::vector<std::string> captured;
  if (!match(left_, path, captured)) return std::nullopt;
  std::string result;
  std::size_t star = 0;
  for (const char c : right_) {
    if (c == '*')
      result += captured[star++];
    else
      result += c;
  }
  return result;
}

bool PathRule::match(std::string_view pattern, std::string_view path, std::vector<std::string>& captured) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] != '*')
    return !path.empty() && path[0] == pattern[0] && match(pattern.substr(1), path.substr(1), captured);
  for (std::size_t size = 0; size <= path.size(); ++size) {
    captured.emplace_back(path.substr(0, size));
    if (match(pattern.substr(1), path.substr(size), captured)) return true;
    captured.pop_back();
  }
  return false;
}

}  // namespace tenscope::compare
