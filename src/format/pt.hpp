#pragma once

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

// torch's .pt: a zip of a pickle (data.pkl) and one record per storage (data/0, ...), or the older stream
// (pt_legacy.hpp). Storages are not read until they are used.
Value read_pt(const Source& source, const LoadOptions& options);

// The zip format, as torch.load(weights_only=True) takes it. Every tensor becomes a torch tensor. Tensors that share
// memory share one storage; what lies in a storage and in no tensor is not written.
void write_pt(OutputFile& file, const Value& value);

}  // namespace tenscope
