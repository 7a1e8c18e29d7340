#include "store/read_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path) {
  const int error = errno;
  const bool is_missing = error == ENOENT || error == ENOTDIR;
  throw Error(is_missing ? ErrorCode::NotFound : ErrorCode::Io,
              fmt::format("{}: {}: {}", what, std::strerror(error), path.string()));
}

struct stat status_of(int fd, const std::filesystem::path& path) {
  struct stat status;
  if (::fstat(fd, &status) != 0) fail("cannot look at a file", path);
  return status;
}

}  // namespace

ReadFile::ReadFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path_(path) {
  if (fd_ < 0) fail("cannot open a file", path);
}

ReadFile::~ReadFile() {
  if (fd_ >= 0) ::close(fd_);
}

ReadFile::ReadFile(ReadFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

ReadFile& ReadFile::operator=(ReadFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

std::uint64_t ReadFile::size() const { return static_cast<std::uint64_t>(status_of(fd_, path_).st_size); }
std::uint64_t ReadFile::inode() const { return status_of(fd_, path_).st_ino; }

std::size_t ReadFile::read(std::uint64_t offset, std::span<char> buffer) const {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = ::pread(fd_, buffer.data() + done, buffer.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read a file", path_);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

ReadMapping::ReadMapping(const std::filesystem::path& path) {
  const ReadFile file(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (address == MAP_FAILED) fail("cannot map a file", path);
  data_ = static_cast<const std::byte*>(address);
}

ReadMapping::~ReadMapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void ReadMapping::release() const noexcept {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

std::size_t most_open_files() noexcept {
  constexpr rlim_t kMost = 256;
  struct rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  return std::clamp<rlim_t>(limit.rlim_cur / 8, 1, kMost);
}

std::string read_text(const std::filesystem::path& path, std::size_t limit) {
  const ReadFile file(path);
  const std::uint64_t size = file.size();
  if (size > limit) {
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read a file: it has {} bytes, at most {} are expected: {}",
                                                size, limit, path.string()));
  }
  std::string text(size, '\0');
  text.resize(file.read(0, text));
  return text;
}

}  // namespace tenscope::store
