#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands.hpp"

namespace tenscope::cli {

// How --help looks: what it is, examples, then the words, in the width of the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const Output& output) : color_(output.color), width_(output.width) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 private:
  std::string heading(std::string_view text) const;
  std::string entries(std::string_view title, const std::vector<std::pair<std::string, std::string>>& rows) const;
  std::string verbs(const CLI::App& app) const;
  std::string words(const CLI::App& app) const;

  const bool color_;
  const std::size_t width_;
};

}  // namespace tenscope::cli
