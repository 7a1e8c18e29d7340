#include "format/pt_legacy.hpp"

#include <fmt/format.h>

#include "format/unpickler.hpp"

namespace tenscope {
namespace {

constexpr std::string_view kStart("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                  15);  // the magic number's pickle
constexpr std::int64_t kProtocol = 1001;

class LegacyReader {
 public:
  LegacyReader(const Source& source, const LoadOptions& options, Budget& budget, int depth)
      : source_(source), options_(options), budget_(budget), depth_(depth) {}

  // Reads all and leaves the object's machine ready to finish.
  std::unique_ptr<Unpickler> read() {
    if (!is_legacy_pt(source_)) source_.corrupt(0, "no magic number of a torch stream at its start");
    at_ = kStart.size();
    const std::uint64_t protocol_at = at_;
    const Value protocol = read_plain();
    if (auto* number = protocol.get_if<std::int64_t>(); !number || *number != kProtocol) {
      source_.fail(ErrorCode::Version, protocol_at, "a torch stream of an unknown protocol");
    }
    const Value machine = read_plain();
    bool is_big_endian = false;
    if (auto* facts = machine.get_if<Dict>()) {
      auto* little = facts->find("little_endian");
      is_big_endian = little && little->get_if<bool>() && !little->get<bool>();
    }
    auto object = std::make_unique<Unpickler>(source_, options_, budget_, at_, depth_);
    object->run();
    at_ = object->position();
    object->set_big_endian(is_big_endian);
    fill_in(*object, is_big_endian);
    return object;
  }

 private:
  Value read_plain() {
    Unpickler machine(source_, options_, budget_, at_, depth_);
    machine.run();
    at_ = machine.position();
    return machine.finish();
  }

  void fill_in(Unpickler& object, bool is_big_endian) {
    const std::uint64_t keys_at = at_;
    const Value keys = read_plain();
    if (!keys.items()) source_.corrupt(keys_at, "a torch stream without a list of storages");
    auto& slots = object.slots();
    std::unordered_map<std::string_view, Unpickler::StorageSlot*> by_key;
    for (auto& slot : slots) {
      if (!slot.storage && !slot.view_of) by_key.emplace(slot.key, &slot);
    }
    for (auto& key : *keys.items()) {
      auto* name = key.get_if<std::string>();
      const auto found = name ? by_key.find(*name) : by_key.end();
      if (found == by_key.end()) source_.corrupt(keys_at, "a torch stream with a storage that nothing refers to");
      read_storage(*found->second, is_big_endian);
    }
    for (auto& slot : slots) {
      if (!slot.view_of) continue;
      const auto root = by_key.find(*slot.view_of);
      if (root == by_key.end() || !root->second->storage)
        source_.corrupt(slot.at, "a view of a storage that is missing");
      const auto& whole = root->second->storage;
      if (slot.view_offset_bytes > whole->size_bytes || slot.size_bytes > whole->size_bytes - slot.view_offset_bytes) {
        source_.corrupt(slot.at, "a storage that views past another");
      }
      slot.storage =
          std::make_shared<const Storage>(Storage{whole->data + slot.view_offset_bytes, slot.size_bytes, whole});
    }
  }

  void read_storage(Unpickler::StorageSlot& slot, bool is_big_endian) {
    if (slot.storage) source_.corrupt(at_, fmt::format("the storage '{}' twice", slot.key));
    auto count = source_.little<std::uint64_t>(at_, "storage size");
    if (is_big_endian) count = __builtin_bswap64(count);
    const std::size_t item = slot.dtype ? item_size(*slot.dtype) : 1;
    if (count != slot.size_bytes / item) {
      source_.corrupt(at_, fmt::format("the storage '{}' with {} elements where {} were announced", slot.key, count,
                                       slot.size_bytes / item));
    }
    at_ += 8;
    slot.storage = source_.storage(at_, slot.size_bytes, "storage");
    if (is_big_endian && item > 1) {
      budget_.take(source_, at_, slot.size_bytes, "swapping the bytes of a storage");
      std::byte* bytes = nullptr;
      auto swapped = allocate_storage(slot.size_bytes, &bytes);
      copy_swapped(*slot.dtype, {slot.storage->data, slot.size_bytes}, bytes);
      slot.storage = std::move(swapped);
    }
    at_ += slot.size_bytes;
  }

  const Source& source_;
  const LoadOptions& options_;
  Budget& budget_;
  int depth_;
  std::uint64_t at_ = 0;
};

}  // namespace

bool is_legacy_pt(const Source& source) noexcept {
  return source.size() >= kStart.size() && source.text(0, kStart.size(), "magic number") == kStart;
}

Value read_legacy_pt(const Source& source, const LoadOptions& options, Budget& budget) {
  return LegacyReader(source, options, budget, 0).read()->finish();
}

std::pair<std::shared_ptr<const Storage>, std::optional<DType>> read_legacy_storage(const Source& source,
                                                                                    const LoadOptions& options,
                                                                                    Budget& budget, int depth) {
  const auto object = LegacyReader(source, options, budget, depth).read();
  const auto slot = object->root_slot();
  if (!slot) source.corrupt(0, "a torch stream that holds something else than a storage");
  if (!object->slots()[*slot].storage) source.corrupt(0, "a torch stream whose storage is missing");
  return {object->slots()[*slot].storage, object->root_dtype()};
}

}  // namespace tenscope
