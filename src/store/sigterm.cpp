// Overview. A signal handler may do almost nothing, least of all close a run, and the thread that it interrupts may be
// stuck in C code for good. So the handler only wakes a thread that sleeps for this purpose; it closes the runs and
// ends the process. A fork would leave that thread behind in the child, and Python warns of a fork in a process of
// several threads; it is therefore ended before. Python looks for threads after the fork, in some versions after all
// hooks: there it is started again by the next record.
#include "store/sigterm.hpp"

#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <thread>

#include "store/fork_guard.hpp"
#include "store/signals_blocked.hpp"

namespace tenscope::store {

std::atomic<bool> sigterm_thread_is_late{false};
std::atomic<bool> sigterm_thread_is_due{false};

namespace {

constexpr int kMostSeconds = 10;

struct Watch {
  std::atomic<pid_t> pid{0};  // whose thread it is; not the fork generation: a signal may come before that is counted
  std::atomic<bool> is_ending{false};
  std::atomic<int> received{0};
  sem_t wake;
  void (*action)() = nullptr;
  std::mutex mutex;  // held over a fork
  std::thread thread;
};
Watch& watch = *new Watch;  // never destroyed: its thread sleeps until the process ends

void die() noexcept {  // async-signal-safe
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGTERM, &standard, nullptr);
  ::kill(::getpid(), SIGTERM);
}

// SIGTERM's default would not let the program go on, so the thread that it met waits for the end. Not for ever: it may
// hold a lock that the action needs.
void stand_still() noexcept {  // async-signal-safe
  for (int i = 0; i < 100; ++i) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

void handle(int) noexcept {
  const int saved = errno;
  const bool is_first = watch.received.fetch_add(1) == 0;  // counted first: before_fork() clears the pid, then looks
  if (watch.pid.load() != ::getpid() || !is_first) {
    die();
  } else {
    ::sem_post(&watch.wake);
    stand_still();
  }
  errno = saved;
}

// Another thread may hold, for ever, a lock that the action needs: then a second SIGTERM comes by itself.
void set_deadline() noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGTERM;
  timer_t timer{};
  itimerspec in{};
  in.it_value.tv_sec = kMostSeconds;
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) ::timer_settime(timer, 0, &in, nullptr);
}

void act_and_die() {
  set_deadline();
  watch.action();
  sigset_t ending;
  ::sigemptyset(&ending);
  ::sigaddset(&ending, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);  // all other threads may have it blocked
  die();
}

void wait_for_it() {
  while (::sem_wait(&watch.wake) != 0) {
  }
  if (!watch.is_ending || watch.received > 0) act_and_die();
}

bool is_our_handler(const struct sigaction& current) {
  return (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == &handle;
}

bool start_thread() {
  watch.received = 0;
  watch.is_ending = false;
  ::sem_init(&watch.wake, 0, 0);
  try {
    const SignalsBlocked guard;  // the thread must not take the program's signals
    watch.thread = std::thread(wait_for_it);
  } catch (const std::system_error&) {
    return false;
  }
  watch.pid = ::getpid();
  sigterm_thread_is_due = false;
  return true;
}

void before_fork() {
  watch.mutex.lock();
  if (watch.pid != ::getpid() || !watch.thread.joinable()) return;
  watch.is_ending = true;
  ::sem_post(&watch.wake);
  watch.thread.join();
  watch.pid = 0;
  if (watch.received > 0) act_and_die();  // it came when the thread had ended, but before the pid said so
  sigterm_thread_is_due = true;
}

void after_fork_in_parent() {
  if (sigterm_thread_is_due && !sigterm_thread_is_late) start_thread();
  watch.mutex.unlock();
}

void after_fork_in_child() { watch.mutex.unlock(); }

}  // namespace

bool at_sigterm(void (*action)()) {
  static const int installed = [] {
    {
      const auto before = ForkGuard::lock();
    }  // whose handlers then come after ours, so that the action is not locked out
    return ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  }();
  const std::lock_guard guard(watch.mutex);
  struct sigaction current{};
  if (installed != 0 || ::sigaction(SIGTERM, nullptr, &current) != 0) return false;
  const bool is_ours = is_our_handler(current);
  if (is_ours && watch.pid == ::getpid()) return true;
  if (!is_ours && ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL)) return false;

  watch.action = action;
  if (watch.pid != ::getpid() && !start_thread()) return false;
  struct sigaction ours{};
  ours.sa_handler = &handle;
  ours.sa_flags = SA_RESTART;
  ::sigfillset(&ours.sa_mask);
  return ::sigaction(SIGTERM, &ours, nullptr) == 0;
}

void restart_sigterm_thread() {
  if (!sigterm_thread_is_due.exchange(false)) return;
  const std::lock_guard guard(watch.mutex);
  struct sigaction current{};
  const bool is_ours = ::sigaction(SIGTERM, nullptr, &current) == 0 && is_our_handler(current);
  if (is_ours && watch.pid != ::getpid()) start_thread();
}

}  // namespace tenscope::store
