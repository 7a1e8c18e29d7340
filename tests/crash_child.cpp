// Records with known contents until it is killed: crash_child BASE NAME SEED MODE. Every record that has returned is
// acknowledged on stdout: one line "KIND NAME STEP CALL SEED SIZE", sent in one write. What a record contains follows
// from its seed, so that another program can tell what must be there. KIND: n a number, t a tensor, s one with 16 rows
// that is stored column by column in memory. MODE: plain, threads, fork, ring, tiny, large; or chaos, which ends by
// itself after a while: threads record, step and flush, processes are forked, files may not grow now and then, and the
// run is closed in the middle of it.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tenscope/run.hpp"

namespace {

constexpr std::size_t kRows = 16;
bool may_drop = false;
std::atomic<std::uint64_t> attempts{0};

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
  state += 0x9E3779B97F4A7C15;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// size bytes: 8-byte little-endian words seed, seed + K, seed + 2 K ... (mod 2^64), cut at the end.
void fill(std::vector<std::uint8_t>& bytes, std::uint64_t seed, std::size_t size) {
  bytes.resize(size);
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = seed + (i / 8) * 0x9E3779B97F4A7C15;
    std::memcpy(&bytes[i], &word, std::min<std::size_t>(8, size - i));
  }
}

enum class Sizes { Mixed, Tiny, Large, Any };

void acknowledge(char kind, const std::string& name, const tenscope::Recorded& recorded, std::uint64_t seed,
                 std::size_t size) {
  ++attempts;
  if (!recorded.kept && may_drop) return;
  if (!recorded.kept) std::abort();
  char line[256];
  const int length = std::snprintf(line, sizeof line, "%c %s %lld %lld %llu %zu\n", kind, name.c_str(),
                                   static_cast<long long>(recorded.step), static_cast<long long>(recorded.call),
                                   static_cast<unsigned long long>(seed), size);
  if (::write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) != length) ::_exit(3);
}

std::size_t random_size(std::uint64_t random, Sizes sizes) {
  if (sizes == Sizes::Any && random % 24 == 0) sizes = Sizes::Large;
  if (sizes == Sizes::Large) return (8 << 20) + (random >> 8) % (2 << 20);
  switch (sizes == Sizes::Tiny ? 0 : random % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
      return (random >> 8) % 600;
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
      return (random >> 8) % 20'000;
    case 13:
    case 14:
      return 60'000 + (random >> 8) % 20'000;
    default:
      return 200'000 + (random >> 8) % 1'500'000;
  }
}

// A size whose contents every thread records again and again, with seed 42.
std::size_t usual_size(std::uint64_t random, Sizes sizes) {
  if (sizes == Sizes::Large) return 9'000'000;
  if (sizes != Sizes::Any) return 3000;
  return random % 8 == 0 ? 9'000'000 + random % 3 : random % 4 == 0 ? 300'000 : 3000;
}

void record_forever(tenscope::Run& run, const std::string& prefix, std::uint64_t state, Sizes sizes) {
  std::vector<std::uint8_t> bytes;
  while (run.enabled()) {
    const std::uint64_t choice = next_random(state);
    std::string name = prefix + ".v";
    name += std::to_string(choice % 5);
    // Any step at any time.
    const auto step = choice % 11 == 0 ? static_cast<std::int64_t>(next_random(state) % 40) : std::int64_t{-1};
    if (choice % 7 == 0) {
      const auto value = static_cast<std::int64_t>(next_random(state));
      acknowledge('n', name, run.record({.name = name, .step = step}, tenscope::EventValue(value)),
                  static_cast<std::uint64_t>(value), 0);
    } else if (choice % 23 == 0) {
      run.step();
    } else {
      const std::uint64_t seed = choice % 5 == 0 ? 42 : next_random(state);  // 42: often the same bytes
      const std::uint64_t random = next_random(state);
      std::size_t size = seed == 42 ? usual_size(random, sizes) : random_size(random, sizes);
      const bool is_strided = sizes == Sizes::Any && choice % 3 == 0;
      if (is_strided) size = size / kRows * kRows;
      fill(bytes, seed, size);
      const std::int64_t shape[] = {kRows, static_cast<std::int64_t>(size / kRows)}, strides[] = {1, kRows};
      const auto tensor =
          is_strided ? tenscope::TensorView{bytes.data(), tenscope::DType::U8, shape, strides} : tenscope::TensorView{};
      const tenscope::EventInfo info{.name = name, .step = step};
      const auto recorded = is_strided
                                ? run.record(info, tensor)
                                : run.record(info, tenscope::view(bytes.data(), {static_cast<std::int64_t>(size)}));
      acknowledge(is_strided ? 's' : 't', name, recorded, seed, size);
    }
  }
}

void limit_files(rlim_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

// Until so many more records were tried: a busy machine changes nothing of what happens.
void let_record(std::uint64_t count) {
  const std::uint64_t until = attempts + count;
  while (attempts < until) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

int run_chaos(tenscope::Run& run, std::uint64_t seed) {
  ::signal(SIGXFSZ, SIG_IGN);  // as Python does: a write that may not be is an error
  may_drop = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back(
        [&, t] { record_forever(run, "thread" + std::to_string(t), seed + 1000 * (t + 1), Sizes::Any); });
  }
  threads.emplace_back([&] {
    while (run.enabled()) {
      run.flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::uint64_t state = seed;
  std::vector<pid_t> children;
  const auto rounds = 2 + next_random(state) % 4;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    let_record(next_random(state) % 150);
    const pid_t child = ::fork();
    if (child == 0) {
      std::thread second([&] { record_forever(run, "child" + std::to_string(round), seed + round, Sizes::Any); });
      let_record(next_random(state) % 60);
      run.close();
      second.join();
      ::_exit(0);
    }
    children.push_back(child);
    if (round > 0 && next_random(state) % 2 == 0) {
      limit_files(next_random(state) % (24 << 20));
      let_record(next_random(state) % 50);
      limit_files(RLIM_INFINITY);
    }
  }
  let_record(next_random(state) % 150);
  std::thread other([&] { run.close(); });
  run.close();
  other.join();
  for (auto& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 4;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  const std::string_view mode = argv[4];
  const bool has_large = mode == "large" || mode == "threads" || mode == "chaos";
  tenscope::RunOptions options{.name = argv[2], .segment_bytes = has_large ? 32u << 20 : 3u << 20};
  if (mode == "ring") {
    options.max_bytes = 24 << 20;
    options.keep = tenscope::Keep::Last;
  }
  if (mode == "chaos" && seed % 3 == 0) options.durability = tenscope::Durability::Disk;
  tenscope::Run run(argv[1], options);
  if (mode == "chaos") return run_chaos(run, seed);
  std::vector<std::thread> threads;
  if (mode == "threads") {
    for (int t = 0; t < 2; ++t)
      threads.emplace_back(
          [&, t] { record_forever(run, "thread" + std::to_string(t), seed + 1000 * (t + 1), Sizes::Any); });
  }
  if (mode == "fork" && ::fork() == 0) record_forever(run, "child", seed + 7, Sizes::Mixed);
  record_forever(run, "main", seed,
                 mode == "tiny"      ? Sizes::Tiny
                 : mode == "large"   ? Sizes::Large
                 : mode == "threads" ? Sizes::Any
                                     : Sizes::Mixed);
}
