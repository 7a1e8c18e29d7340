#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::compare {

// A name with its numbers as unknowns: "model.layers.{}.mlp" and 3. The last number is the repetition of the name.
struct NameTemplate {
  std::string text;
  std::vector<std::int64_t> numbers;
  friend auto operator<=>(const NameTemplate&, const NameTemplate&) = default;
};
NameTemplate numbered(std::string_view name, std::int64_t repetition);

// "blk.{i}.ffn_up.weight"; of several numbers "{i}", "{j}", "{k}".
std::string pattern_in_words(const NameTemplate& name);

struct NumberedName {
  NameTemplate name;
  std::size_t item = 0, group = 0;
};

struct RuleAnswer {
  NameTemplate name;
  std::size_t votes = 0;  // pairs that taught it
  bool is_exact = true;   // all pairs of these names say so, not only most of them
};

// Learns from pairs of names how the names of one run follow from those of the other: each number is a linear function
// of one number of the other name, or constant.
class NameRules {
 public:
  void learn(const NameTemplate& a, const NameTemplate& b);
  std::vector<RuleAnswer> ask(const NameTemplate& a) const;

 private:
  struct Example {
    std::vector<std::int64_t> a, b;
    friend auto operator<=>(const Example&, const Example&) = default;
  };
  std::map<std::string, std::map<std::string, std::vector<Example>>> examples_;  // by a's text, by b's
};

}  // namespace tenscope::compare
