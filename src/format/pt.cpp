#include "format/pt.hpp"

#include <fmt/format.h>

#include "format/pickler.hpp"
#include "format/pt_legacy.hpp"
#include "format/storage_plan.hpp"
#include "format/unpickler.hpp"
#include "format/zip.hpp"

namespace tenscope {
namespace {

constexpr std::string_view kPickleName = "data.pkl";

// The folder that all of an archive's records are in, with its slash.
std::string find_root(const ZipReader& zip) {
  const Source& source = zip.source();
  for (auto& entry : zip.entries()) {
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickleName) continue;
    const std::string root = entry.name.substr(0, slash + 1);
    if (zip.find(root + "constants.pkl"))
      source.unsupported(entry.header_at, "it is a TorchScript archive, which holds a program");
    return root;
  }
  source.corrupt(0, "a zip archive without a data.pkl: not one of torch's");
}

bool is_big_endian(const ZipReader& zip, const std::string& root, Budget& budget) {
  auto* entry = zip.find(root + "byteorder");
  if (!entry) return false;
  const Source record = zip.open(*entry, budget, ZipReader::Check::Always);
  const auto order = record.text(0, record.size(), "byte order");
  if (order == "little") return false;
  if (order == "big") return true;
  record.corrupt(0, "an unknown byte order");
}

void fill_in(Unpickler::StorageSlot& slot, const ZipReader& zip, const std::string& root, bool is_swapped,
             Budget& budget) {
  const Source& source = zip.source();
  auto* entry = zip.find(fmt::format("{}data/{}", root, slot.key));
  if (!entry) source.corrupt(slot.at, fmt::format("no record of the storage '{}'", slot.key));
  if (entry->size_bytes != slot.size_bytes) {
    source.corrupt(entry->header_at, fmt::format("the storage '{}' with {} bytes where {} were announced", slot.key,
                                                 entry->size_bytes, slot.size_bytes));
  }
  const Source record = zip.open(*entry, budget, ZipReader::Check::IfCheap);
  slot.storage = record.storage(0, record.size(), "storage");
  if (is_swapped && slot.dtype && item_size(*slot.dtype) > 1) {
    budget.take(source, entry->data_at, slot.size_bytes, "swapping the bytes of a storage");
    std::byte* bytes = nullptr;
    auto swapped = allocate_storage(slot.size_bytes, &bytes);
    copy_swapped(*slot.dtype, record.bytes, bytes);
    slot.storage = std::move(swapped);
  }
}

Value read_zip(const Source& source, const LoadOptions& options, Budget& budget) {
  const ZipReader zip(source, options);
  const std::string root = find_root(zip);
  const bool is_swapped = is_big_endian(zip, root, budget);
  const Source pickle = zip.open(*zip.find(root + std::string(kPickleName)), budget, ZipReader::Check::Always);
  Unpickler machine(pickle, options, budget);
  machine.run();
  machine.set_big_endian(is_swapped);
  for (auto& slot : machine.slots()) {
    if (!slot.storage) fill_in(slot, zip, root, is_swapped, budget);
  }
  return machine.finish();
}

}  // namespace

Value read_pt(const Source& source, const LoadOptions& options) {
  Budget budget(options, source.size());
  if (source.size() >= 4 && source.text(0, 4, "magic") == "PK\3\4") return read_zip(source, options, budget);
  if (is_legacy_pt(source)) return read_legacy_pt(source, options, budget);
  if (source.size() >= 262 && source.text(257, 5, "magic") == "ustar") {
    source.unsupported(0, "it is a tar archive, torch's format before 0.1.10");
  }
  source.corrupt(0, "neither a zip archive nor a torch stream");
}

void write_pt(OutputFile& file, const Value& value) {
  const StoragePlan plan(value);
  ZipWriter zip(file);
  file.reserve(plan.size_bytes() + 128 * plan.storages().size() + 4096);
  zip.add("archive/data.pkl", Pickler(plan, Pickler::Flavor::TorchZip).pickle(value));
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", "64");
  zip.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < plan.storages().size(); ++i) {
    zip.add(fmt::format("archive/data/{}", i), {}, plan.storages()[i].view());
  }
  zip.add("archive/version", "3\n");
  zip.finish();
}

}  // namespace tenscope
