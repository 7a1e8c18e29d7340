#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tenscope/tensor_view.hpp"
#include "viewer/answer.hpp"

namespace tenscope::viewer {

// How a tensor of any rank becomes a picture of rows and columns, as `slice`, `t` and `fold` of a request say. The
// elements are read as a matrix that may be the picture turned, so that its rows are what lies together in memory; a
// tensor and its partner are read alike.
class Picture {
 public:
  // Throws InvalidArgument for a slice that does not fit or leaves more than two axes.
  Picture(const TensorView& tensor, const Parameters& parameters);

  std::int64_t rows() const { return is_turned_ ? matrix_cols_ : matrix_rows_; }
  std::int64_t cols() const { return is_turned_ ? matrix_rows_ : matrix_cols_; }
  // The tensor's axes that are the picture's rows and columns; -1: none, -2: several folded.
  std::array<std::int64_t, 2> axes() const { return axes_; }
  const std::string& slice() const { return slice_; }

  bool is_turned() const { return is_turned_; }  // rows of the picture are columns of the matrix
  std::int64_t matrix_cols() const { return matrix_cols_; }

  // The place of an element in the matrix, in C order.
  std::int64_t place(std::int64_t row, std::int64_t col) const {
    return is_turned_ ? col * matrix_cols_ + row : row * matrix_cols_ + col;
  }

  // The part of a tensor that is shown. It borrows the tensor's bytes, and its view() borrows its shape.
  struct Matrix {
    const void* data = nullptr;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    TensorView view() const { return {data, dtype, shape, strides}; }
  };

  // Of a tensor with the shape of the one that the picture was made for.
  Matrix matrix(const TensorView& tensor) const;

 private:
  std::string slice_;
  std::array<std::int64_t, 2> axes_{-1, -1};
  bool is_empty_ = false;
  bool swaps_axes_ = false;
  bool is_turned_ = false;
  std::int64_t matrix_rows_ = 1;
  std::int64_t matrix_cols_ = 1;
};

}  // namespace tenscope::viewer
