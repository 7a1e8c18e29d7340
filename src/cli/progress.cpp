#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/printable.hpp"
#include "report/layout.hpp"

namespace tenscope::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 500ms;
constexpr auto kBetween = 100ms;
constexpr std::string_view kWipe = "\r\033[K";

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(bool is_shown, std::string what) : what_(std::move(what)) {
  if (is_shown) thread_ = std::thread([this] { draw_until_stopped(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stopping_.notify_one();
  thread_.join();
}

void Progress::show(double done) { show(done, ""); }

void Progress::show(double done, std::string_view name) {
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  done_ = done;
  name_ = name;
  if (!is_drawn_) draw();
}

void Progress::draw() {
  const std::chrono::duration<double> elapsed = Clock::now() - begin_;
  put(std::string(kWipe) + line(elapsed.count()));
  is_drawn_ = true;
}

void Progress::draw_until_stopped() {
  std::unique_lock lock(mutex_);
  for (auto wait = kPatience; !stopping_.wait_for(lock, wait, [this] { return is_stopping_; }); wait = kBetween) draw();
  if (is_drawn_) put(kWipe);
}

std::string Progress::line(double seconds) const {
  constexpr int kBar = 24;
  winsize size{};
  const std::size_t width = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
  std::string text = what_;
  if (done_ >= 0) {
    const double done = std::clamp(done_, 0.0, 1.0);
    const int filled = static_cast<int>(done * kBar);
    text += fmt::format(" [{:#<{}}{:.<{}}] {:3.0f} %", "", filled, "", kBar - filled, 100 * done);
  }
  if (seconds >= 1) text += fmt::format("  {:.0f} s", seconds);
  if (!name_.empty()) text += "  " + printable(name_);
  return report::shortened(text, width - 1);
}

}  // namespace tenscope::cli
