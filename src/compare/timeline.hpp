#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::compare {

using TextId = std::uint32_t;  // 0 is the empty text

// Texts and shapes as small numbers, shared by the timelines that are compared.
class Interner {
 public:
  Interner() { text(""); }
  TextId text(std::string_view text);
  std::string_view text(TextId id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, TextId> ids_;
};

using tenscope::Io;
using tenscope::Phase;

enum class ValueKind : std::uint8_t { None, Null, Bool, Integer, Float, BigInteger, Text, Tensor };

// One event, as far as comparing runs needs it.
struct Item {
  EventId event = 0;
  EventKind kind = EventKind::Value;
  Io io = Io::None;
  Phase phase = Phase::None;
  ValueKind value = ValueKind::None;
  DType dtype = DType::F32;     // of a tensor
  bool has_bytes = false;       // a tensor whose bytes were kept, and are there
  bool is_description = false;  // a text instead of a value that could not be recorded, "<Tokenizer>"
  bool is_neutral = false;      // a tensor that may be a mask, or is all zero: it may be given or left out
  TextId name = 0, scope = 0, root = 0, cls = 0, site = 0;
  TextId tail = 0;       // the name without the scope before it: "input.0", "weight", "weight.grad"
  TextId parameter = 0;  // the tail of a parameter or buffer, also for its gradient: "weight"
  TextId shape = 0;      // as text, "2x3"
  TextId part = 0;       // of a tensor that is spread over ranks: which part, "S(0)@1"; empty where it is whole
  // A text value; the digits of a big integer; the meta of a note; what a call raised; what the first call of a module
  // says of it, as JSON.
  TextId text = 0;
  std::int64_t step = 0, call = 0;
  std::uint64_t thread = 0;
  Fingerprint fingerprint;
  std::int64_t integer = 0;  // of Bool and Integer; of an Enter 1: in training, 0: not, -1: not known
  double number = 0;         // of Float
  double abs_max = 0;        // of a tensor's finite elements

  bool is_tensor() const { return value == ValueKind::Tensor; }
  bool is_number() const {
    return value == ValueKind::Bool || value == ValueKind::Integer || value == ValueKind::Float ||
           value == ValueKind::BigInteger;
  }
};

// "float32", "bool": the dtype of a tensor, or what kind of value it is.
std::string type_name(const Item& item);

// Gives the item the value of a tensor, whose bytes are there if they were kept.
void set_tensor(Item& item, const TensorRecord& tensor, Interner& interner);

// Is the whole value the same, bit for bit? A tensor by its fingerprint.
bool is_same_value(const Item& x, const Item& y) noexcept;

// What one process recorded, in its order.
struct Lane {
  int rank = 0;
  std::size_t ordinal = 0;  // among the writers of this rank
  std::vector<Item> items;
};

struct Timeline {
  std::vector<Lane> lanes;  // by rank
};

Timeline read_timeline(const Reader& reader, Interner& interner);
Timeline read_timeline(const Reader& reader, int rank, Interner& interner);  // of one rank only

// Says a timeline's texts by the numbers of another interner.
void translate(Timeline& timeline, const Interner& from, Interner& into);

// The dotted path without its last part, and the last part.
std::string_view parent_path(std::string_view path) noexcept;
std::string_view last_part(std::string_view path) noexcept;
std::string join_path(std::string_view parent, std::string_view part);

}  // namespace tenscope::compare
