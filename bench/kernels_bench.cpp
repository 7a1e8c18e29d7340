// Speed of the kernels over 256 MB, each next to what the machine can do with the same bytes in the same run: memcpy, a
// plain read, XXH3. Rounds are interleaved and the best of each is taken, by the clock and by CPU time of all threads,
// so that a busy machine disturbs the ratios little.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/compare.hpp"
#include "kernels/find.hpp"
#include "kernels/hash.hpp"
#include "kernels/profile.hpp"
#include "kernels/simd_target.hpp"
#include "kernels/summarize.hpp"
#include "kernels/tile.hpp"
#include "kernels/value_histogram.hpp"

namespace {

using namespace tenscope;

constexpr std::int64_t kBytes = std::int64_t{256} << 20;
constexpr int kRounds = 7;

struct Buffers {
  std::byte* source = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
  std::byte* other = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
  std::byte* equal = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
  std::byte* near = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));  // within some ULPs of source
  std::byte* half =
      static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));  // bits that are finite as f16, bf16 and f8
};

Buffers& buffers() {
  static Buffers instance = [] {
    Buffers b;
    std::mt19937 random(1);
    auto* x = reinterpret_cast<float*>(b.source);
    for (std::int64_t i = 0; i < kBytes / 4; ++i) x[i] = static_cast<float>(random()) * 0x1p-32F - 0.5F;
    std::memcpy(b.other, b.source, kBytes);
    std::memcpy(b.equal, b.source, kBytes);
    auto* near = reinterpret_cast<std::uint32_t*>(b.near);
    std::memcpy(near, b.source, kBytes);
    for (std::int64_t i = 0; i < kBytes / 4; ++i) near[i] += static_cast<std::uint32_t>(random()) >> 30;
    auto* bits = reinterpret_cast<std::uint32_t*>(b.half);
    for (std::int64_t i = 0; i < kBytes / 4; ++i)
      bits[i] = (static_cast<std::uint32_t>(random()) & 0x3F3F3F3FU) | 0x20202020U;
    return b;
  }();
  return instance;
}

// The best a single thread reads: sums of eight independent chains, which the compiler vectorises.
__attribute__((target("avx2"))) std::uint64_t plain_read(const std::byte* bytes) {
  const auto* p = reinterpret_cast<const std::uint64_t*>(bytes);
  std::uint64_t sums[16] = {};
  for (std::int64_t i = 0; i < kBytes / 8; i += 16) {
    for (int k = 0; k < 16; ++k) sums[k] += p[i + k];
  }
  std::uint64_t total = 0;
  for (auto s : sums) total += s;
  return total;
}

struct Row {
  std::string name;
  std::string against;  // the name of the row it is compared with
  double bytes;
  std::function<void()> run;
  double best_seconds = 1e9;
  double best_cpu_seconds = 1e9;
};

TensorView view_of(const std::byte* bytes, DType dtype) {
  static std::int64_t sizes[kDTypeCount];
  auto& size = sizes[static_cast<int>(dtype)];
  size = kBytes / static_cast<std::int64_t>(item_size(dtype));
  return {bytes, dtype, {&size, 1}, {}};
}

const std::byte* data_for(DType dtype) {
  return kind_of(dtype) == DTypeKind::Float && item_size(dtype) < 4 ? buffers().half : buffers().source;
}

