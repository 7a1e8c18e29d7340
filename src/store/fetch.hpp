#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "tenscope/reader.hpp"

namespace tenscope::store {

// Brings bytes of a run's files here before they are read, where they lie elsewhere: by the FetchScope that the run's
// folder had when this was made, which may be gone since. Does nothing where there was none. Thread-safe.
class Fetcher {
 public:
  Fetcher() = default;
  explicit Fetcher(const std::filesystem::path& run);

  bool is_set() const noexcept { return fetch_ != nullptr; }
  // What `fetch` throws comes out as an Error.
  void range(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size_bytes) const;
  void whole(const std::filesystem::path& file) const;  // nothing where there is no such file

 private:
  std::shared_ptr<const Fetch> fetch_;
};

}  // namespace tenscope::store
