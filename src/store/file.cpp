#include "store/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "store/fork_guard.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tenscope::store {
namespace {

constexpr std::uint64_t kPage = 4096;
alignas(kPage) constexpr std::array<std::byte, 1 << 20> kZeros{};

std::atomic<std::int64_t> fault_allowed{-1};
std::atomic<int> fault_error{0};

int injected_fault(std::uint64_t size) noexcept {
  if (fault_allowed.load(std::memory_order_relaxed) < 0) return 0;
  const auto left = fault_allowed.fetch_sub(static_cast<std::int64_t>(size)) - static_cast<std::int64_t>(size);
  if (left >= 0) return 0;
  fault_allowed = 0;
  return fault_error;
}

std::atomic<bool> has_sync_observer{false};

SyncObserver& sync_observer() {
  static SyncObserver observer;
  return observer;
}

// `sync` is fsync or fdatasync.
int sync_descriptor(int fd, int (*sync)(int)) {
  const bool is_observed = has_sync_observer.load(std::memory_order_acquire);
  if (is_observed) sync_observer()(fd, false);
  if (sync(fd) != 0) return errno;
  if (is_observed) sync_observer()(fd, true);
  return 0;
}

// Going past RLIMIT_FSIZE raises SIGXFSZ, which kills by default: look before.
bool exceeds_file_limit(std::uint64_t end) noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur;
}

int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return 0;
}

int write_zeros(int fd, std::uint64_t offset, std::uint64_t size) noexcept {
  while (size > 0) {
    const auto piece = std::min<std::uint64_t>(size, kZeros.size());
    if (const int error = write_all(fd, std::span(kZeros).first(piece), offset)) return error;
    offset += piece;
    size -= piece;
  }
  return 0;
}

int allocate(int fd, std::uint64_t offset, std::uint64_t size) noexcept {
  if (const int error = injected_fault(size)) return error;
  if (exceeds_file_limit(offset + size)) return EFBIG;
  while (::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(fd, offset, size);
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

Trouble trouble_of(int error_number) noexcept {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Trouble::NoSpace;
    case EMFILE:
    case ENFILE:
      return Trouble::TooManyFiles;
    case EROFS:
    case EACCES:
    case EPERM:
      return Trouble::ReadOnly;
    case ENOENT:
    case ENOTDIR:
    case ESTALE:
      return Trouble::Vanished;
    default:
      return Trouble::OtherIo;
  }
}

void throw_io(const char* what, int error_number, const std::filesystem::path& path) {
  throw IoError(trouble_of(error_number),
                fmt::format("{}: {}: {}", what, std::generic_category().message(error_number), path.string()));
}

File::File(const std::filesystem::path& path, int flags) : path_(path) {
  const auto guard = ForkGuard::lock();
  generation_ = ForkGuard::generation();
  fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_io("cannot open file", errno, path);
  ForkGuard::list(fd_);
}

File& File::operator=(File&& other) noexcept {
  close();
  fd_ = std::exchange(other.fd_, -1);
  generation_ = other.generation_;
  path_ = std::move(other.path_);
  return *this;
}

void File::reserve(std::uint64_t offset, std::uint64_t size) {
  if (const int error = allocate(fd_, offset, size)) {
    // ext4 leaves the file grown, and the disk full, where the reservation failed half-way.
    [[maybe_unused]] const int ignored = ::ftruncate(fd_, static_cast<off_t>(offset));
    throw_io("cannot reserve space", error, path_);
  }
}

void File::reserve_cached(std::uint64_t offset, std::uint64_t size) {
  reserve(offset, size);
  // A big write brings large folios into the page cache; faulting the pages in one by one takes longer.
  if (const int error = write_zeros(fd_, offset, size)) {
    [[maybe_unused]] const int ignored = ::ftruncate(fd_, static_cast<off_t>(offset));
    throw_io("cannot reserve space", error, path_);
  }
}

void File::write_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  if (const int error = write_all(fd_, bytes, offset)) throw_io("cannot write", error, path_);
}

bool File::write_direct_at(const File& direct, std::span<const std::byte> bytes, std::uint64_t offset) {
  // The blocks at both ends are shared with what lies beside, so they go through the cache.
  const auto head = std::min<std::uint64_t>(bytes.size(), -offset % kDirectAlignment);
  const auto middle = (bytes.size() - head) / kDirectAlignment * kDirectAlignment;
  const int error = write_all(direct.fd(), bytes.subspan(head, middle), offset + head);
  if (error == EINVAL || error == EFAULT || error == EOPNOTSUPP) return false;
  if (error != 0) throw_io("cannot write", error, path_);
  write_at(bytes.first(head), offset);
  write_at(bytes.subspan(head + middle), offset + head + middle);
  return true;
}

void File::truncate(std::uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) throw_io("cannot trim file", errno, path_);
}

void File::sync() {
  if (const int error = sync_descriptor(fd_, ::fdatasync)) throw_io("cannot sync file", error, path_);
}

bool File::is_linked() const noexcept {
  struct stat status{};
  return ::fstat(fd_, &status) == 0 && status.st_nlink > 0;
}

void File::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != ForkGuard::generation()) return;
  ForkGuard::close(fd);
}

Mapping::Mapping(const File& file, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t start = offset / kPage * kPage;
  void* address =
      ::mmap(nullptr, offset + size - start, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), static_cast<off_t>(start));
  if (address == MAP_FAILED) throw_io("cannot map file", errno, file.path());
  base_ = static_cast<std::byte*>(address);
  offset_ = start;
  size_ = offset + size - start;
  generation_ = ForkGuard::generation();
  ::madvise(address, size_, MADV_DONTFORK);
  if (::madvise(address, size_, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    const int error = errno;
    unmap();
    throw_io("cannot map file", error == EFAULT ? ENOSPC : error, file.path());
  }
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      offset_(other.offset_),
      size_(other.size_),
      generation_(other.generation_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  unmap();
  base_ = std::exchange(other.base_, nullptr);
  offset_ = other.offset_;
  size_ = other.size_;
  generation_ = other.generation_;
  return *this;
}

void Mapping::unmap() noexcept {
  std::byte* base = std::exchange(base_, nullptr);
  if (base != nullptr && generation_ == ForkGuard::generation()) ::munmap(base, size_);
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io("cannot rename file", errno, from);
}

void sync_folder(const std::filesystem::path& folder) {
  File file(folder, O_RDONLY | O_DIRECTORY);
  const int error = sync_descriptor(file.fd(), ::fsync);
  if (error != 0 && error != EINVAL) throw_io("cannot sync folder", error, folder);
}

void set_reserve_fault(std::int64_t allowed_bytes, int error_number) noexcept {
  fault_error = error_number;
  fault_allowed = allowed_bytes;
}

void set_sync_observer(SyncObserver observer) {
  has_sync_observer = false;
  sync_observer() = std::move(observer);
  has_sync_observer = static_cast<bool>(sync_observer());
}

}  // namespace tenscope::store
