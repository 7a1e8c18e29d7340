#include "format/unpickler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "format/decimal.hpp"
#include "format/unescape.hpp"

namespace tenscope {
namespace {

constexpr int kMaxProtocol = 5;
constexpr std::uint64_t kMaxIntegerBytes = 1785, kMaxIntegerDigits = 4300;  // Python's own bound for text

}  // namespace

Unpickler::Unpickler(const Source& source, const LoadOptions& options, Budget& budget, std::uint64_t at, int depth)
    : source_(source), options_(options), budget_(budget), at_(at), begin_(at), depth_(depth) {}

void Unpickler::run() {
  while (step()) {
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    corrupt(fmt::format("a pickle that ends with {} values on its stack", stack_.size()));
  }
}

std::string_view Unpickler::take(std::uint64_t size, std::string_view what) {
  const auto text = source_.text(at_, size, what);
  at_ += size;
  return text;
}

template <class T>
T Unpickler::take_number(std::string_view what) {
  const T value = source_.little<T>(at_, what);
  at_ += sizeof(T);
  return value;
}

std::string_view Unpickler::take_line() {
  const auto rest = source_.text(at_, source_.size() - at_, "line");
  const std::size_t end = rest.find('\n');
  if (end == rest.npos) corrupt("a line that does not end");
  at_ += end + 1;
  auto line = rest.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Unpickler::NodeId Unpickler::add(Node node) {
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

Unpickler::NodeId Unpickler::top() {
  if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back()))
    corrupt("a pickle that takes from an empty stack");
  return stack_.back();
}

Unpickler::NodeId Unpickler::pop() {
  const NodeId id = top();
  stack_.pop_back();
  return id;
}

std::vector<Unpickler::NodeId> Unpickler::pop_to_mark() {
  if (marks_.empty()) corrupt("a pickle that lacks a mark");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<NodeId> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

void Unpickler::push_text(Kind kind, std::string_view text, std::shared_ptr<const void> owner) {
  texts_.push_back({text, std::move(owner)});
  push({.kind = kind, .index = static_cast<std::uint32_t>(texts_.size() - 1)});
}

void Unpickler::push_integer(std::int64_t value) { push({.kind = Kind::Int, .integer = value}); }

void Unpickler::push_decimal(std::string_view digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc{} && stop == end) return push_integer(value);
  const bool is_integer = error == std::errc::result_out_of_range && stop == end;
  if (!is_integer) corrupt(fmt::format("the integer '{}'", digits.substr(0, 40)));
  if (digits.size() > kMaxIntegerDigits) unsupported(fmt::format("an integer of {} digits", digits.size()));
  push_text(Kind::BigInt, digits);
}

void Unpickler::push_long(std::string_view bytes) {
  if (bytes.size() > kMaxIntegerBytes) unsupported(fmt::format("an integer of {} bytes", bytes.size()));
  if (bytes.size() <= 8) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    if (!bytes.empty() && bytes.size() < 8 && (bytes.back() & 0x80)) value |= ~std::uint64_t{0} << (8 * bytes.size());
    return push_integer(static_cast<std::int64_t>(value));
  }
  auto digits = std::make_shared<const std::string>(decimal_of_bytes(bytes));
  std::int64_t value = 0;  // it may be a small one that is padded
  if (std::from_chars(digits->data(), digits->data() + digits->size(), value).ec == std::errc{})
    return push_integer(value);
  budget_.take(source_, opcode_at_, digits->size(), "an integer");
  push_text(Kind::BigInt, *digits, digits);
}

void Unpickler::push_global(std::string_view module, std::string_view name) {
  const Global* global = find_global(module, name);
  if (!global) {
    unsupported(fmt::format("it names '{}.{}', which is not on the list of what a file may name", module.substr(0, 100),
                            name.substr(0, 100)));
  }
  if (global->kind == GlobalKind::Refused) unsupported(fmt::format("it holds {} ({})", global->why, global->name));
  objects_.push_back({global, {}, {}});
  push({.kind = Kind::Global, .index = static_cast<std::uint32_t>(objects_.size() - 1)});
}

void Unpickler::push_children(Kind kind, std::vector<NodeId> children) {
  children_.push_back(std::move(children));
  const NodeId id = add({.kind = kind, .index = static_cast<std::uint32_t>(children_.size() - 1)});
  note_nesting(id, children_.back());
  push(id);
}

void Unpickler::note_nesting(NodeId target, std::span<const NodeId> items) {
  auto& nesting = nodes_[target].integer;
  for (const NodeId item : items) {
    const Kind kind = nodes_[item].kind;
    if (kind >= Kind::List && kind <= Kind::FrozenSet) nesting = std::max(nesting, nodes_[item].integer + 1);
  }
  if (nesting > options_.max_nesting) unsupported(fmt::format("values nested deeper than {}", options_.max_nesting));
}

