#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tenscope::cli {

// One line on stderr for work that takes long: what is done, how far it is, or for how long it goes on where that is
// not known: then it appears after half a second. On a terminal only, and wiped at the end. Thread-safe.
class Progress {
 public:
  Progress(bool is_shown, std::string what);  // "comparing"
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double done);                         // 0 to 1
  void show(double done, std::string_view name);  // and what it is at

 private:
  using Clock = std::chrono::steady_clock;

  void draw_until_stopped();
  void draw();  // with the mutex held
  std::string line(double seconds) const;

  const std::string what_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable stopping_;
  double done_ = -1;
  std::string name_;
  bool is_drawn_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tenscope::cli
