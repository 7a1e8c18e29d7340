#include "cli/print.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/printable.hpp"
#include "report/layout.hpp"
#include "report/style.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

bool has_color = false;
std::size_t line_width = 0;  // 0: any
std::string unfinished;      // a line that goes on

// How much of `text` is one of the colours of reports, from its beginning on: "\033[1;31m".
std::size_t color_size(std::string_view text) {
  constexpr std::string_view kReset = "\033[0m";
  if (text.starts_with(kReset)) return kReset.size();
  for (auto tone = report::Tone::Bold; tone <= report::Tone::BoldYellow;
       tone = static_cast<report::Tone>(static_cast<int>(tone) + 1))
    if (text.starts_with(report::tone_code(tone))) return report::tone_code(tone).size();
  return 0;
}

// `clean` on all that is no colour.
template <class Clean>
std::string between_colors(std::string_view text, bool keeps_colors, Clean clean) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t next = at, size = 0;
    while (next < text.size()) {
      next = std::min(text.find('\033', next), text.size());
      size = next < text.size() && keeps_colors ? color_size(text.substr(next)) : 0;
      if (size > 0) break;
      if (next < text.size()) ++next;
    }
    result += clean(text.substr(at, next - at));
    result += text.substr(next, size);
    at = next + size;
  }
  return result;
}

void write_out(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return;
  flush_output();
}

// As a program ends whose pipe nobody reads any more, also where the signal that says so is ignored.
[[noreturn]] void end_of_pipe() {
  constexpr int kAsBySignal = 128 + SIGPIPE;
  ::_exit(kAsBySignal);
}

std::size_t stderr_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

namespace detail {

std::string one_line(std::string_view text) {
  const auto has_break = text.find_first_of("\n\r\t\v\f\xe2\xc2") != text.npos;
  if (!has_break) return std::string(text);
  return between_colors(text, has_color, [](std::string_view part) { return printable(part); });
}

}  // namespace detail

void set_terminal(bool color, std::size_t width) noexcept {
  has_color = color;
  line_width = width;
}

void print_text(std::string_view text) {
  unfinished += between_colors(text, has_color, [](std::string_view part) { return printable_lines(part); });
  std::string whole;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = unfinished.find('\n', begin)) != unfinished.npos; begin = end + 1)
    whole += report::fitted(unfinished.substr(begin, end - begin), line_width) + "\n";
  unfinished.erase(0, begin);
  write_out(whole);
}

void print_json(std::string_view document) {
  write_out(document);
  write_out("\n");
}

void print_file(std::string_view content) {
  if (::isatty(STDOUT_FILENO) != 0)
    print_text(content);
  else
    write_out(content);
}

void warn_text(std::string_view text) {
  constexpr std::string_view kName = "tenscope: ";
  std::string out(kName);
  bool is_first = true;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    for (const std::string& line :
         report::wrapped(printable(text.substr(begin, end - begin)), stderr_width(), is_first ? kName.size() : 4)) {
      out += (is_first ? "" : "    ") + line + "\n";
      is_first = false;
    }
    begin = end + 1;
  }
  std::fwrite(out.data(), 1, out.size(), stderr);
}

void flush_output() {
  if (const std::string rest = std::exchange(unfinished, ""); !rest.empty())
    write_out(report::fitted(rest, line_width));
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (errno == EPIPE || errno == 0) end_of_pipe();
  const int code = errno;
  std::clearerr(stdout);
  throw Error(ErrorCode::Io, fmt::format("cannot write the answer: {}", std::strerror(code)));
}

}  // namespace tenscope::cli
