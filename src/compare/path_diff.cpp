#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "compare/value_diff.hpp"
#include "format/format.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;

// The loadable files of a folder and its sub-folders, by their path within it.
std::map<std::string, fs::path> files_of(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
    if (entry.is_regular_file() && is_loadable(entry.path())) {
      files.emplace(entry.path().lexically_relative(folder).generic_string(), entry.path());
    }
  }
  return files;
}

std::string without_extension(const std::string& name) { return fs::path(name).replace_extension().generic_string(); }

struct FilePair {
  std::string name;
  fs::path a;  // empty where the file is on one side only
  fs::path b;
};

std::vector<FilePair> pair_files(const std::map<std::string, fs::path>& a, std::map<std::string, fs::path> b) {
  std::vector<FilePair> pairs;
  std::map<std::string, fs::path> left_over;
  for (const auto& [name, path] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      left_over.emplace(name, path);
      continue;
    }
    pairs.push_back({name, path, found->second});
    b.erase(found);
  }
  for (const auto& [name, path] : left_over) {
    const auto found = std::ranges::find_if(
        b, [&](const auto& other) { return without_extension(other.first) == without_extension(name); });
    if (found == b.end()) {
      pairs.push_back({name, path, {}});
      continue;
    }
    pairs.push_back({name, path, found->second});
    b.erase(found);
  }
  for (const auto& [name, path] : b) pairs.push_back({name, {}, path});
  std::ranges::sort(pairs, {}, &FilePair::name);
  return pairs;
}

void diff_pair(const FilePair& pair, ValueDiff& diff, const DiffOptions& options, const NamedProgress& progress) {
  if (pair.a.empty() || pair.b.empty()) {
    const bool in_a = pair.b.empty();
    ++diff.one_sided;
    ++diff.different;
    diff.entries.push_back({pair.name, in_a ? EntryStatus::OnlyA : EntryStatus::OnlyB,
                            fmt::format("only in {}", in_a ? diff.a : diff.b), nullptr});
    return;
  }
  ++diff.files;
  try {
    add_values(diff, pair.name, load(pair.a), load(pair.b), options, progress);
  } catch (const Error& error) {
    ++diff.trouble;
    ++diff.different;
    diff.entries.push_back({pair.name, EntryStatus::Trouble, error.what(), nullptr});
  }
}

}  // namespace

ValueDiff diff_paths(const fs::path& a, const fs::path& b, const DiffOptions& options, const NamedProgress& progress) {
  for (const auto& path : {a, b}) {
    if (!fs::exists(path)) {
      throw Error(ErrorCode::NotFound, fmt::format("cannot compare: no such file or folder: {}", path.string()));
    }
  }
  if (fs::is_directory(a) != fs::is_directory(b)) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot compare a file with a folder: {} and {}", a.string(), b.string()));
  }
  ValueDiff diff;
  if (!fs::is_directory(a)) {
    diff = diff_values(load(a), load(b), options, progress);
    diff.a = a.string();
    diff.b = b.string();
    return diff;
  }
  diff.a = a.string();
  diff.b = b.string();
  const auto pairs = pair_files(files_of(a), files_of(b));
  if (pairs.empty()) {
    throw Error(ErrorCode::NotFound,
                fmt::format("nothing to compare: no file of a known format in {} and {}", a.string(), b.string()));
  }
  for (const auto& pair : pairs) diff_pair(pair, diff, options, progress);
  return diff;
}

}  // namespace tenscope
