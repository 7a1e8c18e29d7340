#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tenscope::cli {

// The options of a verb as they are typed: --step.
inline std::vector<std::string> long_options(const CLI::App& verb) {
  std::vector<std::string> words;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

}  // namespace tenscope::cli
