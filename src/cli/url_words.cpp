#include "cli/url_words.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

// How much of a word is the URL: all but the :NAME of a tensor where the verb takes one.
std::size_t url_size(const Command& command, std::string_view word) {
  const std::size_t colon = word.rfind(':');
  return command.name == "explain" && colon > word.find("://") ? colon : word.size();
}

}  // namespace

void UrlWords::open(const Command& command, const std::vector<std::string_view>& words) {
  // Those of `run` are the script's own, and push hands its URL to Python; on a cluster the workers open the URLs.
  const bool is_cluster =
      std::ranges::any_of(words, [](std::string_view word) { return word == "--dask" || word.starts_with("--dask="); });
  if (command.name == "run" || command.name == "push" || is_cluster) return;
  std::vector<std::string> urls;
  for (const std::string_view word : words)
    if (is_url(word)) urls.emplace_back(word.substr(0, url_size(command, word)));
  if (urls.empty()) return;
  if (!command.reads_urls)
    throw Error(ErrorCode::Unsupported,
                fmt::format("{} works on a run in a folder, not on one at a URL: copy it first", command.name));
  runs_ = std::make_unique<RemoteRuns>(urls);
  std::size_t next = 0;
  for (const std::string_view word : words) {
    if (!is_url(word)) {
      words_.emplace_back(word);
      continue;
    }
    const RemoteRuns::Run& run = runs_->runs()[next++];
    words_.push_back(run.folder + std::string(word.substr(url_size(command, word))));
    if (run.folder != run.url) mirrors_.emplace_back(run.folder, run.url);
  }
  if (mirrors_.empty()) return;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) filters_.push_back(std::make_unique<OutputFilter>(fd, mirrors_));
}

}  // namespace tenscope::cli
