#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "format/format.hpp"
#include "tenscope/error.hpp"

namespace tenscope {

// The bytes that a reader reads, with what its errors need: a file, mapped or in memory, or a part of one.
struct Source {
  std::string path;
  std::string format;        // ".npy"; for errors
  std::uint64_t offset = 0;  // of bytes[0] in the file; for errors
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes alive

  std::uint64_t size() const noexcept { return bytes.size(); }

  // Throws: what, why, at which byte of this source, and the path last.
  [[noreturn]] void fail(ErrorCode code, std::uint64_t at, const std::string& reason) const;
  [[noreturn]] void corrupt(std::uint64_t at, const std::string& reason) const { fail(ErrorCode::Corrupt, at, reason); }
  [[noreturn]] void unsupported(std::uint64_t at, const std::string& reason) const {
    fail(ErrorCode::Unsupported, at, reason);
  }

  // Throws Corrupt where [at, at + size) is not inside.
  void require(std::uint64_t at, std::uint64_t size, std::string_view what) const;

  std::string_view text(std::uint64_t at, std::uint64_t size, std::string_view what) const;

  template <class T>
  T little(std::uint64_t at, std::string_view what) const {
    require(at, sizeof(T), what);
    std::make_unsigned_t<T> value = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) {
      value = static_cast<std::make_unsigned_t<T>>((std::uint64_t{value} << 8) |
                                                   std::to_integer<std::uint64_t>(bytes[at + i]));
    }
    return static_cast<T>(value);
  }

  Source part(std::uint64_t at, std::uint64_t size, std::string_view what) const;
  std::shared_ptr<const Storage> storage(std::uint64_t at, std::uint64_t size, std::string_view what) const;
};

// Maps a file privately (writes to it are never written back), or reads it where it is small or `map` is false.
Source open_source(const std::filesystem::path& path, std::string_view format, bool map = true);

// A copy of bytes in memory; for streams inside of files, and for tests.
Source memory_source(std::string_view bytes, std::string_view format, std::string_view name = "memory");

// What a file may make of its bytes in all. A deflated entry may grow a lot, honestly; a copy (decoded, swapped,
// aligned, or a tensor's description) is about as large as what it is made of, so that many times the file is a trick.
class Budget {
 public:
  Budget(const LoadOptions& options, std::uint64_t file_bytes)
      : inflated_left_(options.max_inflated_bytes ? options.max_inflated_bytes : (64u << 20) + 200 * file_bytes),
        copies_left_((16u << 20) + 16 * file_bytes) {}

  // Both throw Unsupported where nothing like that is left.
  void take(const Source& source, std::uint64_t at, std::uint64_t bytes, std::string_view what);
  void take_inflated(const Source& source, std::uint64_t at, std::uint64_t bytes, std::string_view what);

 private:
  std::uint64_t inflated_left_;
  std::uint64_t copies_left_;
};

// The bytes that a shape of a dtype takes; throws Corrupt for negative sizes, a rank above kMaxRank and overflow.
std::uint64_t checked_size_bytes(const Source& source, std::uint64_t at, DType dtype,
                                 std::span<const std::int64_t> shape);

// Copies elements with each number's bytes reversed (the halves of a complex number by themselves).
void copy_swapped(DType dtype, std::span<const std::byte> from, std::byte* to) noexcept;

// The storage itself where numbers of that size can be read from it, else a copy. Some files put tensors at any byte.
std::shared_ptr<const Storage> aligned(const Source& source, std::uint64_t at, std::shared_ptr<const Storage> storage,
                                       std::size_t alignment, Budget& budget);

// A tensor over a part of a source, in C or Fortran order; swapped into memory of its own where it is big-endian.
struct Layout {
  DType dtype = DType::F32;
  bool is_big_endian = false;
  bool is_fortran = false;
  std::vector<std::int64_t> shape;
};
Tensor make_tensor(const Source& source, std::uint64_t at, Layout layout, Budget& budget);

std::vector<std::int64_t> fortran_strides(std::span<const std::int64_t> shape);

}  // namespace tenscope
