#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/event.hpp"

namespace tenscope::store {

inline constexpr std::uint64_t kHeaderPrefix = 8;  // the length of the header, little-endian
inline constexpr std::string_view kPadKey = "__pad__";
inline constexpr std::string_view kUnnamedKey = "__unnamed__";

// One tensor of a segment, as the journal tells of it. Offsets count from the file's start.
struct SegmentTensor {
  std::string key;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// name@step#call
std::string segment_key(const Event& event);

// What a segment's header says of `tensor`: its dtype and shape as safetensors knows them.
std::string stored_layout(const TensorRecord& tensor);

// An entry read from a sealed segment. Offsets count from the file's start.
struct HeaderItem {
  std::string layout;  // as stored_layout() writes it
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Reads the header of a sealed segment of which `file_bytes` is all. Throws Corrupt, with the reason alone, where it is
// not what the format demands: entries that cover the data without hole or overlap, trailing spaces and nothing else.
std::map<std::string, HeaderItem> read_segment_header(std::span<const std::byte> file_bytes);

// The header of a segment with these tensors, sorted by begin, whose data lies in [data_begin, data_end): pads in the
// holes, spaces up to data_begin. Where the room is too small for all names, the last tensors share one entry
// __unnamed__0, and `unnamed` tells how many. Throws Unsupported where even that does not fit.
std::string make_segment_header(std::span<const SegmentTensor> tensors, std::uint64_t data_begin,
                                std::uint64_t data_end, std::size_t& unnamed);

}  // namespace tenscope::store
