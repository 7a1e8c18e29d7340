#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::store {

namespace fs = std::filesystem;

inline constexpr int kFormatVersion = 1;
inline constexpr std::string_view kRunFile = "run.json";
inline constexpr std::string_view kJournalFile = "journal.jsonl";

// The folder of one writer in a run.
struct WriterFolder {
  fs::path path;
  int rank = 0;
  std::int64_t pid = 0;  // of a forked child, else 0
};

// "rank-3", "rank-3.pid-4312", "rank-3.pid-4312.2"; nullopt for any other name.
std::optional<WriterFolder> parse_writer_folder(const fs::path& path);

std::vector<WriterFolder> writer_folders(const fs::path& run);  // by rank, then pid

// The earlier parts of a journal in their order, without journal.jsonl itself.
std::vector<fs::path> journal_parts(const fs::path& folder);

struct SegmentFile {
  fs::path path;
  bool is_open = false;
};

std::map<std::int64_t, SegmentFile> segment_files(const fs::path& folder);
fs::path segment_path(const fs::path& folder, std::int64_t number, bool is_open);

bool is_run(const fs::path& folder);

// What a reader needs of run.json; the rest is for people.
struct RunFile {
  std::string text;
  std::int64_t started_ns = 0;
  bool is_ring = false;  // keep = last: dropped segments are no damage
  int world_size = 1;    // how many ranks were expected
};

// Throws Version for a newer format, NotFound and Io; Corrupt where it is no JSON.
RunFile read_run_file(const fs::path& run);

// "; it is a part of the run runs/a", where that is so of a path.
std::string part_of_run(const fs::path& path);

// The run to open where a user named `path`: the run itself, or the newest below it. Throws NotFound.
fs::path resolve_run(const fs::path& path);

// Whether the writer of this folder is alive: it holds a lock on its journal.
bool is_being_written(const fs::path& folder);

}  // namespace tenscope::store
