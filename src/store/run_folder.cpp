#include "store/run_folder.hpp"

#include <fmt/format.h>
#include <simdjson.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <tuple>

#include "core/suggest.hpp"
#include "store/read_file.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

constexpr std::size_t kLongestRunFile = 64u << 20;  // a command line may be long
constexpr int kDeepestSearch = 4;
constexpr std::string_view kSealed = ".safetensors";
constexpr std::string_view kOpen = ".safetensors.open";
constexpr std::string_view kPartStart = "journal-";
constexpr std::string_view kPartEnd = ".jsonl";

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

template <class Visit>
void for_each_entry(const fs::path& folder, Visit visit) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) visit(*it);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorCode::Io, fmt::format("cannot list a folder: {}: {}", error.message(), folder.string()));
  }
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error) && !entry.is_symlink(error);
}

void collect_runs(const fs::path& folder, int depth, std::vector<fs::path>& runs) {
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    if (!is_folder(entry)) return;
    if (is_run(entry.path())) {
      runs.push_back(entry.path());
    } else if (depth < kDeepestSearch) {
      try {
        collect_runs(entry.path(), depth + 1, runs);
      } catch (const Error&) {
        // A folder that may not be listed holds no run that could be read.
      }
    }
  });
}

std::int64_t start_of(const fs::path& run) {
  try {
    return read_run_file(run).started_ns;
  } catch (const Error&) {
    std::error_code error;
    const auto time = fs::last_write_time(run, error);
    return error ? 0 : std::chrono::file_clock::to_sys(time).time_since_epoch().count();
  }
}

// "; did you mean 'runs/a'?": folders beside one that is not there.
std::string similar_folders(const fs::path& path) {
  const fs::path parent = path.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(parent.empty() ? "." : parent, error), end; !error && it != end; it.increment(error))
    if (is_folder(*it)) names.push_back((parent / it->path().filename()).string());
  return did_you_mean(path.string(), names);
}

}  // namespace

std::optional<WriterFolder> parse_writer_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kRank = "rank-";
  constexpr std::string_view kPid = ".pid-";
  if (!name.starts_with(kRank)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(kRank.size());
  const std::size_t dot = rest.find(kPid);
  const auto rank = parse_number(rest.substr(0, dot));
  const std::string_view child = dot == rest.npos ? "0" : rest.substr(dot + kPid.size());
  const std::size_t again = child.find('.');  // rank-0.pid-4312.2: the second of that process
  const auto pid = parse_number(child.substr(0, again));
  if (again != child.npos && !parse_number(child.substr(again + 1))) return std::nullopt;
  if (!rank || *rank > std::numeric_limits<int>::max() || !pid) return std::nullopt;
  return WriterFolder{path, static_cast<int>(*rank), *pid};
}

std::vector<WriterFolder> writer_folders(const fs::path& run) {
  std::vector<WriterFolder> folders;
  for_each_entry(run, [&](const fs::directory_entry& entry) {
    std::error_code error;
    if (!entry.is_directory(error)) return;
    if (auto folder = parse_writer_folder(entry.path())) folders.push_back(std::move(*folder));
  });
  std::sort(folders.begin(), folders.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rank, a.pid, a.path) < std::tie(b.rank, b.pid, b.path);
  });
  return folders;
}

std::vector<fs::path> journal_parts(const fs::path& folder) {
  std::map<std::int64_t, fs::path> parts;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPartStart) || !name.ends_with(kPartEnd)) return;
    const std::size_t length = name.size() - std::min(name.size(), kPartStart.size() + kPartEnd.size());
    if (auto number = parse_number(std::string_view(name).substr(kPartStart.size(), length)))
      parts[*number] = entry.path();
  });
  std::vector<fs::path> result;
  for (auto& [number, path] : parts) result.push_back(std::move(path));
  return result;
}

