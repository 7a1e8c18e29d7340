#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <unordered_set>

#include "format/crc32.hpp"
#include "format/zip.hpp"

namespace tenscope {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr std::uint32_t kEnd64Magic = 0x06064b50, kEnd64LocatorMagic = 0x07064b50;
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kEnd64LocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint64_t kCheapBytes = 64 << 10;

}  // namespace

ZipReader::ZipReader(Source source, const LoadOptions& options)
    : source_(std::move(source)), verify_all_(options.verify_checksums) {
  const Directory directory = find_directory();
  source_.require(directory.at, directory.size_bytes, "zip directory");
  if (directory.count > directory.size_bytes / kCentralBytes) {
    source_.corrupt(directory.at,
                    fmt::format("a zip directory of {} bytes with {} entries", directory.size_bytes, directory.count));
  }
  const std::uint64_t end = directory.at + directory.size_bytes;
  std::uint64_t at = directory.at;
  entries_.reserve(directory.count);
  std::unordered_set<std::string_view> names;
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    const std::uint64_t entry_at = at;
    entries_.push_back(read_entry(at, end));
    place_entry(entries_.back(), directory.at);
    if (!names.insert(entries_.back().name).second) {
      source_.corrupt(entry_at, fmt::format("two zip entries named '{}'", entries_.back().name));
    }
  }
  refuse_overlaps();
}

ZipReader::Directory ZipReader::find_directory() const {
  if (source_.size() < kEndBytes) source_.corrupt(0, "too short for a zip archive");
  const std::uint64_t last = source_.size() - kEndBytes;
  const std::uint64_t first = last > 0xffff ? last - 0xffff : 0;  // a comment of up to 64 KiB may follow
  for (std::uint64_t at = last + 1; at-- > first;) {
    if (source_.little<std::uint32_t>(at, "zip end") != kEndMagic) continue;
    if (at + kEndBytes + source_.little<std::uint16_t>(at + 20, "zip comment") != source_.size()) continue;

    Directory directory{source_.little<std::uint32_t>(at + 16, "zip end"),
                        source_.little<std::uint32_t>(at + 12, "zip end"),
                        source_.little<std::uint16_t>(at + 10, "zip end")};
    const bool has_64 = at >= kEnd64LocatorBytes &&
                        source_.little<std::uint32_t>(at - kEnd64LocatorBytes, "zip64 locator") == kEnd64LocatorMagic;
    if (!has_64) return directory;
    const auto end64_at = source_.little<std::uint64_t>(at - kEnd64LocatorBytes + 8, "zip64 locator");
    source_.require(end64_at, kEnd64Bytes, "zip64 end");
    if (source_.little<std::uint32_t>(end64_at, "zip64 end") != kEnd64Magic)
      source_.corrupt(end64_at, "no zip64 end record");
    return {source_.little<std::uint64_t>(end64_at + 48, "zip64 end"),
            source_.little<std::uint64_t>(end64_at + 40, "zip64 end"),
            source_.little<std::uint64_t>(end64_at + 32, "zip64 end")};
  }
  source_.corrupt(source_.size(), "no end of a zip archive (cut off?)");
}

ZipEntry ZipReader::read_entry(std::uint64_t& at, std::uint64_t end) const {
  const auto u16 = [&](std::uint64_t field) { return source_.little<std::uint16_t>(at + field, "zip entry"); };
  const auto u32 = [&](std::uint64_t field) { return source_.little<std::uint32_t>(at + field, "zip entry"); };
  if (end - at < kCentralBytes || u32(0) != kCentralMagic)
    source_.corrupt(at, "no zip entry where the directory has one");
  const std::uint64_t name_bytes = u16(28), extra_bytes = u16(30), comment_bytes = u16(32);
  const std::uint64_t size = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  if (end - at < size) source_.corrupt(at, "a zip entry that reaches past the directory");

  ZipEntry entry;
  entry.name = source_.text(at + kCentralBytes, name_bytes, "zip entry name");
  if (u16(8) & 1) source_.unsupported(at, fmt::format("zip entry '{}' is encrypted", entry.name));
  const auto method = u16(10);
  if (method != 0 && method != 8)
    source_.unsupported(at, fmt::format("zip entry '{}' has compression method {}", entry.name, method));
  entry.is_deflated = method == 8;
  entry.crc = u32(16);
  entry.stored_bytes = u32(20);
  entry.size_bytes = u32(24);
  entry.header_at = u32(42);

  // Of the zip64 fields those stand here whose short form is full, in this order.
  std::uint64_t extra_at = at + kCentralBytes + name_bytes;
  const std::uint64_t extra_end = extra_at + extra_bytes;
  while (extra_end - extra_at >= 4) {
    const auto id = source_.little<std::uint16_t>(extra_at, "zip extra field");
    const std::uint64_t field_bytes = source_.little<std::uint16_t>(extra_at + 2, "zip extra field");
    std::uint64_t field_at = extra_at + 4;
    if (extra_end - field_at < field_bytes) break;
    const std::uint64_t field_end = field_at + field_bytes;
    if (id == 1) {
      for (std::uint64_t* value : {&entry.size_bytes, &entry.stored_bytes, &entry.header_at}) {
        if (*value != kIn64) continue;
        if (field_end - field_at < 8) source_.corrupt(field_at, "a zip64 field that is too short");
        *value = source_.little<std::uint64_t>(field_at, "zip64 field");
        field_at += 8;
      }
      break;
    }
    extra_at = field_end;
  }
  at += size;
  return entry;
}

