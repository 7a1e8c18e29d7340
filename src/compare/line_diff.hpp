#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::compare {

// Two texts, or parts of them, in the form of `diff -u`.
struct LineDiff {
  std::vector<std::string> lines;  // "@@ -20,5 +20,5 @@", then lines with ' ', '-' or '+' before them
  std::size_t removed = 0, added = 0;
};

struct LineDiffOptions {
  std::size_t context = 2;               // lines shown before and behind what changed
  std::size_t first_a = 0, first_b = 0;  // which lines of their files the first ones are, from 0
};

LineDiff diff_lines(std::span<const std::string_view> a, std::span<const std::string_view> b,
                    const LineDiffOptions& options = {});

}  // namespace tenscope::compare
