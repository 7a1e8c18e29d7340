#pragma once

#include <string>
#include <utility>
#include <vector>

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// .safetensors: 8 bytes (the header's length), the header (JSON), the data. As the format demands, tensors cover the
// data without a hole or an overlap. A dict from text to tensors, in the header's order.
Value read_safetensors(const Source& source, const LoadOptions& options, Metadata* metadata = nullptr);

// A dict from text to tensors. Data is laid out by item size, so that every tensor is aligned; the header keeps the
// dict's order.
void write_safetensors(OutputFile& file, const Value& value, const Metadata& metadata);

}  // namespace tenscope
