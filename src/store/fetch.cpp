#include "store/fetch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "tenscope/error.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::uint64_t id = 0;
  fs::path folder;
  std::shared_ptr<const Fetch> fetch;
};

struct Registry {
  std::mutex mutex;
  std::uint64_t next_id = 1;
  std::vector<Entry> entries;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

fs::path plain(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

FetchScope::FetchScope(const fs::path& folder, Fetch fetch) {
  const std::lock_guard lock(registry().mutex);
  id_ = registry().next_id++;
  registry().entries.push_back({id_, plain(folder), std::make_shared<const Fetch>(std::move(fetch))});
}

FetchScope::~FetchScope() {
  std::shared_ptr<const Fetch> last;  // may be the last to hold it: it dies without the lock
  const std::lock_guard lock(registry().mutex);
  std::vector<Entry>& entries = registry().entries;
  const auto own = std::ranges::find(entries, id_, &Entry::id);
  last = std::move(own->fetch);
  entries.erase(own);
}

namespace store {

Fetcher::Fetcher(const fs::path& run) {
  const std::lock_guard lock(registry().mutex);
  if (registry().entries.empty()) return;
  const fs::path path = plain(run);
  for (const Entry& entry : registry().entries)
    if (is_inside(path, entry.folder)) fetch_ = entry.fetch;
}

void Fetcher::range(const fs::path& file, std::uint64_t offset, std::uint64_t size_bytes) const {
  if (!is_set() || size_bytes == 0) return;
  try {
    (*fetch_)(file, offset, size_bytes);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::Io, fmt::format("cannot fetch bytes of a file: {}: {}", error.what(), file.string()));
  }
}

void Fetcher::whole(const fs::path& file) const {
  if (!is_set()) return;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (!error) range(file, 0, size);
}

}  // namespace store
}  // namespace tenscope
