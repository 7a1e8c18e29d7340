#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/output_filter.hpp"
#include "cli/remote_runs.hpp"

namespace tenscope::cli {

// The words of a command line that are URLs of runs: verbs get the folders of their mirrors instead, and what they
// print has the URLs again.
class UrlWords {
 public:
  // Throws where a URL cannot be read, or the verb reads none.
  void open(const Command& command, const std::vector<std::string_view>& words);

  const std::vector<std::string>& words() const noexcept { return words_; }  // to be parsed; empty: those that came in
  const OutputFilter::Replacements& mirrors() const noexcept { return mirrors_; }  // folders, and their URLs

 private:
  std::vector<std::string> words_;
  OutputFilter::Replacements mirrors_;
  std::unique_ptr<RemoteRuns> runs_;
  std::vector<std::unique_ptr<OutputFilter>> filters_;  // they end first
};

}  // namespace tenscope::cli
