#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/pickle_globals.hpp"
#include "format/source.hpp"

namespace tenscope {

// Overview. A pickle is a program for a stack machine whose GLOBAL and REDUCE opcodes import and call whatever they
// name. This machine knows the opcodes that build plain values, and a fixed list of globals (pickle_globals.hpp), each
// of which is either interpreted here (a tensor is rebuilt from its storage) or kept as an Object by name. It never
// looks anything up and never calls anything.
//
// run() executes the opcodes (unpickler.cpp) into a flat table of small nodes that refer to each other by number, so
// that neither recursion in the file nor its nesting costs stack or memory beyond a constant per byte of the file;
// calls are in unpickler_calls.cpp. The caller then fills in the bytes of torch storages, which lie elsewhere in the
// file. finish() walks the nodes into a tree of Values (unpickler_tree.cpp) and refuses cycles, too deep a nesting, and
// a tree that is far larger than the file when it is walked. Whatever is made by copying (decoded text, rebuilt sets,
// tensors) is paid from the Budget.
class Unpickler {
 public:
  // A torch storage that the pickle refers to by a persistent id.
  struct StorageSlot {
    std::string key;
    std::string device = "cpu";
    std::uint64_t size_bytes = 0;            // as the pickle has it
    std::uint64_t at = 0;                    // where it is referred to first; for errors
    std::shared_ptr<const Storage> storage;  // to be filled in between run() and finish()
    std::optional<std::string> view_of;      // legacy files: a part of another storage...
    std::uint64_t view_offset_bytes = 0;     // ...from here on
    std::optional<DType> dtype;              // absent for an untyped storage
  };

  // source and budget must outlive it. `depth` counts streams within streams.
  Unpickler(const Source& source, const LoadOptions& options, Budget& budget, std::uint64_t at = 0, int depth = 0);

  void run();                                              // up to STOP
  std::uint64_t position() const noexcept { return at_; }  // after what was run
  std::vector<StorageSlot>& slots() noexcept { return slots_; }
  // Tensors in untyped storages are swapped by finish(); typed storages are the caller's to swap when filling them in.
  void set_big_endian(bool is_big_endian) noexcept { is_big_endian_ = is_big_endian; }
  Value finish();

  // The storage that the whole pickle stands for, where it is one: what torch's _load_from_bytes gives.
  std::optional<std::uint32_t> root_slot() const;
  std::optional<DType> root_dtype() const;

 private:
  using NodeId = std::uint32_t;
  enum class Kind : std::uint8_t {
    None,
    Bool,
    Int,
    BigInt,
    Float,
    Complex,
    Text,
    Bytes,
    ByteArray,
    List,
    Tuple,
    Dict,
    OrderedDict,
    Set,
    FrozenSet,  // `index` is into children_; of dicts keys and values in turn
    Global,
    Object,
    NumpyDType,
    Storage,
    Tensor,
  };
  struct Node {
    Kind kind = Kind::None;
    bool flag = false;         // NumpyDType: is big-endian. Storage: has a dtype
    DType dtype = DType::F32;  // NumpyDType, Storage
    std::uint32_t index = 0;   // into the table of its kind
    union {
      std::int64_t integer = 0;  // of a container: how deep what was put into it is nested, as far as known
      double number;
    };
  };
  struct TextPart {
    std::string_view text;
    std::shared_ptr<const void> owner;  // null: the source
  };
  struct ObjectPart {
    const Global* global;
    std::optional<NodeId> args, state;
  };
  struct TensorPart {
    std::optional<std::uint32_t> slot;  // absent in a NumPy array that has no state yet
    DType dtype = DType::F32;
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape, strides;
    TensorOrigin origin = TensorOrigin::Torch;
    bool requires_grad = false, is_conj = false, is_neg = false, is_big_endian = false;
    std::uint64_t at = 0;
  };

