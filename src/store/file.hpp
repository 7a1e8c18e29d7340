#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "tenscope/error.hpp"

namespace tenscope::store {

// Files as the recording side needs them. Every failure throws IoError, whose message names the path last.

// What kind of trouble an operation met; a recorder warns once per kind.
enum class Trouble : std::uint8_t { NoSpace, TooManyFiles, ReadOnly, Vanished, OtherIo, BadTensor, Budget };
inline constexpr int kTroubleCount = 7;

class IoError : public Error {
 public:
  IoError(Trouble trouble, const std::string& message) : Error(ErrorCode::Io, message), trouble_(trouble) {}
  Trouble trouble() const noexcept { return trouble_; }

 private:
  Trouble trouble_;
};

Trouble trouble_of(int error_number) noexcept;
[[noreturn]] void throw_io(const char* what, int error_number, const std::filesystem::path& path);

inline constexpr std::uint64_t kDirectAlignment = 4096;

// An open file of this process; closed on destruction, and at once in a forked child.
class File {
 public:
  File() = default;
  File(const std::filesystem::path& path, int flags);  // O_CLOEXEC is added; new files get mode 0644
  ~File() { close(); }
  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_), path_(std::move(other.path_)) {}
  File& operator=(File&& other) noexcept;

  int fd() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  const std::filesystem::path& path() const noexcept { return path_; }
  void set_path(std::filesystem::path path) { path_ = std::move(path); }

  // Makes [offset, offset + size) part of the file with its blocks allocated, so that neither a write nor a store into
  // a mapping of it can meet a full disk. The file must end at `offset`; on failure it does so again.
  void reserve(std::uint64_t offset, std::uint64_t size);
  // The same, with the pages in the page cache as well.
  void reserve_cached(std::uint64_t offset, std::uint64_t size);

  void write_at(std::span<const std::byte> bytes, std::uint64_t offset);
  // The same past the page cache; `direct` is this file, opened with O_DIRECT, and `offset` must be the memory's
  // address modulo kDirectAlignment. False: it cannot be done here, and nothing or a part was written.
  bool write_direct_at(const File& direct, std::span<const std::byte> bytes, std::uint64_t offset);
  void truncate(std::uint64_t size);
  void sync();
  bool is_linked() const noexcept;  // false: the file was deleted
  void close() noexcept;

 private:
  int fd_ = -1;
  std::uint32_t generation_ = 0;
  std::filesystem::path path_;
};

// A writable shared mapping of a part of a file, page tables filled. A forked child does not inherit it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const File& file, std::uint64_t offset, std::uint64_t size);  // any offset
  ~Mapping() { unmap(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  bool covers(std::uint64_t offset, std::uint64_t size) const noexcept {
    return base_ != nullptr && offset >= offset_ && offset + size <= offset_ + size_;
  }
  std::byte* at(std::uint64_t offset) const noexcept { return base_ + (offset - offset_); }
  std::uint64_t end() const noexcept { return offset_ + size_; }
  void unmap() noexcept;

 private:
  std::byte* base_ = nullptr;  // of the page that holds offset_ on
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
  std::uint32_t generation_ = 0;
};

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
void sync_folder(const std::filesystem::path& folder);

// Tests only: reservations beyond this many bytes in all fail with the given errno. Negative: no limit.
void set_reserve_fault(std::int64_t allowed_bytes, int error_number) noexcept;

// Tests only: called with the descriptor of every file and folder that is synced, before and after it was done, by the
// thread that does it. Set while nothing is being synced; empty: nobody.
using SyncObserver = std::function<void(int fd, bool is_done)>;
void set_sync_observer(SyncObserver observer);

}  // namespace tenscope::store