std::vector<Row> rows() {
  auto& b = buffers();
  std::vector<Row> rows;
  rows.push_back({"memcpy", "", kBytes, [&] { std::memcpy(b.other, b.source, kBytes); }});
  rows.push_back({"plain read", "", kBytes, [&] { benchmark::DoNotOptimize(plain_read(b.source)); }});
  rows.push_back(
      {"XXH3-128 alone", "", kBytes, [&] { benchmark::DoNotOptimize(kernels::hash_target().hash(b.source, kBytes)); }});
  rows.push_back({"fingerprint f32", "XXH3-128 alone", kBytes,
                  [&] { benchmark::DoNotOptimize(kernels::fingerprint(view_of(b.source, DType::F32))); }});
  for (auto dtype :
       {DType::F32, DType::F64, DType::BF16, DType::F16, DType::F8E4M3, DType::I64, DType::I32, DType::U8}) {
    rows.push_back({"statistics " + std::string(to_string(dtype)), "plain read", kBytes,
                    [&, dtype] { benchmark::DoNotOptimize(kernels::statistics(view_of(data_for(dtype), dtype))); }});
  }
  for (auto dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::U8}) {
    rows.push_back({"hash+statistics " + std::string(to_string(dtype)), "plain read", kBytes,
                    [&, dtype] { benchmark::DoNotOptimize(kernels::summarize(view_of(data_for(dtype), dtype))); }});
    rows.push_back({"hash+statistics+copy " + std::string(to_string(dtype)), "memcpy", kBytes, [&, dtype] {
                      benchmark::DoNotOptimize(kernels::summarize(view_of(data_for(dtype), dtype), b.other));
                    }});
  }
  for (auto dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::U8}) {
    const std::string name(to_string(dtype));
    const auto summarize = [dtype](std::byte* copy) {
      Sketch sketch;
      benchmark::DoNotOptimize(kernels::summarize(view_of(data_for(dtype), dtype), copy, &sketch));
      benchmark::DoNotOptimize(sketch);
    };
    rows.push_back({"sketch " + name, "plain read", kBytes,
                    [&, dtype] { benchmark::DoNotOptimize(kernels::sketch(view_of(data_for(dtype), dtype))); }});
    rows.push_back({"hash+statistics+sketch " + name, "hash+statistics " + name, kBytes, [=] { summarize(nullptr); }});
    rows.push_back({"hash+statistics+sketch+copy " + name, "hash+statistics+copy " + name, kBytes,
                    [=, &b] { summarize(b.other); }});
  }
  rows.push_back({"plain read of both", "", 2.0 * kBytes, [&] {
                    benchmark::DoNotOptimize(plain_read(b.source));
                    benchmark::DoNotOptimize(plain_read(b.equal));
                  }});
  const auto compare_row = [&](const std::string& name, const std::byte* x, const std::byte* y, DType dtype, auto&& f) {
    rows.push_back({name + " " + std::string(to_string(dtype)), "plain read of both", 2.0 * kBytes,
                    [=] { benchmark::DoNotOptimize(f(view_of(x, dtype), view_of(y, dtype))); }});
  };
  const auto all_close = [](const TensorView& x, const TensorView& y) { return kernels::all_close(x, y); };
  const auto all_close_alone = [](const TensorView& x, const TensorView& y) {
    return kernels::all_close(x, y, {.threads = 1});
  };
  const auto diff = [](const TensorView& x, const TensorView& y) { return kernels::diff(x, y).mismatches; };
  const auto diff_alone = [](const TensorView& x, const TensorView& y) {
    return kernels::diff(x, y, {.threads = 1}).mismatches;
  };
  compare_row("all_close equal", b.source, b.equal, DType::F32, all_close);
  compare_row("all_close equal, one thread", b.source, b.equal, DType::F32, all_close_alone);
  compare_row("all_close near, one thread", b.source, b.near, DType::F32, all_close_alone);
  compare_row("all_close equal", b.half, b.half, DType::BF16, all_close);
  compare_row("diff equal", b.source, b.equal, DType::F32, diff);
  compare_row("diff near", b.source, b.near, DType::F32, diff);
  compare_row("diff near, one thread", b.source, b.near, DType::F32, diff_alone);
  return rows;
}

