#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/output_file.hpp"
#include "format/storage_plan.hpp"
#include "format/value.hpp"

namespace tenscope {

// Writes a tree of values as a pickle. A part that is referred to twice is written once.
class Pickler {
 public:
  enum class Flavor {
    TorchZip,  // data.pkl of a .pt: protocol 2, tensors refer to records of the archive
    Plain,     // a .pkl: protocol 4, NumPy arrays as NumPy pickles them, torch tensors with their storage inside
  };
  // The plan is that of the value to be pickled; both must outlive the Pickler.
  Pickler(const StoragePlan& plan, Flavor flavor) : plan_(plan), flavor_(flavor) {}

  std::string pickle(const Value& value);                // TorchZip
  void pickle_to(OutputFile& file, const Value& value);  // either; tensors' bytes are not gathered in memory

 private:
  void value(const Value& value);
  void plain_value(const Value& value);
  void integer(std::int64_t value);
  void big_integer(const BigInt& value);
  void floating(double value);
  void text(std::string_view text);
  void bytes(const Bytes& bytes);
  void global(std::string_view type);
  void dict(const Dict& dict);
  void sequence(const std::vector<Value>& items, std::string_view empty, std::string_view append);
  void tuple(const std::vector<Value>& items);
  void set(const Set& set);
  void object(const Object& object);
  void tensor(const Tensor& tensor);
  void numpy_array(const Tensor& tensor);
  void torch_tensor(const Tensor& tensor);
  void storage(std::size_t index, bool is_untyped);
  void embedded_storage(std::size_t index, bool is_untyped);
  void sizes(const std::vector<std::int64_t>& sizes);
  void elements(const TensorView& view);  // the bytes themselves, at this place
  template <class T>
  void number(T value);
  void put(std::uint32_t& memo);
  void get(std::uint32_t memo);

  const StoragePlan& plan_;
  Flavor flavor_;
  std::string out_;
  std::vector<std::pair<std::size_t, TensorView>> elements_;  // to be put in at these places of out_
  std::uint32_t memo_count_ = 0;
  std::unordered_map<const void*, std::uint32_t> memo_;
  std::unordered_map<std::string, std::uint32_t> global_memo_;
  std::unordered_map<std::size_t, std::uint32_t> storage_memo_;
};

}  // namespace tenscope
