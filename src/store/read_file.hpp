#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tenscope::store {

// An open file for reading. Never maps: a read past a cut end is a short read, not a signal.
class ReadFile {
 public:
  ReadFile() = default;
  explicit ReadFile(const std::filesystem::path& path);  // throws NotFound, Io
  ~ReadFile();
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;

  bool is_open() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  std::uint64_t size() const;  // at this moment
  std::uint64_t inode() const;
  // Fills `buffer` as far as the file goes; returns how many bytes. Throws Io.
  std::size_t read(std::uint64_t offset, std::span<char> buffer) const;

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

// A whole file mapped for reading, at the size it had. The mapping lives as long as the object; the file may go.
class ReadMapping {
 public:
  explicit ReadMapping(const std::filesystem::path& path);  // throws NotFound, Io
  ~ReadMapping();
  ReadMapping(const ReadMapping&) = delete;
  ReadMapping& operator=(const ReadMapping&) = delete;

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  void release() const noexcept;  // gives its memory back; what is looked at again is read again

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// How many files one job of this process may hold open at a time: an eighth of what the system lets the process have.
std::size_t most_open_files() noexcept;

std::string read_text(const std::filesystem::path& path,
                      std::size_t limit);  // throws NotFound, Io; Corrupt above `limit`

}  // namespace tenscope::store