void ZipReader::place_entry(ZipEntry& entry, std::uint64_t end) const {
  source_.require(entry.header_at, kLocalBytes, "zip entry header");
  if (source_.little<std::uint32_t>(entry.header_at, "zip entry header") != kLocalMagic) {
    source_.corrupt(entry.header_at, fmt::format("no zip entry header of '{}'", entry.name));
  }
  const std::uint64_t name_bytes = source_.little<std::uint16_t>(entry.header_at + 26, "zip entry header");
  const std::uint64_t extra_bytes = source_.little<std::uint16_t>(entry.header_at + 28, "zip entry header");
  entry.data_at = entry.header_at + kLocalBytes + name_bytes + extra_bytes;
  if (entry.data_at > end || entry.stored_bytes > end - entry.data_at) {
    source_.corrupt(entry.header_at,
                    fmt::format("zip entry '{}' of {} bytes reaches past the data", entry.name, entry.stored_bytes));
  }
  if (!entry.is_deflated && entry.stored_bytes != entry.size_bytes) {
    source_.corrupt(entry.header_at, fmt::format("stored zip entry '{}' with two sizes", entry.name));
  }
}

void ZipReader::refuse_overlaps() const {
  std::vector<const ZipEntry*> by_place;
  for (auto& entry : entries_) by_place.push_back(&entry);
  std::ranges::sort(by_place, {}, &ZipEntry::header_at);
  for (std::size_t i = 1; i < by_place.size(); ++i) {
    if (by_place[i - 1]->data_at + by_place[i - 1]->stored_bytes > by_place[i]->header_at) {
      source_.corrupt(by_place[i]->header_at,
                      fmt::format("zip entries '{}' and '{}' overlap", by_place[i - 1]->name, by_place[i]->name));
    }
  }
}

const ZipEntry* ZipReader::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(entries_, name, &ZipEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

Source ZipReader::open(const ZipEntry& entry, Budget& budget, Check check) const {
  Source part = source_.part(entry.data_at, entry.stored_bytes, "zip entry");
  if (entry.is_deflated) {
    budget.take_inflated(source_, entry.header_at, entry.size_bytes,
                         fmt::format("inflating zip entry '{}'", entry.name));
    if (entry.size_bytes > 16 + 1032 * entry.stored_bytes) {  // deflate cannot do more
      source_.corrupt(entry.header_at, fmt::format("zip entry '{}' of {} bytes says to inflate to {}", entry.name,
                                                   entry.stored_bytes, entry.size_bytes));
    }
    std::byte* bytes = nullptr;
    auto storage = allocate_storage(entry.size_bytes, &bytes);
    std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> inflater(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    const auto result = libdeflate_deflate_decompress(inflater.get(), part.bytes.data(), part.bytes.size(), bytes,
                                                      entry.size_bytes, nullptr);
    if (result != LIBDEFLATE_SUCCESS) {
      source_.corrupt(entry.data_at,
                      fmt::format("zip entry '{}' does not inflate to {} bytes", entry.name, entry.size_bytes));
    }
    part.bytes = {bytes, entry.size_bytes};
    part.owner = std::move(storage);
  }
  const bool verify = check == Check::Always || entry.is_deflated || verify_all_ || entry.size_bytes <= kCheapBytes;
  if (verify && entry.crc != 0 && crc32_of(0, part.bytes) != entry.crc) {
    source_.corrupt(entry.data_at, fmt::format("zip entry '{}' with a wrong checksum", entry.name));
  }
  return part;
}

}  // namespace tenscope
