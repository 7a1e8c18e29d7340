#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compare/shape.hpp"
#include "tenscope/dtype.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// How parts that stand behind each other make a whole.
struct Fold {
  enum class How : std::uint8_t {
    Same,  // all are the whole
    Join,  // one behind the other along an axis
    Sum,
    Mean,
  };
  How how = How::Same;
  int axis = 0;  // of Join
  // Of Join: each part is cut into this many pieces, and the n-th pieces of all parts lie together. 0: as many as it
  // has elements along the axis, so that elements are dealt out one by one.
  int pieces = 1;
  int first = 1;           // the first piece is so many times as long as each of the others
  bool is_zigzag = false;  // of Join with two pieces: the second ones lie in reverse order

  friend bool operator==(const Fold&, const Fold&) = default;
};

// How the parts of a tensor make the whole: they stand in a grid, in C order, and each axis of it is folded, the last
// one first.
struct Assembly {
  std::vector<std::int64_t> grid;
  std::vector<Fold> folds;  // one for each axis of the grid
  std::vector<std::size_t>
      taken;  // for each axis: which of the parts is taken where all are the same; empty: the first
  // What is joined is pieces of the tensor in C order, as one row, and has this shape. Empty: it is as it is joined.
  Shape shaped_as = {};

  bool has(Fold::How how) const;
  // "joined along axis 1", "the sum of the parts"; empty where there is one part, or all are the same.
  std::string in_words() const;
  friend bool operator==(const Assembly& x, const Assembly& y) {
    return x.grid == y.grid && x.folds == y.folds && x.shaped_as == y.shaped_as;
  }
};

// A tensor in memory, in C order.
struct HostTensor {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<std::byte> bytes;

  TensorView view() const { return {.data = bytes.data(), .dtype = dtype, .shape = shape}; }
};

// Folds the grid's axes, the last one first. `fold` makes one value of a row of them; it is given the
// fold, which part is taken where all are the same, and the row.
template <class T, class FoldRow>
T fold_grid(const Assembly& assembly, std::vector<T> values, FoldRow fold) {
  for (std::size_t level = assembly.grid.size(); level-- > 0;) {
    const auto size = static_cast<std::size_t>(assembly.grid[level]);
    std::vector<T> folded;
    for (std::size_t begin = 0; begin < values.size(); begin += size)
      folded.push_back(fold(assembly.folds[level], level < assembly.taken.size() ? assembly.taken[level] : 0,
                            std::span<T>(values).subspan(begin, size)));
    values = std::move(folded);
  }
  return std::move(values.front());
}

// The shape of the whole; nothing where the parts cannot be put together so.
std::optional<Shape> shape_of(const Assembly& assembly, std::span<const Shape> parts);

// The whole of parts that fit (shape_of) and have one dtype. Sums are made in double precision and rounded to the
// parts' dtype; those of integers and of 8-bit floats are float64.
HostTensor assemble(const Assembly& assembly, std::span<const TensorView> parts);

// Every element multiplied; integers stay as they are.
HostTensor scaled(const TensorView& tensor, double factor);

// The elements, in C order; a complex one is two.
std::vector<double> doubles_of(const TensorView& tensor);
HostTensor tensor_of(std::span<const double> values, Shape shape, DType dtype = DType::F64);  // of a float type

}  // namespace tenscope::compare