  // unpickler.cpp: the opcodes
  bool step();
  bool step_protocol_0(char opcode);
  bool step_containers(char opcode);
  std::string_view take(std::uint64_t size, std::string_view what);
  template <class T>
  T take_number(std::string_view what);
  std::string_view take_line();
  void push(NodeId id) { stack_.push_back(id); }
  void push(Node node) { stack_.push_back(add(node)); }
  void push_text(Kind kind, std::string_view text, std::shared_ptr<const void> owner = nullptr);
  void push_integer(std::int64_t value);
  void push_decimal(std::string_view digits);
  void push_long(std::string_view bytes);
  void push_global(std::string_view module, std::string_view name);
  void push_children(Kind kind, std::vector<NodeId> children);
  NodeId pop();
  NodeId top();
  std::vector<NodeId> pop_to_mark();
  void put(std::uint64_t index);
  void get(std::uint64_t index);
  void append(NodeId target, std::span<const NodeId> items);
  void set_items(NodeId target, std::span<const NodeId> items);
  void add_to_set(NodeId target, std::span<const NodeId> items);
  void note_nesting(NodeId target, std::span<const NodeId> items);  // refuses early what finish() would refuse
  NodeId add(Node node);
  [[noreturn]] void corrupt(const std::string& reason) const { source_.corrupt(opcode_at_, reason); }
  [[noreturn]] void unsupported(const std::string& reason) const { source_.unsupported(opcode_at_, reason); }

  // unpickler_calls.cpp: REDUCE, BUILD, persistent ids
  NodeId call(NodeId callable, NodeId args);
  NodeId call_builtin(const Global& global, NodeId args);
  NodeId call_numpy(const Global& global, NodeId args);
  NodeId call_torch(const Global& global, NodeId args);
  NodeId rebuild_tensor(const Global& global, NodeId args);
  NodeId rebuild_parameter(NodeId args);
  NodeId rebuild_from_type(NodeId args);
  NodeId load_from_bytes(NodeId args);
  NodeId encode_text(NodeId text, NodeId encoding, Kind kind);
  NodeId new_object(const Global& global, NodeId args);
  void build(NodeId target, NodeId state);
  void build_array(TensorPart& array, NodeId state);
  NodeId array_of_bytes(NodeId bytes, const Node& dtype, std::vector<std::int64_t> shape, bool is_fortran,
                        TensorOrigin origin);
  void fill_array(TensorPart& array, NodeId bytes, const Node& dtype, bool is_fortran);
  NodeId persistent(NodeId id);
  NodeId add_tensor(TensorPart part);
  NodeId copy_children(Kind kind, NodeId from);
  const std::vector<NodeId>& arguments(NodeId args, std::size_t at_least, std::size_t at_most);
  std::int64_t integer(NodeId id) const;
  bool boolean(NodeId id) const;
  std::string_view text(NodeId id) const;
  std::vector<std::int64_t> sizes(NodeId id) const;
  const Global* global(NodeId id) const;

  // unpickler_tree.cpp: nodes to values
  Value to_value(NodeId id, int nesting);
  Value make_container(NodeId id, int nesting);
  Value make_object(const Node& node, int nesting);
  Tensor to_tensor(const TensorPart& part);
  std::uint64_t weight_of(NodeId id) const;

  const Source& source_;
  const LoadOptions& options_;
  Budget& budget_;
  std::uint64_t at_;
  std::uint64_t begin_;
  std::uint64_t opcode_at_ = 0;
  int depth_;
  bool is_big_endian_ = false;

  std::vector<Node> nodes_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  std::vector<NodeId> memo_;
  std::vector<TextPart> texts_;
  std::vector<std::vector<NodeId>> children_;
  std::vector<ObjectPart> objects_;
  std::vector<TensorPart> tensors_;
  std::vector<StorageSlot> slots_;
  std::unordered_map<std::string, std::uint32_t> slot_by_key_;
  std::unordered_map<NodeId, NodeId> state_of_;  // of OrderedDicts

  struct Built {
    enum class Progress : std::uint8_t { New, Visiting, Done } progress = Progress::New;
    std::uint64_t weight = 0;
    Value value;
  };
  std::vector<Built> built_containers_, built_objects_;
  std::vector<Value> built_texts_, built_tensors_;
  std::vector<Kind> built_kinds_;  // of built_texts_
};

}  // namespace tenscope
