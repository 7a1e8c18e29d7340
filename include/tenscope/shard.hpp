#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)
namespace tenscope {

// Which part of a tensor that is spread over ranks one rank's part is. The ranks lie in a mesh of one or more axes; for
// each of these a placement says what differs along it, as PyTorch's DTensor names them: "S(1)" a slice of axis 1,
// "R" nothing, "P(sum)" a part of a sum ("avg", "max", "min" and "product" likewise).
struct Shard {
  std::vector<std::int64_t> mesh;        // its sizes
  std::vector<std::string> names;        // of its axes; may be empty
  std::vector<std::string> placements;   // one for each axis of the mesh
  std::vector<std::int64_t> coordinate;  // of this rank in the mesh
  std::vector<std::int64_t> shape;       // of the whole tensor
  std::vector<std::int64_t> offset;      // of this part in it
};

// Part `part` of `parts` of equal size along `axis`; `shape` is that of the part.
inline Shard shard_along(std::size_t axis, std::int64_t part, std::int64_t parts, std::vector<std::int64_t> shape) {
  Shard shard;
  shard.mesh = {parts};
  shard.placements = {"S(" + std::to_string(axis) + ")"};
  shard.coordinate = {part};
  shard.offset.assign(shape.size(), 0);
  shard.offset.at(axis) = part * shape[axis];
  shape[axis] *= parts;
  shard.shape = std::move(shape);
  return shard;
}

// Part `part` of `parts` of a sum; `shape` is that of each.
inline Shard part_of_sum(std::int64_t part, std::int64_t parts, std::vector<std::int64_t> shape) {
  Shard shard;
  shard.mesh = {parts};
  shard.placements = {"P(sum)"};
  shard.coordinate = {part};
  shard.offset.assign(shape.size(), 0);
  shard.shape = std::move(shape);
  return shard;
}

}  // namespace tenscope
#pragma GCC visibility pop
