// Opening and listing a run of 1,000,000 events, next to simdjson over the same journal in the same run: its On-Demand
// stream, reading the five members that a listing needs, and its DOM stream. Both get the file loaded into memory by
// simdjson itself, which is part of their time, as reading the journal is part of ours. We also check each line's
// checksum. Rounds are interleaved and the best of each is taken.
#include <fmt/format.h>
#include <simdjson.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "store/journal_reader.hpp"
#include "tenscope/reader.hpp"

namespace {

using namespace tenscope;
namespace fs = std::filesystem;

constexpr int kEvents = 1'000'000;
constexpr int kRounds = 5;

// A transformer of 12 blocks: of ten events eight are tensors, one is a number, one a step.
void write_run(const fs::path& run) {
  fs::create_directories(run / "rank-0");
  std::ofstream(run / "run.json") << R"({"tenscope_format":1,"started_ns":1700000000000000000,"command":["train.py"]})";
  std::ofstream journal(run / "rank-0" / "journal.jsonl", std::ios::binary);
  std::string body;
  for (int i = 0; i < kEvents; ++i) {
    const int step = i / 100, kind = i % 10;
    body = fmt::format(R"({{"seq":{},"t":{},"th":4312,)", i, 1700000000000000000 + i * 1000ll);
    if (kind == 9) {
      body += fmt::format(R"("kind":"step","step":{})", step + 1);
    } else if (kind == 8) {
      body += fmt::format(R"("kind":"value","name":"loss","step":{},"call":0,"site":"train.py:41","value":{})", step,
                          1.0 / (i + 3));
    } else {
      body += fmt::format(
          R"("kind":"value","name":"blocks.{}.attn.{}","step":{},"call":0,"site":"model.py:{}","scope":"blocks.{}.attn",)"
          R"("io":"output","phase":"forward","root":"GPT#0","class":"Attention","tensor":{{"dtype":"bfloat16","shape":[8,128,64],)"
          R"("fp":"{:016x}{:016x}","stats":{{"min":{},"max":{},"mean":{},"std":{},"l2":{},"absmax":{},"zero":{}}},"at":[{},{},131072]}})",
          i / 10 % 12, "qkvo"[kind % 4], step, kind + 20, i / 10 % 12, i * 0x9E3779B97F4A7C15ull,
          i * 0xC2B2AE3D27D4EB4Full, -3.0 - 1.0 / (i + 7), 3.0 + 1.0 / (i + 9), 1e-3 / (i + 1), 1.0 + 1.0 / (i + 11),
          256.0 + 1.0 / (i + 5), 3.0 + 1.0 / (i + 9), i % 17 + 1, i / 2000, 65536 + 131072ll * (i % 2000));
    }
    journal << store::sealed_line(body);
  }
  journal << store::sealed_line(
      fmt::format(R"({{"seq":{},"t":0,"th":1,"kind":"note","name":"closed","step":0)", kEvents));
}

std::size_t open_and_list(const fs::path& run) {
  const Reader reader(run);
  // The journal alone is written: its segments are missing, and nothing else may be wrong.
  for (const Problem& problem : reader.problems())
    if (!problem.reason.starts_with("it is missing")) std::abort();
  return reader.names().size() + reader.steps().size() + reader.find({.name = "blocks.*.attn.q"}).size();
}

std::size_t on_demand(const fs::path& journal) {
  using namespace simdjson;
  const padded_string text = padded_string::load(journal.string());
  ondemand::parser parser;
  ondemand::document_stream stream;
  if (parser.iterate_many(text).get(stream)) std::abort();
  std::size_t total = 0;
  for (auto document : stream) {
    ondemand::object event;
    if (document.get_object().get(event)) std::abort();
    for (auto field : event) {
      const auto key = field.key().value_unsafe();
      std::string_view name;
      std::int64_t number = 0;
      if (key == "seq" || key == "step" || key == "call") {
        if (field.value().get_int64().get(number)) std::abort();
        total += static_cast<std::size_t>(number & 1);
      } else if (key == "name" || key == "kind") {
        if (field.value().get_string().get(name)) std::abort();
        total += name.size();
      }
    }
  }
  return total;
}

std::size_t dom(const fs::path& journal) {
  using namespace simdjson;
  const padded_string text = padded_string::load(journal.string());
  dom::parser parser;
  dom::document_stream stream;
  if (parser.parse_many(text).get(stream)) std::abort();
  std::size_t total = 0;
  for (auto document : stream) total += static_cast<std::size_t>(document["seq"].get_uint64().value_unsafe() & 1);
  return total;
}

// The best time of a piece of work: by the clock, and of the processor (of all threads: simdjson's streams use a second
// one).
struct Best {
  double wall = 1e9;
  double cpu = 1e9;

  void take(const std::function<std::size_t()>& work) {
    const double wall_start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
    volatile std::size_t sink = work();
    (void)sink;
    wall = std::min(wall, now(CLOCK_MONOTONIC) - wall_start);
    cpu = std::min(cpu, now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
  }
  static double now(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
};

void print(const char* what, const Best& best, const Best& ours) {
  fmt::print("{:<20} {:7.3f} s  {:7.3f} s   ratio {:5.2f}  {:5.2f}\n", what, best.wall, best.cpu, ours.wall / best.wall,
             ours.cpu / best.cpu);
}

}  // namespace

int main() {
  const fs::path run = fs::temp_directory_path() / fmt::format("tenscope-reader-bench-{}", ::getpid());
  write_run(run);
  const fs::path journal = run / "rank-0" / "journal.jsonl";
  Best ours, lazy, tree;
  for (int round = 0; round < kRounds; ++round) {
    ours.take([&] { return open_and_list(run); });
    lazy.take([&] { return on_demand(journal); });
    tree.take([&] { return dom(journal); });
  }
  fmt::print("{} events, {:.0f} MB, simdjson {}.{}.{} ({}); goal: a ratio of at most 2\n", kEvents,
             static_cast<double>(fs::file_size(journal)) / 1e6, +simdjson::SIMDJSON_VERSION_MAJOR,
             +simdjson::SIMDJSON_VERSION_MINOR, +simdjson::SIMDJSON_VERSION_REVISION,
             simdjson::get_active_implementation()->name());
  fmt::print("{:<20} {:>9}  {:>9}   {:>11}  {:>5}\n", "", "wall", "CPU", "wall", "CPU");
  print("open and list", ours, ours);
  print("simdjson On-Demand", lazy, ours);
  print("simdjson DOM", tree, ours);
  fs::remove_all(run);
}
