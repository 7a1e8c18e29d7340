#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::compare {

// "blocks.*.attn=layers.*.self": what each * of the left side matches goes to the * of the same place on the right.
// Throws InvalidArgument for what is no such rule.
class PathRule {
 public:
  explicit PathRule(const std::string& rule);

  const std::string& left() const { return left_; }

  std::optional<std::string> apply(std::string_view path) const;

 private:
  static bool match(std::string_view pattern, std::string_view path, std::vector<std::string>& captured);

  std::string left_, right_;
};

}  // namespace tenscope::compare
