#include "store/fork_guard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tenscope::store {
namespace {

struct Listed {
  std::mutex mutex;
  std::vector<int> fds;
};

Listed& listed() {
  static auto* instance = new Listed;  // outlives every static object that still closes files at exit
  return *instance;
}

}  // namespace

std::atomic<std::uint32_t> ForkGuard::generation_{0};

void ForkGuard::install() {
  static const int installed = pthread_atfork([] { listed().mutex.lock(); }, [] { listed().mutex.unlock(); },
                                              [] {
                                                generation_.fetch_add(1, std::memory_order_relaxed);
                                                for (const int fd : listed().fds) ::close(fd);
                                                listed().fds.clear();
                                                listed().mutex.unlock();
                                              });
  (void)installed;
}

std::unique_lock<std::mutex> ForkGuard::lock() {
  install();
  return std::unique_lock(listed().mutex);
}

void ForkGuard::list(int fd) { listed().fds.push_back(fd); }

void ForkGuard::close(int fd) noexcept {
  std::lock_guard guard(listed().mutex);
  auto& fds = listed().fds;
  fds.erase(std::remove(fds.begin(), fds.end(), fd), fds.end());
  ::close(fd);
}

}  // namespace tenscope::store
