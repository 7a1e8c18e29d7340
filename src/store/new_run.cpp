#include "store/new_run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "core/json_writer.hpp"
#include "store/file.hpp"
#include "store/journal_reader.hpp"

namespace tenscope::store {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxAttempts = 100'000;

bool make_folder(const fs::path& path) {  // false: it is there already
  if (::mkdir(path.c_str(), 0755) == 0) return true;
  if (errno != EEXIST) throw_io("cannot create folder", errno, path);
  return false;
}

void make_folders(const fs::path& path, bool is_durable) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  if (path.has_parent_path() && path != path.parent_path()) make_folders(path.parent_path(), is_durable);
  fs::create_directory(path, error);
  if (error) throw_io("cannot create folder", error.value(), path);
  if (is_durable) sync_folder(path.parent_path());
}

std::string timestamp(const char* format, const tm& local) {
  std::array<char, 64> text{};
  return {text.data(), ::strftime(text.data(), text.size(), format, &local)};
}

std::string iso_zone(const tm& local) {  // +0100 → +01:00
  auto zone = timestamp("%z", local);
  if (zone.size() == 5) zone.insert(3, ":");
  return zone;
}

void put_command(JsonWriter& json) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  json.begin_array();
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\0', begin), text.size());
    json.text(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  json.end_array();
}

std::string run_json(const RunOptions& options, const timespec& now, const tm& local) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("tenscope_format").number(1).key("tenscope_version").text(TENSCOPE_VERSION);
  json.key("started").text(timestamp("%Y-%m-%dT%H:%M:%S", local) + fmt::format(".{:06}", now.tv_nsec / 1000) +
                           iso_zone(local));
  json.key("started_ns").number(static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  json.key("host").text(host.data()).key("pid").number(static_cast<std::int64_t>(::getpid())).key("command");
  put_command(json);
  json.key("world_size").number(options.world_size);
  if (options.max_bytes > 0) {
    json.key("max_bytes").number(options.max_bytes).key("keep").text(options.keep == Keep::Last ? "last" : "first");
  }
  return sealed_line(text);
}

// Whoever comes first writes it; it appears whole.
void write_run_json(const fs::path& run, const std::string& text, bool is_durable) {
  const auto path = run / "run.json";
  std::error_code ignored;
  if (fs::exists(path, ignored)) return;
  const auto draft = run / fmt::format(".run.json.{}", ::getpid());
  File file(draft, O_WRONLY | O_CREAT | O_TRUNC);
  file.write_at(std::as_bytes(std::span(text)), 0);
  if (is_durable) file.sync();
  if (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST) {
    ::unlink(draft.c_str());
  } else {
    rename_file(draft, path);  // no hard links here
  }
}

}  // namespace

RunFolder make_run_folder(const fs::path& base, const RunOptions& options) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  const bool is_named = !options.name.empty();
  const std::string name = is_named ? options.name : timestamp("%Y%m%d_%H%M%S", local);
  if (name == "." || name == ".." || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("cannot create run: its name is no file name: {}", name));
  }
  const bool joins = is_named && (options.join || options.world_size > 1 || options.rank > 0);
  const bool is_durable = options.durability == Durability::Disk;
  make_folders(base, is_durable);

  for (int attempt = 1; attempt < kMaxAttempts; ++attempt) {
    const fs::path run = base / (attempt == 1 ? name : fmt::format("{}_{}", name, attempt));
    const bool is_new = make_folder(run);
    if (!is_new && !joins) continue;
    write_run_json(run, run_json(options, now, local), is_durable);
    const fs::path writer = run / fmt::format("rank-{}", options.rank);
    if (!make_folder(writer)) return {run, make_child_folder(run, options)};
    if (is_durable) {
      sync_folder(base);
      sync_folder(run);
    }
    return {run, writer};
  }
  throw_io("cannot create run", EEXIST, base / name);
}

fs::path make_child_folder(const fs::path& run, const RunOptions& options) {
  for (int attempt = 1; attempt < kMaxAttempts; ++attempt) {
    const auto pid = fmt::format("rank-{}.pid-{}", options.rank, ::getpid());
    const fs::path writer = run / (attempt == 1 ? pid : fmt::format("{}.{}", pid, attempt));
    if (!make_folder(writer)) continue;
    if (options.durability == Durability::Disk) {
      sync_folder(run.parent_path());
      sync_folder(run);
    }
    return writer;
  }
  throw_io("cannot create folder", EEXIST, run);
}

}  // namespace tenscope::store
