#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tenscope/tensor_view.hpp"

namespace tenscope {

// A file being written beside its final place: commit() puts it there by a rename, and without it nothing is left.
// Small writes are gathered, large ones go out by one system call. Throws Io.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void reserve(std::uint64_t size_bytes);  // a hint of the final size, which makes large writes faster
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void write_elements(const TensorView& tensor);                // in C order
  void overwrite(std::uint64_t offset, std::string_view text);  // what has been written already
  void commit();

  std::uint64_t position() const noexcept { return flushed_ + buffer_.size(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void flush();
  void write_at(std::uint64_t offset, const std::byte* data, std::size_t size);
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  std::uint64_t flushed_ = 0;
  std::uint64_t reserved_ = 0;
  std::string buffer_;
};

// The elements in C order, piece by piece: the whole at once where they lie so, else copied into pieces of a few
// megabytes.
void for_each_block(const TensorView& tensor, const std::function<void(std::span<const std::byte>)>& use);

}  // namespace tenscope
