#pragma once

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

// NumPy's .npz: a zip of .npy files, stored or deflated. Stored arrays are not read until they are used.
Value read_npz(const Source& source, const LoadOptions& options);

// A dict from text to tensors or numbers.
void write_npz(OutputFile& file, const Value& value, bool compress);

// A tensor, or a plain number as a tensor of rank 0 (int64, float64, bool, complex128). Throws InvalidArgument for
// others.
Tensor as_tensor(const Value& value, std::string_view format);

}  // namespace tenscope
