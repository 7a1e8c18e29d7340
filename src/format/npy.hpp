#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

// NumPy's .npy: a magic, a version (1, 2 or 3), a header that is a Python dict literal, and the elements.
Tensor read_npy(const Source& source, Budget& budget);

// Magic, version 1 and header, padded to 64 bytes. The elements follow in Fortran order
// where the tensor lies so, else in C order.
std::string npy_header(const TensorView& tensor);
bool is_fortran_order(const TensorView& tensor) noexcept;  // and not C order
TensorView npy_elements(const TensorView& tensor,
                        std::vector<std::int64_t>& shape);  // to be written in C order after the header

// NumPy's type codes: "<f4" gives F32. Nothing for what we have no dtype for.
struct NumpyDType {
  DType dtype;
  bool is_big_endian;
};
std::optional<NumpyDType> parse_numpy_dtype(std::string_view code);
std::string numpy_dtype_code(DType dtype);  // "<f4"; throws Unsupported for bfloat16 and float8

}  // namespace tenscope
