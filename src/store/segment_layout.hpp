#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/event_encoder.hpp"

namespace tenscope::store {

// Which bytes of a segment belong to which tensor, while it is written. Places are given out one behind the other and
// then kept or given back. The header is made when the segment is sealed, and only from the places that were kept: what
// lies between them is padding. So it always covers the data without hole or overlap, whatever the order in which
// places were kept or given back. Not thread-safe. Offsets count from the file's start.
class SegmentLayout {
 public:
  // `begin`: where the data begins. The header has room for `header_bytes`.
  SegmentLayout(std::uint64_t begin, std::uint64_t header_bytes) : begin_(begin), header_bytes_(header_bytes) {}

  // What the header of a segment with one such tensor takes at most.
  static std::uint64_t least_header(const HeaderEntry& entry);

  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t tail() const noexcept { return places_.empty() ? begin_ : places_.back().end; }
  bool has_header_room(const HeaderEntry& entry) const;
  std::size_t in_use() const noexcept { return in_use_; }  // neither kept nor given back yet
  bool is_empty() const noexcept { return places_.empty(); }

  std::size_t add(std::uint64_t begin, std::uint64_t size_bytes, const HeaderEntry& entry);  // begin >= tail()
  void keep(std::size_t place) noexcept;
  // The bytes of the last places are given out again; before others they become padding.
  void give_back(std::size_t place) noexcept;

  // Of header_bytes, padded with spaces; once nothing is in use. Throws std::length_error where the room is too small.
  std::string header() const;

 private:
  enum class State : std::uint8_t { InUse, Kept, GivenBack };
  struct Place {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint32_t text;  // in texts_: key, then rest, of its entry
    std::uint32_t key_size;
    std::uint32_t rest_size;
    State state = State::InUse;
  };
  static std::uint64_t room_for(std::uint64_t text_size);

  std::uint64_t begin_;
  std::uint64_t header_bytes_;
  std::uint64_t header_used_ = 0;  // by all places, at most
  std::vector<Place> places_;      // by begin; the last one is not given back
  std::string texts_;
  std::size_t in_use_ = 0;
};

}  // namespace tenscope::store
