#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "format/value.hpp"

namespace tenscope {

// How the tensors of a tree are to be stored as torch does it, in storages that tensors look into. Tensors whose memory
// overlaps share one storage, so that views stay views; one that skips much of its memory and shares it with no other
// is stored by its elements alone. The value must outlive the plan.
class StoragePlan {
 public:
  explicit StoragePlan(const Value& value);

  struct Planned {  // one storage
    const std::byte* data = nullptr;
    std::int64_t size = 0;             // bytes
    const Tensor* elements = nullptr;  // not null: these, in C order, instead of the bytes
    DType dtype = DType::U8;
    bool is_untyped = false;  // tensors of several dtypes look into it

    TensorView view() const noexcept;
  };
  struct Place {  // of one tensor
    std::size_t storage = 0;
    std::int64_t offset = 0;  // in elements
    std::vector<std::int64_t> strides;
  };

  const std::vector<Planned>& storages() const noexcept { return storages_; }
  const Place& place(const Tensor& tensor) const { return places_.at(&tensor); }
  std::uint64_t size_bytes() const noexcept;

 private:
  void collect(const Value& value, std::vector<const Tensor*>& tensors, std::unordered_map<const void*, bool>& seen);
  void add_alone(const Tensor& tensor);
  void add_group(const std::vector<const Tensor*>& group);

  std::vector<Planned> storages_;
  std::unordered_map<const Tensor*, Place> places_;
};

}  // namespace tenscope
