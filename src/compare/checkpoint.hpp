#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "compare/timeline.hpp"
#include "format/value.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// A tensor of a checkpoint, without its elements.
struct StoredTensor {
  std::string name;
  std::string type;  // as it is stored: "float16", "q4_K"
  std::vector<std::int64_t> shape;
  DType dtype = DType::F32;   // of the elements that `read` gives
  bool is_quantised = false;  // `read` makes them
  bool is_readable = true;    // false: of a type whose bytes are all that is known
  std::function<TensorData()> read;
};

// The tensors of a file, of a file in shards (an index such as model.safetensors.index.json, or the folder), or of a
// run: its parameters as they were recorded last, or all its tensors where none is a parameter. Elements are mapped, or
// made when they are asked for. A tree of values gives its tensors dotted names, as explain and diff have them.
class Checkpoint {
 public:
  // Throws as load() and Reader do; NotFound where there is no tensor in it, or where a shard of its index is missing.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
  // The names of its files, where it is a folder or an index of shards.
  const std::set<std::string>& shards() const noexcept { return shards_; }
  // What a GGUF file says of itself: "llama"; else empty.
  const std::string& gguf_architecture() const noexcept { return gguf_architecture_; }

  // The elements; what was dequantised lately is kept, up to a bound. Any thread may ask.
  TensorData data(std::size_t tensor) const;

  // Each tensor as a parameter of one process, with its statistics, which takes one pass over all elements. The event
  // of an item is the tensor's place. `on_progress` is told how many bytes are done, by any thread, one at a time.
  Lane lane(Interner& interner, std::vector<TensorRecord>& records,
            const std::function<void(std::uint64_t)>& on_progress) const;

  std::uint64_t size_bytes() const;  // of all elements

 private:
  void add_file(const std::filesystem::path& path);
  void add_run(const std::filesystem::path& path);
  void check_names() const;
  void check_index(const std::filesystem::path& index) const;

  std::filesystem::path path_;
  std::set<std::string> shards_;
  std::string gguf_architecture_;
  std::vector<StoredTensor> tensors_;
  struct Cache;
  std::shared_ptr<Cache> cache_;
};

// Is this something that a Checkpoint can be made of: a file of a known format, an index of shards, a folder with
// shards in it, or a run?
bool is_checkpoint(const std::filesystem::path& path);

// All tensors of a tree of values by their dotted names.
void list_tensors(const Value& value, const std::string& path, std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace tenscope::compare
