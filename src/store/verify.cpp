// Overview: a run is read as any reader would, then every event whole, then every segment: its header's structure, that
// it names what the journal says, and the fingerprint of each tensor, once. What is found is told and the search goes
// on.
#include "store/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "format/format.hpp"
#include "kernels/summarize.hpp"
#include "store/fetch.hpp"
#include "store/journal_reader.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "store/segment_header.hpp"
#include "store/sources.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

using Range = std::pair<std::uint64_t, std::uint64_t>;

// Bytes of a segment that the journal tells of, and the events that do.
struct Blob {
  Fingerprint fingerprint;                     // that the first of them tells
  std::map<std::string, std::string> layouts;  // by key
  bool has_differing_prints = false;
};

bool is_filler(std::string_view key) {
  for (const std::string_view start : {kPadKey, kUnnamedKey}) {
    if (key.starts_with(start)) return key.find_first_not_of("0123456789", start.size()) == key.npos;
  }
  return false;
}

class Verification {
 public:
  Verification(const fs::path& run, const Progress& progress)
      : reader_(run, {.check_fingerprints = false}), fetcher_(reader_.path()), progress_(progress) {
    problems_.assign(reader_.problems().begin(), reader_.problems().end());
    is_damaged_ = std::any_of(problems_.begin(), problems_.end(),
                              [](const Problem& problem) { return problem.kind == ProblemKind::Damage; });
    for (const WriterInfo& writer : reader_.writers()) folders_.push_back(reader_.path() / writer.folder);
    try {
      is_ring_ = read_run_file(reader_.path()).is_ring;
    } catch (const Error&) {
      // The reader has told of it.
    }
  }

  std::vector<Problem> run() {
    blobs_.resize(reader_.writers().size());
    check_run_json();
    if (folders_.empty())
      tell(reader_.path(), 0, "no writer's folder is in it: nothing was recorded, or what was recorded is lost");
    for (EventId id = 0; id < reader_.event_count(); ++id) check_event(id);
    for (const TensorRecord& record : files_) check_file(record);
    check_sources();
    for (const auto& segments : blobs_) {
      for (const auto& [number, blobs] : segments) {
        for (const auto& [range, blob] : blobs) total_bytes_ += range.second - range.first;
      }
    }
    for (std::size_t writer = 0; writer < reader_.writers().size(); ++writer) {
      check_ending(writer);
      check_segments(writer);
    }
    return std::move(problems_);
  }

 private:
  void tell(const fs::path& file, std::uint64_t offset, std::string reason) {
    problems_.push_back({file, offset, std::move(reason)});
  }

  void check_run_json() {
    std::string_view text = reader_.run_json();
    const bool is_whole = text.ends_with('\n');
    if (is_whole) text.remove_suffix(1);
    if (!is_whole || !has_right_sum(text))
      tell(reader_.path() / kRunFile, 0, "it does not end with its right checksum");
  }

  void check_event(EventId id) {
    try {
      const Event event = reader_.event(id);
      const auto* record = std::get_if<TensorRecord>(&event.value);
      if (record == nullptr) return;
      if (!record->blob) {
        if (!record->file.empty()) files_.push_back(*record);
        return;
      }
      const Range range{record->blob->offset, record->blob->offset + record->blob->size_bytes};
      Blob& blob = blobs_[reader_.writer_index(id)][record->blob->segment][range];
      if (blob.layouts.empty()) blob.fingerprint = record->fingerprint;
      blob.has_differing_prints |= blob.fingerprint != record->fingerprint;
      constexpr std::size_t kEnoughKeys = 64;  // the first stored it; a constant tensor may have a million events
      if (blob.layouts.size() < kEnoughKeys) blob.layouts.emplace(segment_key(event), stored_layout(*record));
    } catch (const Error& error) {
      tell(folders_[reader_.writer_index(id)] / kJournalFile, 0, error.what());
    }
  }

  // A tensor in a file of its own, beside the writers' folders.
  void check_file(const TensorRecord& record) {
    const fs::path path = reader_.path() / record.file;
    if (fs::path(record.file).is_absolute() || record.file.find("..") != std::string::npos)
      return tell(path, 0, "it lies outside of the run");
    fetcher_.whole(path);
    try {
      const Value value = load(path);
      const Tensor* tensor = value.get_if<Tensor>();
      if (tensor == nullptr || kernels::fingerprint(tensor->view()) != record.fingerprint)
        tell(path, 0, "it does not hold the tensor that was recorded");
    } catch (const Error& error) {
      tell(path, 0, error.what());
    }
  }

  void check_sources() {
    std::set<std::string> checked;
    for (const SourceFile& source : reader_.sources()) {
      if (source.fingerprint.empty() || !checked.insert(source.fingerprint).second) continue;
      try {
        reader_.source_text(source.fingerprint);
      } catch (const Error& error) {
        tell(reader_.path() / kSourcesFolder / (source.fingerprint + ".py"), 0, error.what());
      }
    }
  }

  void check_ending(std::size_t writer) {
    const WriterInfo& info = reader_.writers()[writer];
    if (info.closed || info.repaired || info.running) return;
    const fs::path path = folders_[writer] / kJournalFile;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    tell(path, error ? 0 : size,
         "it ends without having been closed: its writer crashed, or it was cut; tenscope repair closes it");
  }