void Unpickler::put(std::uint64_t index) {
  // A pickler counts from 0, and an opcode that stores takes a byte at least.
  if (index > source_.size() - begin_)
    corrupt(fmt::format("the memo number {}, beyond any that the file can hold", index));
  if (memo_.size() <= index) memo_.resize(index + 1, ~NodeId{0});
  memo_[index] = top();
}

void Unpickler::get(std::uint64_t index) {
  if (index >= memo_.size() || memo_[index] == ~NodeId{0})
    corrupt(fmt::format("the memo number {}, which is not set", index));
  push(memo_[index]);
}

void Unpickler::append(NodeId target, std::span<const NodeId> items) {
  if (nodes_[target].kind != Kind::List) corrupt("an append to something else than a list");
  auto& children = children_[nodes_[target].index];
  children.insert(children.end(), items.begin(), items.end());
  note_nesting(target, items);
}

void Unpickler::set_items(NodeId target, std::span<const NodeId> items) {
  const Kind kind = nodes_[target].kind;
  if (kind != Kind::Dict && kind != Kind::OrderedDict) corrupt("an item set on something else than a dict");
  if (items.size() % 2) corrupt("a key without a value");
  auto& children = children_[nodes_[target].index];
  children.insert(children.end(), items.begin(), items.end());
  note_nesting(target, items);
}

void Unpickler::add_to_set(NodeId target, std::span<const NodeId> items) {
  if (nodes_[target].kind != Kind::Set) corrupt("an item added to something else than a set");
  auto& children = children_[nodes_[target].index];
  children.insert(children.end(), items.begin(), items.end());
  note_nesting(target, items);
}

bool Unpickler::step() {
  opcode_at_ = at_;
  if (nodes_.size() > 0xfffffff0) unsupported("a pickle of more than 4 billion values");
  const char opcode = take(1, "opcode")[0];
  switch (opcode) {
    case '.':
      return false;
    case '\x80':  // PROTO
      if (const int protocol = take_number<std::uint8_t>("protocol"); protocol > kMaxProtocol) {
        source_.fail(ErrorCode::Version, opcode_at_, fmt::format("pickle protocol {} is not known", protocol));
      }
      break;
    case '\x95': {  // FRAME
      const auto size = take_number<std::uint64_t>("frame");
      source_.require(at_, size, "frame");
      break;
    }
    case '0':  // POP
      if (!marks_.empty() && stack_.size() == marks_.back())
        marks_.pop_back();
      else
        pop();
      break;
    case '1':
      pop_to_mark();
      break;
    case '2':
      push(top());
      break;
    case '(':
      marks_.push_back(stack_.size());
      break;

    case 'N':
      push(Node{});
      break;
    case '\x88':
      push({.kind = Kind::Bool, .integer = 1});
      break;
    case '\x89':
      push({.kind = Kind::Bool, .integer = 0});
      break;
    case 'J':
      push_integer(take_number<std::int32_t>("integer"));
      break;
    case 'K':
      push_integer(take_number<std::uint8_t>("integer"));
      break;
    case 'M':
      push_integer(take_number<std::uint16_t>("integer"));
      break;
    case '\x8a':
      push_long(take(take_number<std::uint8_t>("integer"), "integer"));
      break;
    case '\x8b': {
      const auto size = take_number<std::int32_t>("integer");
      if (size < 0) corrupt("an integer of negative length");
      push_long(take(static_cast<std::uint64_t>(size), "integer"));
      break;
    }
    case 'G': {
      std::uint64_t bits = 0;
      for (const char byte : take(8, "float")) bits = bits << 8 | static_cast<unsigned char>(byte);
      push({.kind = Kind::Float, .number = std::bit_cast<double>(bits)});
      break;
    }

    case '\x8c':
      push_text(Kind::Text, take(take_number<std::uint8_t>("text"), "text"));
      break;
    case 'X':
      push_text(Kind::Text, take(take_number<std::uint32_t>("text"), "text"));
      break;
    case '\x8d':
      push_text(Kind::Text, take(take_number<std::uint64_t>("text"), "text"));
      break;
    case 'C':
      push_text(Kind::Bytes, take(take_number<std::uint8_t>("bytes"), "bytes"));
      break;
    case 'B':
      push_text(Kind::Bytes, take(take_number<std::uint32_t>("bytes"), "bytes"));
      break;
    case '\x8e':
      push_text(Kind::Bytes, take(take_number<std::uint64_t>("bytes"), "bytes"));
      break;
    case '\x96':
      push_text(Kind::ByteArray, take(take_number<std::uint64_t>("bytearray"), "bytearray"));
      break;
    case 'U':  // SHORT_BINSTRING and BINSTRING, Python 2's str: text where it is ASCII
    case 'T': {
      const auto text =
          take(opcode == 'U' ? take_number<std::uint8_t>("text") : take_number<std::uint32_t>("text"), "text");
      push_text(is_ascii(text) ? Kind::Text : Kind::Bytes, text);
      break;
    }
    case '\x97':
    case '\x98':
      unsupported("a pickle whose buffers lie outside of the file (out-of-band)");
    case 'i':
    case 'o':
    case '\x82':
    case '\x83':
    case '\x84':
    case '\x92':
      unsupported(fmt::format("the pickle opcode 0x{:02x}, which makes objects in ways not on the list",
                              static_cast<unsigned char>(opcode)));
    default:
      if (!step_containers(opcode) && !step_protocol_0(opcode)) {
        corrupt(fmt::format("the unknown pickle opcode 0x{:02x}", static_cast<unsigned char>(opcode)));
      }
  }
  return true;
}