std::map<std::int64_t, SegmentFile> segment_files(const fs::path& folder) {
  std::map<std::int64_t, SegmentFile> segments;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const bool is_open = name.ends_with(kOpen);
    if (!is_open && !name.ends_with(kSealed)) return;
    const auto number =
        parse_number(std::string_view(name).substr(0, name.size() - (is_open ? kOpen : kSealed).size()));
    if (!number) return;
    SegmentFile& segment = segments[*number];
    if (segment.path.empty() || segment.is_open) segment = {entry.path(), is_open};
  });
  return segments;
}

fs::path segment_path(const fs::path& folder, std::int64_t number, bool is_open) {
  return folder / fmt::format("{:06}{}", number, is_open ? kOpen : kSealed);
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kRunFile, error)) return true;
  for (const WriterFolder& writer : writer_folders(folder)) {
    if (fs::exists(writer.path / kJournalFile, error)) return true;
    if (!journal_parts(writer.path).empty() || !segment_files(writer.path).empty()) return true;
  }
  return false;
}

RunFile read_run_file(const fs::path& run) {
  const fs::path path = run / kRunFile;
  RunFile result;
  result.text = read_text(path, kLongestRunFile);
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const auto fail = [&](std::string_view why) {
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read run.json: {}: {}", why, path.string()));
  };
  if (const auto error = parser.parse(result.text).get_object().get(object)) fail(simdjson::error_message(error));
  std::int64_t version = 0;
  if (object["tenscope_format"].get_int64().get(version)) fail("it has no number tenscope_format");
  if (version > kFormatVersion) {
    throw Error(ErrorCode::Version,
                fmt::format("cannot read a run: its format is version {}, this tenscope reads up to {}: {}", version,
                            kFormatVersion, path.string()));
  }
  std::string_view keep;
  if (object["started_ns"].get_int64().get(result.started_ns)) fail("it has no number started_ns");
  std::int64_t world_size = 1;
  if (!object["world_size"].get_int64().get(world_size))
    result.world_size = static_cast<int>(std::clamp<std::int64_t>(world_size, 1, std::numeric_limits<int>::max()));
  result.is_ring = !object["keep"].get_string().get(keep) && keep == "last";
  return result;
}

std::string part_of_run(const fs::path& path) {
  std::error_code error;
  for (fs::path above = path.parent_path(); above.has_relative_path(); above = above.parent_path())
    if (fs::exists(above / kRunFile, error)) return fmt::format("; it is a part of the run {}", above.string());
  return "";
}

fs::path resolve_run(const fs::path& path) {
  const std::vector<fs::path> runs = list_runs(path);
  if (runs.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("cannot open a run: there is none in it{}: {}", part_of_run(path), path.string()));
  return runs.back();
}

bool is_being_written(const fs::path& folder) {
  try {
    const ReadFile journal(folder / kJournalFile);
    if (::flock(journal.fd(), LOCK_SH | LOCK_NB) == 0) return false;  // closing the file gives it back
    return errno == EWOULDBLOCK;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tenscope::store

namespace tenscope {

std::vector<std::filesystem::path> list_runs(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    const bool is_there = std::filesystem::exists(folder, error);
    throw Error(ErrorCode::NotFound,
                fmt::format("cannot open a run: {}{}: {}", is_there ? "this is a file" : "there is no such folder",
                            is_there ? store::part_of_run(folder) : store::similar_folders(folder), folder.string()));
  }
  if (store::is_run(folder)) return {folder};
  std::vector<std::filesystem::path> runs;
  store::collect_runs(folder, 1, runs);
  std::vector<std::pair<std::int64_t, std::filesystem::path>> dated;
  for (auto& run : runs) dated.emplace_back(store::start_of(run), std::move(run));
  std::sort(dated.begin(), dated.end());
  runs.clear();
  for (auto& [start, run] : dated) runs.push_back(std::move(run));
  return runs;
}

}  // namespace tenscope
