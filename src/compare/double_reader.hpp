#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compare_table.hpp"
#include "kernels/element_reader.hpp"
#include "tenscope/dtype.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// A tensor's elements as doubles, block by block; a complex element counts as two. int64 and uint64 are rounded.
// Several threads may share one.
class DoubleReader {
 public:
  static constexpr std::int64_t kBlock = kernels::kCompareBlock;  // doubles

  explicit DoubleReader(const TensorView& view)
      : reader_(view),
        widen_(kernels::compare_table().widen[static_cast<std::size_t>(view.dtype)]),
        parts_(kind_of(view.dtype) == DTypeKind::Complex ? 2 : 1) {}

  std::int64_t count() const { return reader_.count() * parts_; }
  std::int64_t bytes() const { return reader_.count() * static_cast<std::int64_t>(reader_.item_size()); }

  // At most kBlock of them; `begin` and `count` are even where the elements are complex.
  void read(std::int64_t begin, std::int64_t count, double* out) const {
    alignas(64) std::byte scratch[kBlock * 8];
    widen_(reader_.read(begin / parts_, count / parts_, scratch), count / parts_, out);
  }

 private:
  kernels::ElementReader reader_;
  void (*widen_)(const std::byte* bytes, std::int64_t count, double* out);
  std::int64_t parts_;
};

}  // namespace tenscope::compare
