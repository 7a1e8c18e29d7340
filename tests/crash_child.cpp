// Records with known contents until it is killed: crash_child BASE NAME SEED MODE. Every record that has returned is
// acknowledged on stdout: one line "KIND NAME STEP CALL SEED SIZE", sent in one write. What a record contains follows
// from its seed, so that another program can tell what must be there. MODE: plain, threads, fork, ring, tiny, large.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

enum class Sizes { Mixed, Tiny, Large };

void acknowledge(char kind, const std::string& name, const tenscope::Recorded& recorded, std::uint64_t seed,
                 std::size_t size) {
  if (!recorded.kept) std::abort();
  char line[256];
  const int length = std::snprintf(line, sizeof line, "%c %s %lld %lld %llu %zu\n", kind, name.c_str(),
                                   static_cast<long long>(recorded.step), static_cast<long long>(recorded.call),
                                   static_cast<unsigned long long>(seed), size);
  if (::write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) != length) ::_exit(3);
}

std::size_t random_size(std::uint64_t random, Sizes sizes) {
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

void record_forever(tenscope::Run& run, const std::string& prefix, std::uint64_t state, Sizes sizes) {
  std::vector<std::uint8_t> bytes;
  for (;;) {
    const std::uint64_t choice = next_random(state);
    std::string name = prefix + ".v";
    name += std::to_string(choice % 5);
    if (choice % 7 == 0) {
      const auto value = static_cast<std::int64_t>(next_random(state));
      acknowledge('n', name, run.record(name, value), static_cast<std::uint64_t>(value), 0);
    } else if (choice % 23 == 0) {
      run.step();
    } else {
      const std::uint64_t seed = choice % 5 == 0 ? 42 : next_random(state);  // 42: often the same bytes
      const std::size_t usual = sizes == Sizes::Large ? 9'000'000 : 3000;
      const std::size_t size = seed == 42 ? usual : random_size(next_random(state), sizes);
      fill(bytes, seed, size);
      acknowledge('t', name, run.record(name, tenscope::view(bytes.data(), {static_cast<std::int64_t>(size)})), seed,
                  size);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  const std::string_view mode = argv[4];
  tenscope::RunOptions options{.name = argv[2], .segment_bytes = mode == "large" ? 32u << 20 : 3u << 20};
  if (mode == "ring") {
    options.max_bytes = 24 << 20;
    options.keep = tenscope::Keep::Last;
  }
  tenscope::Run run(argv[1], options);
  std::vector<std::thread> threads;
  if (mode == "threads") {
    for (int t = 0; t < 2; ++t)
      threads.emplace_back(
          [&, t] { record_forever(run, "thread" + std::to_string(t), seed + 1000 * (t + 1), Sizes::Mixed); });
  }
  if (mode == "fork" && ::fork() == 0) record_forever(run, "child", seed + 7, Sizes::Mixed);
  record_forever(run, "main", seed, mode == "tiny" ? Sizes::Tiny : mode == "large" ? Sizes::Large : Sizes::Mixed);
}
