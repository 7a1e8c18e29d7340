#include "format/storage_plan.hpp"

#include <algorithm>

namespace tenscope {
namespace {

std::vector<std::int64_t> c_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

std::vector<std::int64_t> strides_of(const Tensor& tensor) {
  return tensor.strides.empty() ? c_strides(tensor.shape) : tensor.strides;
}

struct Extent {
  const std::byte* begin;
  const std::byte* end;
  bool has_negative_stride = false;
};

Extent extent_of(const Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(item_size(tensor.dtype));
  const auto strides = strides_of(tensor);
  std::int64_t first = 0, last = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    (strides[axis] < 0 ? first : last) += (tensor.shape[axis] - 1) * strides[axis];
  }
  return {tensor.data + first * item, tensor.data + (last + 1) * item, first < 0};
}

}  // namespace

TensorView StoragePlan::Planned::view() const noexcept {
  if (elements) return elements->view();
  return {data, DType::U8, {&size, 1}, {}};
}

StoragePlan::StoragePlan(const Value& value) {
  std::vector<const Tensor*> tensors;
  std::unordered_map<const void*, bool> seen;
  collect(value, tensors, seen);

  // Groups of tensors whose extents overlap, in the order of their first tensor.
  std::vector<std::size_t> order;
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    extents.push_back(tensors[i]->data && element_count(tensors[i]->shape) > 0 ? extent_of(*tensors[i]) : Extent{});
    order.push_back(i);
  }
  std::ranges::stable_sort(order, std::less{}, [&](std::size_t i) { return extents[i].begin; });
  std::vector<std::vector<std::size_t>> groups;
  const std::byte* end = nullptr;
  for (const std::size_t i : order) {
    const bool joins = extents[i].begin && extents[i].begin < end;
    if (!joins) groups.emplace_back();
    groups.back().push_back(i);
    end = std::max(end, extents[i].end);
  }
  for (auto& group : groups) std::ranges::sort(group);
  std::ranges::sort(groups, {}, [](auto& group) { return group.front(); });

  for (auto& group : groups) {
    std::vector<const Tensor*> members;
    const std::byte* begin = extents[group.front()].begin;
    for (const std::size_t i : group) {
      members.push_back(tensors[i]);
      begin = std::min(begin, extents[i].begin);
    }
    const auto is_placeable = [&](std::size_t i) {
      return !extents[i].has_negative_stride &&
             (extents[i].begin - begin) % static_cast<std::int64_t>(item_size(tensors[i]->dtype)) == 0;
    };
    if (members.size() > 1 && std::ranges::all_of(group, is_placeable)) {
      add_group(members);
    } else {
      for (auto* tensor : members) add_alone(*tensor);
    }
  }
}

void StoragePlan::collect(const Value& value, std::vector<const Tensor*>& tensors,
                          std::unordered_map<const void*, bool>& seen) {
  if (value.identity() && !seen.emplace(value.identity(), true).second) return;
  if (auto* tensor = value.get_if<Tensor>()) tensors.push_back(tensor);
  if (auto* items = value.items()) {
    for (auto& item : *items) collect(item, tensors, seen);
  }
  if (auto* dict = value.get_if<Dict>()) {
    for (auto& [key, item] : dict->entries) {
      collect(key, tensors, seen);
      collect(item, tensors, seen);
    }
    if (dict->attributes) collect(*dict->attributes, tensors, seen);
  }
  if (auto* object = value.get_if<Object>()) {
    if (object->args) collect(*object->args, tensors, seen);
    if (object->state) collect(*object->state, tensors, seen);
  }
}

void StoragePlan::add_alone(const Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tenscope::size_bytes(tensor.view()));
  Planned storage{.size = bytes, .dtype = tensor.dtype};
  Place place{.storage = storages_.size(), .strides = c_strides(tensor.shape)};
  if (bytes > 0) {
    const Extent extent = extent_of(tensor);
    if (!extent.has_negative_stride && extent.end - extent.begin == bytes && !is_c_order(tensor.view())) {
      storage.data = extent.begin;  // dense, in another order: kept as it lies
      place.strides = strides_of(tensor);
    } else {
      storage.elements = &tensor;
    }
  }
  storages_.push_back(storage);
  places_.emplace(&tensor, std::move(place));
}

void StoragePlan::add_group(const std::vector<const Tensor*>& group) {
  Extent all = extent_of(*group.front());
  bool is_untyped = false;
  for (auto* tensor : group) {
    const Extent extent = extent_of(*tensor);
    all.begin = std::min(all.begin, extent.begin);
    all.end = std::max(all.end, extent.end);
    is_untyped |= tensor->dtype != group.front()->dtype;
  }
  for (auto* tensor : group) {
    const auto item = static_cast<std::int64_t>(item_size(tensor->dtype));
    places_.emplace(tensor, Place{storages_.size(), (tensor->data - all.begin) / item, strides_of(*tensor)});
  }
  storages_.push_back(
      {.data = all.begin, .size = all.end - all.begin, .dtype = group.front()->dtype, .is_untyped = is_untyped});
}

std::uint64_t StoragePlan::size_bytes() const noexcept {
  std::uint64_t total = 0;
  for (auto& storage : storages_) total += static_cast<std::uint64_t>(storage.size);
  return total;
}

}  // namespace tenscope
