#include "cli/remote_runs.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/python.hpp"
#include "core/old_wait.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

constexpr int kConnections = 8;  // so many threads of a reader may wait for bytes at a time

[[noreturn]] void fail(std::string_view line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  ErrorCode code = ErrorCode::Io;
  for (const ErrorCode one : {ErrorCode::NotFound, ErrorCode::Unsupported, ErrorCode::InvalidArgument})
    if (to_string(one) == line.substr(0, space)) code = one;
  throw Error(code, std::string(line.substr(std::min(space + 1, line.size()))));
}

}  // namespace

bool is_url(std::string_view word) {
  const std::size_t colon = word.find("://");
  return colon != word.npos && colon > 0 && std::isalpha(static_cast<unsigned char>(word[0])) != 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(colon),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.'; });
}

RemoteRuns::RemoteRuns(const std::vector<std::string>& urls) {
  try {
    start(urls);
    Connection& first = free_.front();
    for (std::size_t i = 0; i < urls.size(); ++i) {
      if (const std::string line = read_line(first); line != "ok") fail(line);
      std::string folder = read_line(first);
      runs_.push_back({std::move(folder), read_line(first)});
    }
  } catch (...) {
    stop();
    throw;
  }
  for (const Run& run : runs_)
    scopes_.push_back(
        std::make_unique<FetchScope>(run.folder, [this](const std::filesystem::path& file, std::uint64_t offset,
                                                        std::uint64_t size) { fetch(file, offset, size); }));
}

RemoteRuns::~RemoteRuns() {
  scopes_.clear();
  stop();
}

void RemoteRuns::start(const std::vector<std::string>& urls) {
  std::vector<int> theirs;
  for (int i = 0; i < kConnections; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw Error(ErrorCode::Io, fmt::format("cannot start Python: {}", std::strerror(errno)));
    free_.push_back({ends[0], {}});
    theirs.push_back(ends[1]);
  }
  std::vector<std::string> words = {fmt::format("{}", fmt::join(theirs, ","))};
  words.insert(words.end(), urls.begin(), urls.end());
  child_ = start_python("tenscope.remote.serve", words, theirs);
  for (const int fd : theirs) ::close(fd);
}

void RemoteRuns::stop() noexcept {
  for (const Connection& connection : free_) ::close(connection.fd);
  free_.clear();
  int status = 0;
  while (child_ > 0 && ::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

void RemoteRuns::fetch(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size_bytes) {
  Connection connection;
  {
    std::unique_lock lock(mutex_);
    is_free_.wait(lock, [this] { return !free_.empty(); });
    connection = std::move(free_.front());
    free_.pop_front();
  }
  std::string answer;
  try {
    send(connection, fmt::format("{} {} {}\n", offset, size_bytes, file.string()));
    answer = read_line(connection);
  } catch (const Error& error) {
    answer = fmt::format("{} {}", to_string(error.code()), error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(connection));
  }
  is_free_.notify_one();
  if (answer != "ok") fail(answer);
}

std::string RemoteRuns::read_line(Connection& connection) {
  std::array<char, 4096> buffer;
  for (;;) {
    if (const std::size_t end = connection.rest.find('\n'); end != std::string::npos) {
      std::string line = connection.rest.substr(0, end);
      connection.rest.erase(0, end + 1);
      return line;
    }
    const ssize_t got = ::recv(connection.fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(ErrorCode::Unsupported, "cannot read a URL: Python, which reads it, ended without an answer");
    connection.rest.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void RemoteRuns::send(const Connection& connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(connection.fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw Error(ErrorCode::Io, "cannot read a URL: Python, which reads it, has ended");
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace tenscope::cli
