#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

struct ZipEntry {
  std::string name;
  bool is_deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t stored_bytes = 0;  // in the file
  std::uint64_t size_bytes = 0;    // once inflated
  std::uint64_t header_at = 0;     // of its local header
  std::uint64_t data_at = 0;
};

// A zip archive (zip64 too). Opening checks that every entry lies inside of the file, that none overlaps another and
// that no name comes twice; it reads the directory and the entries' headers only.
class ZipReader {
 public:
  ZipReader(Source source, const LoadOptions& options);

  const Source& source() const noexcept { return source_; }
  const std::vector<ZipEntry>& entries() const noexcept { return entries_; }
  const ZipEntry* find(std::string_view name) const noexcept;

  enum class Check {
    Always,
    IfCheap
  };  // IfCheap: small or inflated entries, and all with LoadOptions::verify_checksums

  // The bytes of an entry: a part of the source, or inflated. A checksum of 0 means that its writer kept none (torch
  // has an option for that).
  Source open(const ZipEntry& entry, Budget& budget, Check check) const;

 private:
  struct Directory {
    std::uint64_t at = 0, size_bytes = 0, count = 0;
  };
  Directory find_directory() const;
  ZipEntry read_entry(std::uint64_t& at, std::uint64_t end) const;
  void place_entry(ZipEntry& entry, std::uint64_t end) const;
  void refuse_overlaps() const;

  Source source_;
  bool verify_all_;
  std::vector<ZipEntry> entries_;
};

// Writes entries one after another, each one's data aligned to 64 bytes so that it can be mapped.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}

  void add(std::string_view name, std::string_view bytes);
  // `prefix` (a .npy header), then the elements in C order, or as they lie in memory.
  void add(std::string_view name, std::string_view prefix, const TensorView& tensor, bool compress = false);
  void finish();  // writes the directory

 private:
  std::uint64_t begin(ZipEntry& entry);
  void deflate(ZipEntry entry, std::string_view prefix, const TensorView& tensor);

  OutputFile& file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace tenscope
