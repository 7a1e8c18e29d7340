#include "store/segment_layout.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/segment_header.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kPadEntry = 128;    // room for a pad's entry
constexpr std::uint64_t kEntrySuffix = 72;  // room for ~N, two offsets and brackets
constexpr std::uint64_t kBrackets = 16;

// Hashes of the keys of a header.
class KeySet {
 public:
  explicit KeySet(std::size_t count) {
    std::size_t size = 64;
    while (size < count * 2) size *= 2;
    slots_.resize(size);
  }
  bool insert(std::uint64_t hash) {  // false: it was there
    hash = std::max<std::uint64_t>(hash, 1);
    std::size_t index = hash & (slots_.size() - 1);
    while (slots_[index] != 0 && slots_[index] != hash) index = (index + 1) & (slots_.size() - 1);
    return std::exchange(slots_[index], hash) == 0;
  }

 private:
  std::vector<std::uint64_t> slots_;  // open addressing, at most half full
};

}  // namespace

std::uint64_t SegmentLayout::room_for(std::uint64_t text_size) { return text_size + kEntrySuffix + kPadEntry; }

std::uint64_t SegmentLayout::least_header(const HeaderEntry& entry) {
  return kBrackets + room_for(entry.key.size() + entry.rest.size());
}

bool SegmentLayout::has_header_room(const HeaderEntry& entry) const {
  return header_used_ + least_header(entry) <= header_bytes_;
}

std::size_t SegmentLayout::add(std::uint64_t begin, std::uint64_t size_bytes, const HeaderEntry& entry) {
  if (begin < tail()) throw std::logic_error("a place in a segment overlaps another");
  const auto text = texts_.size();
  const auto key = entry.key.view(), rest = entry.rest.view();
  texts_.append(key).append(rest);
  places_.push_back({.begin = begin,
                     .end = begin + size_bytes,
                     .text = static_cast<std::uint32_t>(text),
                     .key_size = static_cast<std::uint32_t>(key.size()),
                     .rest_size = static_cast<std::uint32_t>(rest.size())});
  header_used_ += room_for(key.size() + rest.size());
  ++in_use_;
  return places_.size() - 1;
}

void SegmentLayout::keep(std::size_t place) noexcept {
  places_[place].state = State::Kept;
  --in_use_;
}

void SegmentLayout::give_back(std::size_t place) noexcept {
  places_[place].state = State::GivenBack;
  --in_use_;
  while (!places_.empty() && places_.back().state == State::GivenBack) {
    const Place& last = places_.back();
    header_used_ -= room_for(last.key_size + last.rest_size);
    texts_.resize(last.text);
    places_.pop_back();
  }
}

std::string SegmentLayout::header() const {
  std::string text = "{";
  text.reserve(header_bytes_);
  KeySet keys(places_.size());
  std::uint64_t position = begin_;
  std::size_t pads = 0, tensors = 0;
  for (const Place& place : places_) {
    if (place.state != State::Kept) continue;
    if (place.begin > position) {
      fmt::format_to(std::back_inserter(text),
                     FMT_COMPILE(R"("{}{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"), kPadKey, pads++,
                     place.begin - position, position - begin_, place.begin - begin_);
    }
    const std::string_view key = std::string_view(texts_).substr(place.text, place.key_size);
    text += key;
    if (!keys.insert(XXH3_64bits(key.data(), key.size()))) fmt::format_to(std::back_inserter(text), "~{}", tensors);
    text += std::string_view(texts_).substr(place.text + place.key_size, place.rest_size);
    fmt::format_to(std::back_inserter(text), FMT_COMPILE("{},{}]}},"), place.begin - begin_, place.end - begin_);
    position = place.end;
    ++tensors;
  }
  if (tensors > 0) text.pop_back();  // the last comma
  text += '}';
  if (text.size() > header_bytes_) throw std::length_error("a segment's header outgrew its space");
  text.resize(header_bytes_, ' ');
  return text;
}

}  // namespace tenscope::store
