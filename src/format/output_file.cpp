#include "format/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "format/value.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::size_t kBlockBytes = 4 << 20;
constexpr std::size_t kMaxWriteBytes = 1 << 30;

std::atomic<int> temporary_count = 0;

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) path_ = std::filesystem::weakly_canonical(path, error);
  if (std::filesystem::is_directory(path_, error)) fail(EISDIR);
  temporary_ = path_;
  temporary_.replace_filename(fmt::format(".{}.{}-{}.tmp", path_.filename().string(), ::getpid(), temporary_count++));
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(errno);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error) const {
  throw Error(ErrorCode::Io, fmt::format("cannot write: {}: {}", std::strerror(error), path_.string()));
}

void OutputFile::reserve(std::uint64_t size_bytes) {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(size_bytes)) == 0) {
    reserved_ = size_bytes;
  } else if (errno == ENOSPC) {
    fail(ENOSPC);
  }
}

void OutputFile::write_at(std::uint64_t offset, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::pwrite(fd_, data, std::min(size, kMaxWriteBytes), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    data += count;
    offset += static_cast<std::uint64_t>(count);
    size -= static_cast<std::size_t>(count);
  }
}

void OutputFile::flush() {
  write_at(flushed_, reinterpret_cast<const std::byte*>(buffer_.data()), buffer_.size());
  flushed_ += buffer_.size();
  buffer_.clear();
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  flush();
  write_at(flushed_, bytes.data(), bytes.size());
  flushed_ += bytes.size();
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::write_elements(const TensorView& tensor) {
  for_each_block(tensor, [this](std::span<const std::byte> block) { write(block); });
}

void OutputFile::overwrite(std::uint64_t offset, std::string_view text) {
  if (offset >= flushed_) {
    buffer_.replace(offset - flushed_, text.size(), text);
    return;
  }
  if (offset + text.size() > flushed_) flush();
  write_at(offset, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

void OutputFile::commit() {
  flush();
  if (reserved_ > flushed_ && ::ftruncate(fd_, static_cast<off_t>(flushed_)) != 0) fail(errno);
  struct stat old;
  if (::stat(path_.c_str(), &old) == 0) ::fchmod(fd_, old.st_mode & 07777);
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail(error);
  }
}

void for_each_block(const TensorView& tensor, const std::function<void(std::span<const std::byte>)>& use) {
  const std::size_t size = size_bytes(tensor);
  if (size == 0) return;
  if (is_c_order(tensor)) return use({static_cast<const std::byte*>(tensor.data), size});
  if (size <= kBlockBytes) {
    std::vector<std::byte> block(size);
    copy_elements(tensor, block.data());
    return use(block);
  }
  const std::int64_t length = tensor.shape[0];
  const std::size_t row_bytes = size / static_cast<std::size_t>(length);
  const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kBlockBytes / row_bytes));
  std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  for (std::int64_t row = 0; row < length; row += rows) {
    TensorView part = tensor;
    part.data = static_cast<const std::byte*>(tensor.data) +
                row * tensor.strides[0] * static_cast<std::int64_t>(item_size(tensor.dtype));
    shape[0] = std::min(rows, length - row);
    part.shape = shape;
    if (shape[0] == 1) {  // go on along the next axis
      part.shape = part.shape.subspan(1);
      part.strides = part.strides.subspan(1);
    }
    for_each_block(part, use);
  }
}

}  // namespace tenscope
