#pragma once

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

// Python's pickle, protocols 0 to 5: plain values, NumPy arrays and scalars, torch tensors, and a list of harmless
// classes (docs/formats.md). Nothing in it is run. A file that torch.save wrote under this name is read as such.
Value read_pickle(const Source& source, const LoadOptions& options);

void write_pickle(OutputFile& file, const Value& value);

}  // namespace tenscope
