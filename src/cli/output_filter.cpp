#include "cli/output_filter.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

OutputFilter::OutputFilter(int fd, Replacements replacements) : fd_(fd), replacements_(std::move(replacements)) {
  std::fflush(nullptr);
  int ends[2];
  original_ = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (original_ < 0 || ::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::Io, fmt::format("cannot filter the output: {}", std::strerror(errno)));
  source_ = ends[0];
  ::dup2(ends[1], fd);
  ::close(ends[1]);
  thread_ = std::thread([this] { pass_on(); });
}

OutputFilter::~OutputFilter() {
  std::fflush(nullptr);
  ::dup2(original_, fd_);  // which ends the pipe
  thread_.join();
  ::close(original_);
}

void OutputFilter::pass_on() {
  std::array<char, 1 << 16> buffer;
  std::string text;
  bool is_end = false;
  while (!is_end) {
    const ssize_t got = ::read(source_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    is_end = got <= 0;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (!write_all(original_, replaced(text, is_end))) break;
  }
  ::close(source_);  // so that a writer gets the signal that it would have got
}

// What can be passed on of `text`, which keeps what may be the beginning of a replaced text.
std::string OutputFilter::replaced(std::string& text, bool is_end) const {
  std::string result;
  std::string beginnings;
  for (const auto& one : replacements_) beginnings += one.first[0];
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t next = std::min(text.find_first_of(beginnings, at), text.size());
    result.append(text, at, next - at);
    at = next;
    const std::string_view rest = std::string_view(text).substr(at);
    const auto found =
        std::ranges::find_if(replacements_, [&](const auto& one) { return rest.starts_with(one.first); });
    if (found != replacements_.end()) {
      result += found->second;
      at += found->first.size();
      continue;
    }
    const bool may_begin = std::ranges::any_of(
        replacements_, [&](const auto& one) { return std::string_view(one.first).starts_with(rest); });
    if (rest.empty() || (may_begin && !is_end)) break;
    result += text[at++];
  }
  text.erase(0, at);
  return result;
}

}  // namespace tenscope::cli
