#include <fmt/format.h>
#include <libdeflate.h>

#include <future>

#include "format/crc32.hpp"
#include "format/zip.hpp"

namespace tenscope {
namespace {

constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kThreadBytes = 4 << 20;  // from here on the checksum is made while the data is being written
constexpr int kDeflateLevel = 6;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}

void put_common(std::string& out, const ZipEntry& entry, bool is_64) {
  put<std::uint16_t>(out, is_64 ? 45 : 20);  // version needed
  put<std::uint16_t>(out, 0x800);            // names are UTF-8
  put<std::uint16_t>(out, entry.is_deflated ? 8 : 0);
  put<std::uint32_t>(out, 0x00210000);  // 1980-01-01: equal values give equal files
  put<std::uint32_t>(out, entry.crc);
  put<std::uint32_t>(out, is_64 ? kIn64 : static_cast<std::uint32_t>(entry.stored_bytes));
  put<std::uint32_t>(out, is_64 ? kIn64 : static_cast<std::uint32_t>(entry.size_bytes));
  put<std::uint16_t>(out, static_cast<std::uint16_t>(entry.name.size()));
}

bool needs_64(const ZipEntry& entry) { return entry.stored_bytes >= kIn64 || entry.size_bytes >= kIn64; }

std::string local_header(const ZipEntry& entry) {
  const bool is_64 = needs_64(entry);
  std::string out;
  put<std::uint32_t>(out, 0x04034b50);
  put_common(out, entry, is_64);
  const std::uint64_t before = entry.header_at + out.size() + 2 + entry.name.size() + (is_64 ? 20 : 0) + 4;
  const std::uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  put<std::uint16_t>(out, static_cast<std::uint16_t>((is_64 ? 20 : 0) + 4 + padding));
  out += entry.name;
  if (is_64) {
    put<std::uint16_t>(out, 1);
    put<std::uint16_t>(out, 16);
    put<std::uint64_t>(out, entry.size_bytes);
    put<std::uint64_t>(out, entry.stored_bytes);
  }
  put<std::uint16_t>(out, 0x4246);  // "FB", torch's field of padding
  put<std::uint16_t>(out, static_cast<std::uint16_t>(padding));
  out.append(padding, 'Z');
  return out;
}

std::string central_header(const ZipEntry& entry) {
  const bool is_64 = needs_64(entry) || entry.header_at >= kIn64;
  std::string out;
  put<std::uint32_t>(out, 0x02014b50);
  put<std::uint16_t>(out, 45);  // made by
  put_common(out, entry, is_64);
  put<std::uint16_t>(out, is_64 ? 28 : 0);
  put<std::uint16_t>(out, 0);  // comment
  put<std::uint16_t>(out, 0);  // disk
  put<std::uint16_t>(out, 0);
  put<std::uint32_t>(out, 0);
  put<std::uint32_t>(out, is_64 ? kIn64 : static_cast<std::uint32_t>(entry.header_at));
  out += entry.name;
  if (is_64) {
    put<std::uint16_t>(out, 1);
    put<std::uint16_t>(out, 24);
    put<std::uint64_t>(out, entry.size_bytes);
    put<std::uint64_t>(out, entry.stored_bytes);
    put<std::uint64_t>(out, entry.header_at);
  }
  return out;
}

}  // namespace

std::uint64_t ZipWriter::begin(ZipEntry& entry) {
  if (entry.name.size() > 0xffff) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot write: a name of {} bytes: {}", entry.name.size(), file_.path().string()));
  }
  entry.header_at = file_.position();
  file_.write(local_header(entry));
  return entry.header_at + 14;  // where the checksum stands
}

void ZipWriter::add(std::string_view name, std::string_view bytes) {
  add(name, bytes, TensorView{nullptr, DType::U8, {}, {}, {}});
}

void ZipWriter::add(std::string_view name, std::string_view prefix, const TensorView& tensor, bool compress) {
  ZipEntry entry{.name = std::string(name)};
  const std::uint64_t data_bytes = tensor.data ? size_bytes(tensor) : 0;
  entry.size_bytes = entry.stored_bytes = prefix.size() + data_bytes;
  if (compress) return deflate(std::move(entry), prefix, tensor);

  const std::uint64_t crc_at = begin(entry);
  entry.crc = crc32_of(0, std::as_bytes(std::span(prefix)));
  file_.write(prefix);
  if (data_bytes > 0) {
    for_each_block(tensor, [&](std::span<const std::byte> block) {
      const auto checksum = [&, crc = entry.crc] { return crc32_of(crc, block); };
      auto later = block.size() >= kThreadBytes ? std::async(std::launch::async, checksum)
                                                : std::async(std::launch::deferred, checksum);
      file_.write(block);
      entry.crc = later.get();
    });
  }
  std::string crc;
  put(crc, entry.crc);
  file_.overwrite(crc_at, crc);
  entries_.push_back(std::move(entry));
}

void ZipWriter::deflate(ZipEntry entry, std::string_view prefix, const TensorView& tensor) {
  std::vector<std::byte> plain(entry.size_bytes);
  std::copy_n(reinterpret_cast<const std::byte*>(prefix.data()), prefix.size(), plain.data());
  if (tensor.data) copy_elements(tensor, plain.data() + prefix.size());
  std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> deflater(
      libdeflate_alloc_compressor(kDeflateLevel), libdeflate_free_compressor);
  std::vector<std::byte> packed(libdeflate_deflate_compress_bound(deflater.get(), plain.size()));
  entry.stored_bytes =
      libdeflate_deflate_compress(deflater.get(), plain.data(), plain.size(), packed.data(), packed.size());
  entry.is_deflated = true;
  entry.crc = crc32_of(0, plain);
  begin(entry);
  file_.write(std::span<const std::byte>(packed).first(entry.stored_bytes));
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const std::uint64_t directory_at = file_.position();
  for (auto& entry : entries_) file_.write(central_header(entry));
  const std::uint64_t end_at = file_.position();
  const std::uint64_t directory_bytes = end_at - directory_at;
  const bool is_64 = entries_.size() >= 0xffff || directory_at >= kIn64 || directory_bytes >= kIn64;
  std::string out;
  if (is_64) {
    put<std::uint32_t>(out, 0x06064b50);
    put<std::uint64_t>(out, 44);
    put<std::uint16_t>(out, 45);
    put<std::uint16_t>(out, 45);
    put<std::uint64_t>(out, 0);  // disks
    put<std::uint64_t>(out, entries_.size());
    put<std::uint64_t>(out, entries_.size());
    put<std::uint64_t>(out, directory_bytes);
    put<std::uint64_t>(out, directory_at);
    put<std::uint32_t>(out, 0x07064b50);
    put<std::uint32_t>(out, 0);
    put<std::uint64_t>(out, end_at);
    put<std::uint32_t>(out, 1);
  }
  put<std::uint32_t>(out, 0x06054b50);
  put<std::uint32_t>(out, 0);  // disks
  put<std::uint16_t>(out, is_64 ? 0xffff : static_cast<std::uint16_t>(entries_.size()));
  put<std::uint16_t>(out, is_64 ? 0xffff : static_cast<std::uint16_t>(entries_.size()));
  put<std::uint32_t>(out, is_64 ? kIn64 : static_cast<std::uint32_t>(directory_bytes));
  put<std::uint32_t>(out, is_64 ? kIn64 : static_cast<std::uint32_t>(directory_at));
  put<std::uint16_t>(out, 0);
  file_.write(out);
}

}  // namespace tenscope
