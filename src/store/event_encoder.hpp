#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tenscope/event.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::store {

// Text under construction in memory that is reused from event to event.
class TextBuffer {
 public:
  void clear() noexcept;
  std::string_view view() const noexcept { return {data_.get(), size_}; }
  std::size_t size() const noexcept { return size_; }

  void put(std::string_view text);
  void put(char c);
  void put_int(std::int64_t value);
  void put_uint(std::uint64_t value);
  void put_double(double value);  // shortest text that reads back equal; finite values only
  void put_hex(std::uint64_t value);
  void put_escaped(std::string_view text);  // the inside of a JSON string

 private:
  char* room(std::size_t bytes);
  void grow(std::size_t bytes);

  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// An event as a line of the journal tells it, from `,"th":` up to the checksum: what stands before (seq and t) is known
// only when the line is appended. `info.step` is the event's step; `info.call` < 0 leaves the call out.
void encode_event(TextBuffer& out, const EventInfo& info, std::uint64_t thread, const EventValue& value);

// What a line tells of a tensor's content.
struct TensorContent {
  Summary summary;
  std::optional<Sketch> sketch;  // or that of the event with seq `sketch_of`, or none
  std::optional<std::uint64_t> sketch_of;
  std::optional<BlobRef> blob;
  bool is_cut = false;  // a budget left the bytes out
};
void encode_event(TextBuffer& out, const EventInfo& info, std::uint64_t thread, const TensorView& tensor,
                  const TensorContent& content);

// An entry of a safetensors header, cut where what is known only on writing goes in:
//   "name@step#call   ~N   ":{"dtype":"F32","shape":[2,3],"data_offsets":[   0,24   ]}
struct HeaderEntry {
  TextBuffer key;
  TextBuffer rest;
};
void encode_header_entry(HeaderEntry& out, std::string_view name, std::int64_t step, std::int64_t call, DType dtype,
                         std::span<const std::int64_t> shape);

}  // namespace tenscope::store
