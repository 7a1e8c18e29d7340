#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tenscope/event.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::viewer {

// By what a page names an event: the writer and the place among its events. Stays the same while a run grows.
using EventNumber = std::uint64_t;

// One side of what is looked at: a run as it stood when it was opened, or a file of tensors, each of which is an event
// of step 0. Immutable, so any number of threads may use it.
class Side {
 public:
  virtual ~Side() = default;

  virtual std::string path() const = 0;
  virtual const Reader* reader() const noexcept { return nullptr; }  // of a run
  virtual std::size_t event_count() const noexcept = 0;
  virtual Event event(EventId id) const = 0;
  virtual TensorData tensor(EventId id) const = 0;
  virtual bool has_bytes(EventId id, const TensorRecord& record) const = 0;
  // Whether the file that has a tensor's bytes has become too short for them. False where it is gone: what was mapped
  // of it stays.
  virtual bool is_cut_short(EventId) const { return false; }

  // The path as people know it: of a copy of a run that lies elsewhere, that place.
  std::string shown_path() const { return shown_path_.empty() ? path() : shown_path_; }
  // The same as it stands now; null for what does not change.
  virtual std::shared_ptr<const Side> reopened() const { return nullptr; }
  std::string label() const;  // the last part of it
  std::size_t writer_count() const noexcept;
  std::size_t writer_of(EventId id) const noexcept;
  EventId first_event(std::size_t writer) const noexcept;
  std::size_t event_count(std::size_t writer) const noexcept;
  int rank_of(EventId id) const noexcept;
  bool is_running() const noexcept;
  std::int64_t first_time_ns() const noexcept { return first_time_ns_; }  // of the first event, since the epoch

  EventNumber number_of(EventId id) const noexcept;
  EventId id_of(EventNumber number) const;  // throws NotFound

 protected:
  std::int64_t first_time_ns_ = 0;
  std::string shown_path_;
};

std::shared_ptr<const Side> open_run_side(const std::filesystem::path& run, std::string shown_path);
// A file, or a folder of files.
std::shared_ptr<const Side> open_file_side(const std::filesystem::path& path, std::string shown_path);

}  // namespace tenscope::viewer