  void check_segments(std::size_t writer) {
    const fs::path& folder = folders_[writer];
    const WriterInfo& info = reader_.writers()[writer];
    const auto files = segment_files(folder);
    // A crash may come between a tensor's bytes, with which its segment may be sealed, and its line.
    const bool has_all_events = !is_damaged_ && !is_ring_ && info.closed;
    for (const auto& [number, file] : files) {
      if (!blobs_[writer].contains(number)) check_segment(file, {}, has_all_events);
      if (file.is_open && (info.closed || info.repaired))
        tell(file.path, 0, "it is not sealed; tenscope repair seals it");
    }
    for (const auto& [number, blobs] : blobs_[writer]) {
      const auto file = files.find(number);
      if (file != files.end()) {
        check_segment(file->second, blobs, has_all_events);
      }  // else it is missing, of which the reader has told
    }
  }

  void check_segment(const SegmentFile& file, const std::map<Range, Blob>& blobs, bool has_all_events) {
    fetcher_.whole(file.path);
    try {
      const auto mapping = map(file);
      std::map<Range, std::pair<std::string, HeaderItem>> entries;
      bool has_header = false;
      if (!file.is_open) {
        try {
          for (auto& [key, item] : read_segment_header(mapping->bytes())) {
            entries.emplace(Range(item.begin, item.end), std::pair(key, item));
          }
          has_header = true;
        } catch (const Error& error) {
          tell(file.path, 0, error.what());
        }
      }
      for (const auto& [range, named] : entries) {
        if (has_all_events && !is_filler(named.first) && !blobs.contains(range)) {
          tell(file.path, range.first, fmt::format("its header has '{}', of which no event tells", named.first));
        }
      }
      for (const auto& [range, blob] : blobs) {
        if (!check_bytes(file.path, mapping->bytes(), range, blob) || !has_header || range.first == range.second)
          continue;
        check_entry(file.path, entries, range, blob, has_all_events);
      }
    } catch (const Error& error) {
      tell(file.path, 0, error.what());
    }
  }

  // A segment loses its ".open" when it is sealed, which may happen meanwhile.
  static std::unique_ptr<ReadMapping> map(const SegmentFile& file) {
    try {
      return std::make_unique<ReadMapping>(file.path);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::NotFound || !file.is_open) throw;
      return std::make_unique<ReadMapping>(fs::path(file.path).replace_extension());
    }
  }

  bool check_bytes(const fs::path& path, std::span<const std::byte> bytes, const Range& range, const Blob& blob) {
    const std::string& key = blob.layouts.begin()->first;
    if (range.second < range.first || range.second > bytes.size()) {
      tell(path, range.first, fmt::format("'{}' ends at {} but the file at {}", key, range.second, bytes.size()));
      return false;
    }
    if (blob.has_differing_prints)
      tell(path, range.first, fmt::format("events that share '{}' have different fingerprints", key));
    const auto size = static_cast<std::int64_t>(range.second - range.first);
    const Fingerprint found = kernels::fingerprint({bytes.data() + range.first, DType::U8, {&size, 1}, {}, "cpu"});
    done_bytes_ += static_cast<std::uint64_t>(size);
    if (progress_) progress_(done_bytes_, total_bytes_);
    if (found == blob.fingerprint) return true;
    tell(path, range.first,
         fmt::format("the bytes of '{}' have changed: fingerprint {} instead of {}", key, found.hex(),
                     blob.fingerprint.hex()));
    return false;
  }

  void check_entry(const fs::path& path, const std::map<Range, std::pair<std::string, HeaderItem>>& entries,
                   const Range& range, const Blob& blob, bool has_all_events) {
    const std::string& expected = blob.layouts.begin()->first;
    const auto found = entries.find(range);
    if (found == entries.end()) {
      auto above = entries.upper_bound({range.first, ~std::uint64_t{0}});
      const bool is_unnamed = above != entries.begin() && (--above)->second.first.starts_with(kUnnamedKey);
      if (!is_unnamed) tell(path, range.first, fmt::format("its header has no entry for '{}'", expected));
      return;
    }
    const auto& [key, item] = found->second;
    auto told = blob.layouts.find(key);
    if (told == blob.layouts.end()) told = blob.layouts.find(key.substr(0, key.rfind('~')));
    if (told == blob.layouts.end() && !has_all_events) return;  // the event that stored it is gone
    if (told == blob.layouts.end() || item.layout != told->second) {
      tell(path, range.first,
           fmt::format("its header has '{}' {} where the journal has '{}' {}", key, item.layout, expected,
                       blob.layouts.begin()->second));
    }
  }

  Reader reader_;
  const Fetcher fetcher_;
  std::vector<fs::path> folders_;  // of the writers
  bool is_ring_ = false;
  bool is_damaged_ = false;                                           // a journal, so that events may be missing
  std::vector<std::map<std::int64_t, std::map<Range, Blob>>> blobs_;  // by writer and segment
  std::vector<TensorRecord> files_;                                   // tensors in files of their own
  std::vector<Problem> problems_;
  const Progress& progress_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

std::vector<Problem> verify(const fs::path& run, const Progress& progress) { return Verification(run, progress).run(); }

}  // namespace tenscope::store

namespace tenscope {

std::vector<Problem> verify(const std::filesystem::path& run) { return store::verify(run, nullptr); }

}  // namespace tenscope