void run_table() {
  auto table = rows();
  for (int round = 0; round < kRounds; ++round) {
    for (auto& row : table) {
      const auto start = std::chrono::steady_clock::now();
      const std::clock_t cpu_start = std::clock();
      row.run();
      row.best_cpu_seconds =
          std::min(row.best_cpu_seconds, static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      row.best_seconds = std::min(row.best_seconds, elapsed.count());
    }
  }
  std::printf("%-36s %8s   %s\n", "256 MB", "GB/s", "ratio by the clock (by CPU time)");
  for (const auto& row : table) {
    std::printf("%-36s %8.1f", row.name.c_str(), row.bytes / row.best_seconds * 1e-9);
    for (const auto& base : table) {
      if (base.name == row.against) {
        const double more = row.bytes / base.bytes;
        std::printf("   %.2f (%.2f) x %s", more * base.best_seconds / row.best_seconds,
                    more * base.best_cpu_seconds / row.best_cpu_seconds, base.name.c_str());
      }
    }
    std::printf("\n");
  }
}

void small_tensor(benchmark::State& state) {
  std::vector<float> values(static_cast<std::size_t>(state.range(0)) / 4, 0.5F);
  std::vector<std::byte> copy(values.size() * 4);
  const std::int64_t size = static_cast<std::int64_t>(values.size());
  const TensorView view{values.data(), DType::F32, {&size, 1}, {}};
  for (auto _ : state) benchmark::DoNotOptimize(kernels::summarize(view, copy.data()));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(small_tensor)->Arg(4)->Arg(1024)->Arg(16384)->Arg(262144);

// What the viewer asks for: a matrix of 4096 x 4096 and its partner. The argument is the number of threads.
constexpr std::int64_t kSide = 4096;

TensorView matrix_of(const std::byte* bytes, DType dtype = DType::F32) {
  static const std::int64_t kShape[] = {kSide, kSide};
  return {bytes, dtype, {kShape, 2}, {}};
}

kernels::TileOptions tile_options(benchmark::State& state, std::int64_t side = kSide) {
  return {.cols = kSide, .row_end = side, .col_end = side, .threads = static_cast<int>(state.range(0))};
}

void tile_reduced(benchmark::State& state, DType dtype) {
  const kernels::Look look(matrix_of(data_for(dtype), dtype));
  for (auto _ : state) benchmark::DoNotOptimize(kernels::make_tile(look, tile_options(state)));
}
BENCHMARK_CAPTURE(tile_reduced, float32, DType::F32)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tile_reduced, bfloat16, DType::BF16)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void tile_reduced_with_scale(benchmark::State& state) {
  const kernels::Look look(matrix_of(buffers().source));
  kernels::ValueScale scale;
  for (auto _ : state) benchmark::DoNotOptimize(kernels::make_tile(look, tile_options(state), &scale));
}
BENCHMARK(tile_reduced_with_scale)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void tile_of_pair(benchmark::State& state, kernels::LookKind kind) {
  const kernels::Look look(kind, matrix_of(buffers().source), matrix_of(buffers().near));
  for (auto _ : state) benchmark::DoNotOptimize(kernels::make_tile(look, tile_options(state)));
}
BENCHMARK_CAPTURE(tile_of_pair, difference, kernels::LookKind::Difference)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(tile_of_pair, ulps, kernels::LookKind::Ulps)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void tile_exact(benchmark::State& state) {
  const kernels::Look look(matrix_of(buffers().source));
  for (auto _ : state) benchmark::DoNotOptimize(kernels::make_tile(look, tile_options(state, 512)));
}
BENCHMARK(tile_exact)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

void profile_along(benchmark::State& state, std::size_t axis) {
  const kernels::Look look(matrix_of(buffers().source));
  const std::int64_t shape[] = {kSide, kSide};
  for (auto _ : state)
    benchmark::DoNotOptimize(kernels::make_profile(look, shape, axis, static_cast<int>(state.range(0))));
}
BENCHMARK_CAPTURE(profile_along, rows, 0)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(profile_along, columns, 1)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void histogram_of_matrix(benchmark::State& state) {
  const kernels::Look look(matrix_of(buffers().source));
  for (auto _ : state) {
    const kernels::ValueCensus census = kernels::take_census(look, static_cast<int>(state.range(0)));
    benchmark::DoNotOptimize(kernels::count_bins(look, census, kernels::choose_edges({&census, 1})));
  }
}
BENCHMARK(histogram_of_matrix)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void count_differing(benchmark::State& state) {
  const kernels::Look look(kernels::LookKind::Difference, matrix_of(buffers().source), matrix_of(buffers().near));
  const kernels::Wanted wanted{.kind = kernels::Wanted::Kind::Nonzero};
  for (auto _ : state) benchmark::DoNotOptimize(kernels::count_wanted(look, wanted, static_cast<int>(state.range(0))));
}
BENCHMARK(count_differing)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  std::printf("vector unit: %s\n", kernels::simd_target().c_str());
  run_table();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
