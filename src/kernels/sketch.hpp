#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sketch_table.hpp"
#include "tenscope/sketch.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

// Where a tensor lies in a larger one: its element [i, j] is element [i + offset[0], j + offset[1]] of one of shape
// `whole`. Empty: it is the whole. The spans must remain live while this is in use.
struct PartOf {
  std::span<const std::int64_t> whole = {};
  std::span<const std::int64_t> offset = {};

  bool fits(std::span<const std::int64_t> shape) const noexcept;  // lies inside, and the whole's size fits 62 bits
};

// A sketch (docs/format.md) of a tensor that is given piece by piece, from its start to its end. The same for any
// pieces. NaN and infinity count as 0; a complex element is two elements behind each other.
class SketchBuilder {
 public:
  // `part` fits the shape.
  SketchBuilder(DType dtype, std::span<const std::int64_t> shape, const PartOf& part = {}) noexcept;

  // The elements [begin, begin + count) in C order.
  void add(std::int64_t begin, std::int64_t count, const std::byte* bytes, bool are_finite = false) noexcept;
  Sketch finish() const noexcept { return sketch_; }

  // For who adds them itself, to sums(): the number of the first block that the elements [begin, begin + count) fill,
  // or -1 where they are not whole blocks behind each other.
  std::int64_t whole_blocks_at(std::int64_t begin, std::int64_t count) const noexcept;
  double* sums() noexcept { return sketch_.sums.data(); }

 private:
  std::int64_t index_of(std::int64_t element) const noexcept;
  void add_run(std::int64_t index, std::int64_t count, const std::byte* bytes) noexcept;

  const SketchTable& table_;
  DType dtype_;
  std::int64_t parts_;  // of an element: 2 of a complex one
  SketchTable::AddBlocks add_blocks_ = nullptr;
  // The tensor is runs of so many elements that lie behind each other in the whole, one for every index of the axes
  // before.
  std::int64_t run_;
  std::int64_t start_ = 0;
  std::size_t rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_;
  std::array<std::int64_t, kMaxRank> strides_;
  Sketch sketch_;
};

Sketch sketch(const TensorView& view, const PartOf& part = {});

}  // namespace tenscope::kernels
