#include "store/tensor_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "format/format.hpp"
#include "kernels/summarize.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {

TensorView TensorStorage::view(std::size_t writer, const TensorRecord& record, const Event& event) {
  const auto name = [&] { return fmt::format("'{}' at step {}, call {}", event.name, event.step, event.call); };
  try {
    const std::byte* bytes = record.stats.count == 0 ? nullptr : bytes_of(writer, record);
    const std::lock_guard lock(mutex_);
    return {bytes, record.dtype, *shapes_.insert(record.shape).first, {}, *devices_.insert(record.device).first};
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("cannot read tensor {}: {}", name(), error.what()));
  }
}

bool TensorStorage::has_bytes(std::size_t writer, const TensorRecord& record) {
  if (!record.has_bytes()) return false;
  std::error_code ignored;
  if (!record.blob) return fs::exists(writers_[writer].path.parent_path() / record.file, ignored);
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = is_there_.try_emplace(Place{writer, record.blob->segment}, false);
  if (is_new)
    for (const bool is_open : {false, true, false})  // it may be sealed at any moment
      known->second =
          known->second || fs::exists(segment_path(writers_[writer].path, record.blob->segment, is_open), ignored);
  return known->second;
}

void TensorStorage::release(std::size_t writer) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto it = mappings_.lower_bound({writer, 0}); it != mappings_.end() && it->first.first == writer; ++it)
    if (it->second != nullptr) it->second->release();
}

const std::byte* TensorStorage::bytes_of(std::size_t writer, const TensorRecord& record) {
  if (!record.file.empty() && !record.blob) return bytes_of_file(writer, record);
  if (!record.blob)
    throw Error(ErrorCode::NotFound,
                record.is_cut ? "its bytes were not kept, only its statistics: the budget of the run was used up"
                              : "its bytes were not kept, only its statistics");
  const BlobRef blob = *record.blob;
  std::uint64_t end = 0;
  if (__builtin_add_overflow(blob.offset, blob.size_bytes, &end))
    throw Error(ErrorCode::Corrupt, "its place overflows 64 bits");
  const auto segment = mapping({writer, blob.segment}, end);
  fetch(writer, blob);
  const std::byte* bytes = segment->bytes().data() + blob.offset;
  if (checks_fingerprints_) check(writer, record, bytes);
  const std::size_t alignment = std::min(item_size(record.dtype), alignof(std::max_align_t));
  if (reinterpret_cast<std::uintptr_t>(bytes) % alignment == 0) return bytes;
  std::vector<std::max_align_t> copy((blob.size_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy.data(), bytes, blob.size_bytes);
  const std::lock_guard lock(mutex_);
  return reinterpret_cast<const std::byte*>(aligned_copies_.emplace_back(std::move(copy)).data());
}

const std::byte* TensorStorage::bytes_of_file(std::size_t writer, const TensorRecord& record) {
  const fs::path name = record.file;
  if (name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end())
    throw Error(ErrorCode::Corrupt, fmt::format("its file lies outside of the run: {}", record.file));
  const fs::path path = writers_[writer].path.parent_path() / name;
  fetcher_.whole(path);
  const std::lock_guard lock(mutex_);
  const auto known = files_.find(path);
  if (known != files_.end()) return known->second.data;
  const Value value = load(path);
  const Tensor* tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype != record.dtype || tensor->shape != record.shape)
    throw Error(ErrorCode::Corrupt, fmt::format("its file holds something else: {}", path.string()));
  const Fingerprint found = checks_fingerprints_ ? kernels::fingerprint(tensor->view()) : record.fingerprint;
  if (found != record.fingerprint)
    throw Error(ErrorCode::Corrupt, fmt::format("its bytes have changed: fingerprint {} instead of {}: {}", found.hex(),
                                                record.fingerprint.hex(), path.string()));
  const bool is_contiguous = is_c_order(tensor->view());
  return files_.emplace(path, is_contiguous ? *tensor : Tensor::copy_of(tensor->view())).first->second.data;
}

std::shared_ptr<const ReadMapping> TensorStorage::mapping(Place place, std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const ReadMapping>& known = mappings_[place];
  if (known == nullptr || known->bytes().size() < end) {
    if (known != nullptr) outgrown_.push_back(known);
    known = map_segment(place);
  }
  if (known->bytes().size() < end) {
    throw Error(ErrorCode::Corrupt,
                fmt::format("it ends at offset {} but segment {} has {} bytes: {}", end, place.second,
                            known->bytes().size(), writers_[place.first].path.string()));
  }
  return known;
}

// A segment loses its ".open" when it is sealed, which may happen at any moment.
std::shared_ptr<const ReadMapping> TensorStorage::map_segment(Place place) const {
  const fs::path& folder = writers_[place.first].path;
  for (const bool is_open : {false, true, false}) {
    try {
      return std::make_shared<const ReadMapping>(segment_path(folder, place.second, is_open));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::NotFound) throw;
    }
  }
  throw Error(ErrorCode::NotFound,
              fmt::format("segment {} {}: {}", place.second,
                          is_ring_ ? "was dropped to keep within the budget" : "is missing", folder.string()));
}

// Not under the lock: it may take long, and may need a lock of its own.
void TensorStorage::fetch(std::size_t writer, const BlobRef& blob) const {
  if (!fetcher_.is_set()) return;
  std::error_code error;
  const fs::path sealed = segment_path(writers_[writer].path, blob.segment, false);
  const bool is_sealed = fs::exists(sealed, error);
  fetcher_.range(is_sealed ? sealed : segment_path(writers_[writer].path, blob.segment, true), blob.offset,
                 blob.size_bytes);
}

void TensorStorage::check(std::size_t writer, const TensorRecord& record, const std::byte* bytes) {
  const std::pair key{Place{writer, record.blob->segment}, record.blob->offset};
  {
    const std::lock_guard lock(mutex_);
    const auto known = checked_.find(key);
    if (known != checked_.end() && known->second == record.fingerprint) return;
  }
  const auto size = static_cast<std::int64_t>(record.blob->size_bytes);
  const Fingerprint found = kernels::fingerprint({bytes, DType::U8, {&size, 1}, {}, "cpu"});
  if (found != record.fingerprint) {
    throw Error(ErrorCode::Corrupt,
                fmt::format("its bytes have changed: fingerprint {} instead of {}, at offset {} of segment {}: {}",
                            found.hex(), record.fingerprint.hex(), record.blob->offset, record.blob->segment,
                            writers_[writer].path.string()));
  }
  const std::lock_guard lock(mutex_);
  checked_.insert_or_assign(key, found);
}

}  // namespace tenscope::store
