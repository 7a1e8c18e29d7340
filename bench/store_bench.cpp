// What recording costs the caller, beside memcpy and the bare hash of the same bytes: read the ratios, not the numbers.
// Writes below TENSCOPE_BENCH_DIR (default: the temporary folder).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/summarize.hpp"
#include "tenscope/run.hpp"

namespace {

namespace fs = std::filesystem;
using tenscope::view;

constexpr std::size_t kLarge = 64 << 20;
constexpr int kLargeCount = 64;  // 4 GB in all

class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TENSCOPE_BENCH_DIR");
    path_ =
        fs::path(base != nullptr ? base : fs::temp_directory_path()) / ("tenscope-bench-" + std::to_string(::getpid()));
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<float> numbers(std::size_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  std::uint32_t state = 1;
  for (auto& value : data) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return data;
}

std::int64_t anonymous_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtoll(line.c_str() + 8, nullptr, 10);
  }
  return 0;
}

void memcpy_large(benchmark::State& state) {
  const auto source = numbers(kLarge);
  std::vector<float> target(source.size());
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), kLarge);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kLarge));
}
BENCHMARK(memcpy_large)->Iterations(kLargeCount)->UseRealTime();

void fingerprint_large(benchmark::State& state) {
  const auto data = numbers(kLarge);
  for (auto _ : state) benchmark::DoNotOptimize(tenscope::kernels::fingerprint(view(data.data(), {kLarge / 4})));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kLarge));
}
BENCHMARK(fingerprint_large)->Iterations(kLargeCount)->UseRealTime();

void record_large_changed(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  auto data = numbers(kLarge);
  const auto before = anonymous_kb();
  for (auto _ : state) {
    data[0] += 1;
    if (!run.record("x", view(data.data(), {kLarge / 4})).kept) state.SkipWithError("dropped");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kLarge));
  state.counters["anon_kb"] = static_cast<double>(anonymous_kb() - before);
}
BENCHMARK(record_large_changed)->Iterations(kLargeCount)->UseRealTime();

void record_large_unchanged(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  const auto data = numbers(kLarge);
  run.record("x", view(data.data(), {kLarge / 4}));
  run.record("x", view(data.data(), {kLarge / 4}));
  for (auto _ : state) run.record("x", view(data.data(), {kLarge / 4}));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kLarge));
}
BENCHMARK(record_large_unchanged)->Iterations(kLargeCount)->UseRealTime();

void record_sized(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  const auto bytes = static_cast<std::size_t>(state.range(0));
  auto data = numbers(bytes);
  for (auto _ : state) {
    data[0] += 1;
    run.record("layer.weight", view(data.data(), {static_cast<std::int64_t>(data.size())}));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}
BENCHMARK(record_sized)->Arg(1 << 10)->Iterations(300'000)->UseRealTime();
BENCHMARK(record_sized)->Arg(16 << 10)->Iterations(30'000)->UseRealTime();
BENCHMARK(record_sized)->Arg(64 << 10)->Iterations(8'000)->UseRealTime();
BENCHMARK(record_sized)->Arg(128 << 10)->Iterations(4'000)->UseRealTime();
BENCHMARK(record_sized)->Arg(1 << 20)->Iterations(500)->UseRealTime();

void record_1kb_unchanged(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  const auto data = numbers(1024);
  for (auto _ : state) run.record("layer.weight", view(data.data(), {256}));
}
BENCHMARK(record_1kb_unchanged)->Iterations(300'000)->UseRealTime();

void record_number(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  double value = 0;
  for (auto _ : state) run.record("loss", value += 0.1);
}
BENCHMARK(record_number)->Iterations(1'000'000)->UseRealTime();

void record_disabled(benchmark::State& state) {
  Folder folder;
  tenscope::Run run(folder.path());
  run.disable();
  for (auto _ : state) benchmark::DoNotOptimize(run.record("loss", 1.0).kept);
}
BENCHMARK(record_disabled);

// The goal: recording 20 GB in a loop grows anonymous memory by no more than 64 MB. TENSCOPE_BENCH_GB sets how much.
void record_for_long(benchmark::State& state) {
  const char* wanted = std::getenv("TENSCOPE_BENCH_GB");
  const auto gigabytes = wanted != nullptr ? std::strtoll(wanted, nullptr, 10) : 2;
  auto large = numbers(8 << 20), small = numbers(4 << 10);
  const auto before = anonymous_kb();
  std::int64_t most = 0, written = 0;
  for (auto _ : state) {
    Folder folder;
    tenscope::Run run(folder.path(), {.max_bytes = std::uint64_t{4} << 30, .keep = tenscope::Keep::Last});
    while (written < gigabytes << 30) {
      large[0] += 1;
      run.record("large", view(large.data(), {static_cast<std::int64_t>(large.size())}));
      for (int i = 0; i < 512; ++i) {
        small[i] += 1;
        run.record("small", view(small.data(), {static_cast<std::int64_t>(small.size())}));
      }
      run.step();
      written += (8 << 20) + 512 * (4 << 10);
      most = std::max(most, anonymous_kb() - before);
    }
  }
  state.SetBytesProcessed(written);
  state.counters["anon_kb"] = static_cast<double>(most);
}
BENCHMARK(record_for_long)->Iterations(1)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
