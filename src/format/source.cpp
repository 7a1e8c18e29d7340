#include "format/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tenscope {
namespace {

constexpr std::uint64_t kMapFrom = 256 << 10;  // smaller files are read: cheaper, and safe from those who truncate them

[[noreturn]] void fail_open(const std::filesystem::path& path, std::string_view format, int error) {
  throw Error(error == ENOENT ? ErrorCode::NotFound : ErrorCode::Io,
              fmt::format("cannot read {}: {}: {}", format, std::strerror(error), path.string()));
}

// Text from a file, fit for an error message: control characters, and all that is not UTF-8, as escapes.
std::string printable(const std::string& text) {
  const bool is_utf8 = simdjson::validate_utf8(text);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_utf8)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

void Source::fail(ErrorCode code, std::uint64_t at, const std::string& reason) const {
  throw Error(code, fmt::format("cannot read {}: {}, at byte {}: {}", format, printable(reason), offset + at, path));
}

void Source::require(std::uint64_t at, std::uint64_t size, std::string_view what) const {
  if (at > bytes.size() || size > bytes.size() - at) {
    corrupt(at,
            fmt::format("{} of {} bytes, but only {} are left", what, size, at > bytes.size() ? 0 : bytes.size() - at));
  }
}

std::string_view Source::text(std::uint64_t at, std::uint64_t size, std::string_view what) const {
  require(at, size, what);
  return {reinterpret_cast<const char*>(bytes.data()) + at, size};
}

Source Source::part(std::uint64_t at, std::uint64_t size, std::string_view what) const {
  require(at, size, what);
  return {path, format, offset + at, bytes.subspan(at, size), owner};
}

std::shared_ptr<const Storage> Source::storage(std::uint64_t at, std::uint64_t size, std::string_view what) const {
  require(at, size, what);
  return std::make_shared<const Storage>(Storage{bytes.data() + at, size, owner});
}

Source open_source(const std::filesystem::path& path, std::string_view format, bool map) {
  OpenFile file(path);
  struct stat info;
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0) fail_open(path, format, errno);
  if (S_ISDIR(info.st_mode)) fail_open(path, format, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::Io, fmt::format("cannot read {}: not a regular file: {}", format, path.string()));
  }

  const auto size = static_cast<std::uint64_t>(info.st_size);
  Source source{path.string(), std::string(format), 0, {}, nullptr};
  if (map && size >= kMapFrom) {
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd(), 0);
    if (address == MAP_FAILED) fail_open(path, format, errno);
    source.owner = std::shared_ptr<const void>(address, [size](void* p) { ::munmap(p, size); });
    source.bytes = {static_cast<const std::byte*>(address), size};
    return source;
  }

  std::byte* memory = nullptr;
  source.owner = allocate_storage(size, &memory);
  std::uint64_t got = 0;
  while (got < size) {
    const ssize_t count = ::pread(file.fd(), memory + got, size - got, static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_open(path, format, errno);
    if (count == 0) break;  // it has been truncated meanwhile
    got += static_cast<std::uint64_t>(count);
  }
  source.bytes = {memory, got};
  return source;
}

Source memory_source(std::string_view bytes, std::string_view format, std::string_view name) {
  std::byte* memory = nullptr;
  auto storage = allocate_storage(bytes.size(), &memory);
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), memory);
  return {std::string(name), std::string(format), 0, {memory, bytes.size()}, std::move(storage)};
}

void Budget::take(const Source& source, std::uint64_t at, std::uint64_t bytes, std::string_view what) {
  if (bytes > copies_left_) {
    source.unsupported(
        at, fmt::format("{} would take {} bytes more, far more than a file of this size needs", what, bytes));
  }
  copies_left_ -= bytes;
}

void Budget::take_inflated(const Source& source, std::uint64_t at, std::uint64_t bytes, std::string_view what) {
  if (bytes > inflated_left_) {
    source.unsupported(at, fmt::format("{} would take {} bytes and {} are allowed for this file (max_inflated_bytes)",
                                       what, bytes, inflated_left_));
  }
  inflated_left_ -= bytes;
  copies_left_ += bytes;
}

std::uint64_t checked_size_bytes(const Source& source, std::uint64_t at, DType dtype,
                                 std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxRank) source.corrupt(at, fmt::format("a tensor of rank {}, above {}", shape.size(), kMaxRank));
  bool is_empty = false;
  for (auto size : shape) {
    if (size < 0) source.corrupt(at, fmt::format("a tensor with the negative size {}", size));
    is_empty |= size == 0;
  }
  // With sizes that overflow nothing else can be done, even where another size is 0.
  auto bytes = static_cast<std::int64_t>(item_size(dtype));
  for (auto size : shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      source.corrupt(at, "a tensor whose size overflows 63 bits");
    }
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

namespace {

template <std::size_t kSize>
void swap_items(std::span<const std::byte> from, std::byte* to) noexcept {
  for (std::size_t i = 0; i + kSize <= from.size(); i += kSize) {
    std::reverse_copy(from.data() + i, from.data() + i + kSize, to + i);
  }
}

}  // namespace

void copy_swapped(DType dtype, std::span<const std::byte> from, std::byte* to) noexcept {
  switch (kind_of(dtype) == DTypeKind::Complex ? item_size(dtype) / 2 : item_size(dtype)) {
    case 2:
      return swap_items<2>(from, to);
    case 4:
      return swap_items<4>(from, to);
    case 8:
      return swap_items<8>(from, to);
    default:
      std::copy(from.begin(), from.end(), to);
  }
}

std::vector<std::int64_t> fortran_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides;
  std::int64_t stride = 1;
  for (auto size : shape) {
    strides.push_back(stride);
    stride *= std::max<std::int64_t>(size, 1);
  }
  return strides;
}

std::shared_ptr<const Storage> aligned(const Source& source, std::uint64_t at, std::shared_ptr<const Storage> storage,
                                       std::size_t alignment, Budget& budget) {
  alignment = std::min<std::size_t>(alignment, 8);
  if (reinterpret_cast<std::uintptr_t>(storage->data) % alignment == 0) return storage;
  budget.take(source, at, storage->size_bytes, "aligning a tensor");
  std::byte* bytes = nullptr;
  auto copy = allocate_storage(storage->size_bytes, &bytes);
  std::copy_n(storage->data, storage->size_bytes, bytes);
  return copy;
}

Tensor make_tensor(const Source& source, std::uint64_t at, Layout layout, Budget& budget) {
  Tensor tensor;
  const std::uint64_t size = checked_size_bytes(source, at, layout.dtype, layout.shape);
  tensor.storage = source.storage(at, size, "tensor data");
  if (layout.is_big_endian && item_size(layout.dtype) > 1) {
    budget.take(source, at, size, "swapping the bytes of a tensor");
    std::byte* swapped = nullptr;
    auto storage = allocate_storage(size, &swapped);
    copy_swapped(layout.dtype, {tensor.storage->data, size}, swapped);
    tensor.storage = std::move(storage);
  }
  tensor.storage = aligned(source, at, std::move(tensor.storage), item_size(layout.dtype), budget);
  tensor.dtype = layout.dtype;
  if (layout.is_fortran && layout.shape.size() > 1) tensor.strides = fortran_strides(layout.shape);
  tensor.shape = std::move(layout.shape);
  tensor.data = tensor.storage->data;
  return tensor;
}

}  // namespace tenscope
