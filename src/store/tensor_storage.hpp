#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/value.hpp"
#include "store/fetch.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "tenscope/event.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::store {

// The bytes of a run's tensors, mapped when asked for and kept until it dies. Thread-safe.
class TensorStorage {
 public:
  TensorStorage(std::vector<WriterFolder> writers, Fetcher fetcher, bool is_ring, bool checks_fingerprints)
      : writers_(std::move(writers)),
        fetcher_(std::move(fetcher)),
        is_ring_(is_ring),
        checks_fingerprints_(checks_fingerprints) {}

  // The tensor of `event`, which `record` is part of. Throws NotFound, Corrupt, Io; see Reader::tensor.
  TensorView view(std::size_t writer, const TensorRecord& record, const Event& event);
  bool has_bytes(std::size_t writer, const TensorRecord& record);
  void release(std::size_t writer) noexcept;  // the memory of its mapped segments; they stay mapped

 private:
  using Place = std::pair<std::size_t, std::int64_t>;  // a writer's index and a segment's number

  const std::byte* bytes_of(std::size_t writer, const TensorRecord& record);
  const std::byte* bytes_of_file(std::size_t writer, const TensorRecord& record);
  std::shared_ptr<const ReadMapping> mapping(Place place, std::uint64_t end);
  std::shared_ptr<const ReadMapping> map_segment(Place place) const;
  void fetch(std::size_t writer, const BlobRef& blob) const;
  void check(std::size_t writer, const TensorRecord& record, const std::byte* bytes);

  const std::vector<WriterFolder> writers_;
  const Fetcher fetcher_;
  const bool is_ring_;
  const bool checks_fingerprints_;
  std::mutex mutex_;
  std::map<Place, std::shared_ptr<const ReadMapping>> mappings_;
  std::map<Place, bool> is_there_;
  std::vector<std::shared_ptr<const ReadMapping>> outgrown_;        // of open segments that were mapped again
  std::map<std::pair<Place, std::uint64_t>, Fingerprint> checked_;  // by offset
  std::deque<std::vector<std::max_align_t>> aligned_copies_;
  std::map<std::filesystem::path, Tensor> files_;
  std::set<std::vector<std::int64_t>> shapes_;
  std::set<std::string> devices_;
};

}  // namespace tenscope::store
