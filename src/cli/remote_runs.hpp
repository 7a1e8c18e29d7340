#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::cli {

bool is_url(std::string_view word);

// Runs at URLs: Python, which knows the stores, mirrors them in its cache, and fetches what a reader of this process is
// about to read for as long as this lives.
class RemoteRuns {
 public:
  struct Run {
    std::string folder;  // of the mirror
    std::string url;     // without a password
  };

  // Throws what Python says of a URL that cannot be read.
  explicit RemoteRuns(const std::vector<std::string>& urls);
  ~RemoteRuns();
  RemoteRuns(const RemoteRuns&) = delete;
  RemoteRuns& operator=(const RemoteRuns&) = delete;

  const std::vector<Run>& runs() const noexcept { return runs_; }

 private:
  // One end of a socket, and what was read of it beyond the last line.
  struct Connection {
    int fd = -1;
    std::string rest;
  };

  void start(const std::vector<std::string>& urls);
  void stop() noexcept;
  void fetch(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size_bytes);
  static std::string read_line(Connection& connection);
  static void send(const Connection& connection, std::string_view text);

  std::vector<Run> runs_;
  pid_t child_ = -1;
  std::mutex mutex_;
  std::condition_variable is_free_;
  std::deque<Connection> free_;
  std::vector<std::unique_ptr<FetchScope>> scopes_;
};

}  // namespace tenscope::cli
