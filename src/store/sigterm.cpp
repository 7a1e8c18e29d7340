#include "store/sigterm.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

namespace tenscope::store {
namespace {

struct Watch {
  std::atomic<pid_t> pid{0};  // not the fork generation: a signal may come before that is counted
  std::atomic<int> received{0};
  sem_t wake;
  void (*action)() = nullptr;
};
Watch watch;

void die() noexcept {  // async-signal-safe
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGTERM, &standard, nullptr);
  ::kill(::getpid(), SIGTERM);
}

void handle(int) noexcept {
  const int saved = errno;
  if (watch.pid.load() != ::getpid() || watch.received.fetch_add(1) > 0) {
    die();
  } else {
    ::sem_post(&watch.wake);
  }
  errno = saved;
}

void wait_for_it() {
  while (::sem_wait(&watch.wake) != 0) {
  }
  watch.action();
  die();
}

}  // namespace

bool at_sigterm(void (*action)()) {
  static std::mutex mutex;
  std::lock_guard guard(mutex);
  struct sigaction current{};
  if (::sigaction(SIGTERM, nullptr, &current) != 0) return false;
  const bool is_ours = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == &handle;
  if (is_ours && watch.pid == ::getpid()) return true;
  if (!is_ours && ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL)) return false;

  watch.action = action;
  watch.received = 0;
  ::sem_init(&watch.wake, 0, 0);
  watch.pid = ::getpid();

  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread must not take the program's signals
  std::thread(wait_for_it).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  struct sigaction ours{};
  ours.sa_handler = &handle;
  ours.sa_flags = SA_RESTART;
  ::sigfillset(&ours.sa_mask);
  return ::sigaction(SIGTERM, &ours, nullptr) == 0;
}

}  // namespace tenscope::store