bool Unpickler::step_containers(char opcode) {
  switch (opcode) {
    case ']':
      push_children(Kind::List, {});
      break;
    case '}':
      push_children(Kind::Dict, {});
      break;
    case ')':
      push_children(Kind::Tuple, {});
      break;
    case '\x8f':
      push_children(Kind::Set, {});
      break;
    case 'l':
      push_children(Kind::List, pop_to_mark());
      break;
    case 't':
      push_children(Kind::Tuple, pop_to_mark());
      break;
    case '\x91':
      push_children(Kind::FrozenSet, pop_to_mark());
      break;
    case 'd': {
      auto items = pop_to_mark();
      push_children(Kind::Dict, {});
      set_items(top(), items);
      break;
    }
    case '\x85':
    case '\x86':
    case '\x87': {
      std::vector<NodeId> items(static_cast<std::size_t>(static_cast<unsigned char>(opcode) - 0x84));
      for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
      push_children(Kind::Tuple, std::move(items));
      break;
    }
    case 'a': {
      const NodeId item = pop();
      append(top(), {&item, 1});
      break;
    }
    case 'e': {
      const auto items = pop_to_mark();
      append(top(), items);
      break;
    }
    case 's': {
      const NodeId value = pop(), key = pop();
      set_items(top(), std::array{key, value});
      break;
    }
    case 'u': {
      const auto items = pop_to_mark();
      set_items(top(), items);
      break;
    }
    case '\x90': {
      const auto items = pop_to_mark();
      add_to_set(top(), items);
      break;
    }

    case 'q':
      put(take_number<std::uint8_t>("memo number"));
      break;
    case 'r':
      put(take_number<std::uint32_t>("memo number"));
      break;
    case '\x94':
      put(memo_.size());
      break;
    case 'h':
      get(take_number<std::uint8_t>("memo number"));
      break;
    case 'j':
      get(take_number<std::uint32_t>("memo number"));
      break;

    case 'c': {
      const auto module = take_line();
      push_global(module, take_line());
      break;
    }
    case '\x93': {
      const NodeId name = pop(), module = pop();
      push_global(text(module), text(name));
      break;
    }
    case 'R': {
      const NodeId args = pop(), callable = pop();
      push(call(callable, args));
      break;
    }
    case '\x81': {  // NEWOBJ
      const NodeId args = pop(), callable = pop();
      push(call(callable, args));
      break;
    }
    case 'b': {
      const NodeId state = pop();
      build(top(), state);
      break;
    }
    case 'Q':
      push(persistent(pop()));
      break;
    default:
      return false;
  }
  return true;
}

bool Unpickler::step_protocol_0(char opcode) {
  const auto memo_number = [this] {
    const auto line = take_line();
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc{} || stop != line.data() + line.size()) corrupt("a memo number that is none");
    return number;
  };
  switch (opcode) {
    case 'I': {
      const auto line = take_line();
      if (line == "00" || line == "01") {
        push({.kind = Kind::Bool, .integer = line == "01"});
      } else {
        push_decimal(line);
      }
      break;
    }
    case 'L': {
      auto line = take_line();
      if (line.ends_with('L')) line.remove_suffix(1);
      push_decimal(line);
      break;
    }
    case 'F': {
      const auto line = take_line();
      double number = 0;
      const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
      const bool is_fine = error == std::errc{} || error == std::errc::result_out_of_range;
      if (!is_fine || stop != line.data() + line.size()) corrupt("a float that is none");
      push({.kind = Kind::Float, .number = number});
      break;
    }
    case 'S': {
      auto decoded = unescape_python_string(take_line());
      if (!decoded) corrupt("a string without quotes, or with a bad escape");
      auto owner = std::make_shared<const std::string>(std::move(*decoded));
      push_text(is_ascii(*owner) ? Kind::Text : Kind::Bytes, *owner, owner);
      break;
    }
    case 'V': {
      auto decoded = unescape_raw_unicode(take_line());
      if (!decoded) corrupt("a text with a bad escape");
      auto owner = std::make_shared<const std::string>(std::move(*decoded));
      push_text(Kind::Text, *owner, owner);
      break;
    }
    case 'p':
      put(memo_number());
      break;
    case 'g':
      get(memo_number());
      break;
    case 'P':
      unsupported("a persistent id as text");
    default:
      return false;
  }
  return true;
}

}  // namespace tenscope
