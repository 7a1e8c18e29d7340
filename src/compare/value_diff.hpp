#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compare/tensor_diff.hpp"
#include "core/json_writer.hpp"

namespace tenscope {

class Value;

// Comparison of trees of values, of files that hold such trees, and of folders of files. Tensors and floats by
// tolerance, everything else by value, dicts without regard to order; a list is not a tuple. A number equals a tensor
// of no dimensions with that value. In a diff, a is the reference and b what became of it: |b - a| <= atol + rtol *
// |a|.

enum class EntryStatus : std::uint8_t { Same, Different, OnlyA, OnlyB, Trouble };
std::string_view to_string(EntryStatus status) noexcept;  // "same", "different", "only_a", "only_b", "trouble"

struct DiffEntry {
  std::string name;  // where in the tree: "layers.0.weight"; within a folder "file.pt: layers.0.weight"
  EntryStatus status = EntryStatus::Same;
  std::string message;                       // of a plain value, a structure or trouble: what is different
  std::shared_ptr<const TensorDiff> tensor;  // of a pair of tensors
};

struct ValueDiff {
  std::string a;  // what was compared: two paths, or empty
  std::string b;
  std::vector<DiffEntry> entries;  // every pair of tensors, and whatever else differs, in the order of a
  std::int64_t tensors = 0;        // pairs compared
  std::int64_t values = 0;         // plain values compared
  std::int64_t files = 0;          // pairs of files compared, within folders
  std::int64_t different = 0;      // entries that are not the same, one-sided ones included
  std::int64_t one_sided = 0;
  std::int64_t trouble = 0;  // files that could not be read
  bool is_different() const noexcept { return different > 0; }
};

using NamedProgress = std::function<void(std::string_view name, std::int64_t done, std::int64_t total)>;

ValueDiff diff_values(const Value& a, const Value& b, const DiffOptions& options = {},
                      const NamedProgress& progress = {});

// The same, added to a diff under construction; names get the prefix.
void add_values(ValueDiff& diff, const std::string& prefix, const Value& a, const Value& b, const DiffOptions& options,
                const NamedProgress& progress);

// Two files, or two folders: files are paired by their path within the folder, and where that leaves some over, by that
// path without its extension. Throws where one is missing or one is a file and the other a folder; a file of a folder
// that cannot be read is an entry with status Trouble.
ValueDiff diff_paths(const std::filesystem::path& a, const std::filesystem::path& b, const DiffOptions& options = {},
                     const NamedProgress& progress = {});

// The same rules with one tolerance for all, and an answer only: stops at the first difference. As NumPy's
// allclose(a, b), so that numbers agree where |a - b| <= atol + rtol * |b|.
bool same_values(const Value& a, const Value& b, const kernels::CompareOptions& options);

// A value in a few words: "3.5", "'text'", "float32 [2, 3]", "dict of 4".
std::string brief_text(const Value& value);

void write_json(JsonWriter& json, const ValueDiff& diff);

}  // namespace tenscope
