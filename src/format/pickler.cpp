#include "format/pickler.hpp"

#include <fmt/format.h>

#include <bit>
#include <complex>

#include "format/decimal.hpp"
#include "format/npy.hpp"
#include "format/pickle_globals.hpp"
#include "format/unescape.hpp"
#include "tenscope/error.hpp"

namespace tenscope {

std::string Pickler::pickle(const Value& root) {
  out_ = flavor_ == Flavor::TorchZip ? "\x80\x02" : "\x80\x04";
  value(root);
  out_ += '.';
  return out_;
}

void Pickler::pickle_to(OutputFile& file, const Value& root) {
  pickle(root);
  file.reserve(out_.size() + plan_.size_bytes());
  std::size_t at = 0;
  for (auto& [place, view] : elements_) {
    file.write(std::string_view(out_).substr(at, place - at));
    file.write_elements(view);
    at = place;
  }
  file.write(std::string_view(out_).substr(at));
}

template <class T>
void Pickler::number(T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}

void Pickler::put(std::uint32_t& memo) {
  memo = memo_count_++;
  if (memo < 256) {
    out_ += 'q';
    number(static_cast<std::uint8_t>(memo));
  } else {
    out_ += 'r';
    number(memo);
  }
}

void Pickler::get(std::uint32_t memo) {
  if (memo < 256) {
    out_ += 'h';
    number(static_cast<std::uint8_t>(memo));
  } else {
    out_ += 'j';
    number(memo);
  }
}

void Pickler::value(const Value& value) {
  const void* identity = value.identity();
  if (!identity) return plain_value(value);
  if (const auto known = memo_.find(identity); known != memo_.end()) return get(known->second);
  plain_value(value);
  put(memo_[identity]);
}

void Pickler::plain_value(const Value& value) {
  switch (value.kind()) {
    case ValueKind::None:
      out_ += 'N';
      return;
    case ValueKind::Bool:
      out_ += value.get<bool>() ? '\x88' : '\x89';
      return;
    case ValueKind::Int:
      return integer(value.get<std::int64_t>());
    case ValueKind::BigInt:
      return big_integer(value.get<BigInt>());
    case ValueKind::Float:
      return floating(value.get<double>());
    case ValueKind::Complex: {
      const auto number = value.get<std::complex<double>>();
      global("builtins.complex");
      floating(number.real());
      floating(number.imag());
      out_ += "\x86R";
      return;
    }
    case ValueKind::Text:
      return text(value.get<std::string>());
    case ValueKind::Bytes:
      return bytes(value.get<Bytes>());
    case ValueKind::Tensor:
      return tensor(value.get<Tensor>());
    case ValueKind::List:
      return sequence(value.get<List>().items, "]", "e");
    case ValueKind::Tuple:
      return tuple(value.get<Tuple>().items);
    case ValueKind::Dict:
      return dict(value.get<Dict>());
    case ValueKind::Set:
      return set(value.get<Set>());
    case ValueKind::Object:
      return object(value.get<Object>());
  }
}

void Pickler::integer(std::int64_t value) {
  if (value >= 0 && value < 256) {
    out_ += 'K';
    number(static_cast<std::uint8_t>(value));
  } else if (value >= 0 && value < 65536) {
    out_ += 'M';
    number(static_cast<std::uint16_t>(value));
  } else if (value == static_cast<std::int32_t>(value)) {
    out_ += 'J';
    number(static_cast<std::int32_t>(value));
  } else {
    out_ += "\x8a\x08";
    number(value);
  }
}

void Pickler::big_integer(const BigInt& value) {
  const std::string bytes = bytes_of_decimal(value.digits);
  if (bytes.size() < 256) {
    out_ += '\x8a';
    number(static_cast<std::uint8_t>(bytes.size()));
  } else {
    out_ += '\x8b';
    number(static_cast<std::int32_t>(bytes.size()));
  }
  out_ += bytes;
}

void Pickler::floating(double value) {
  out_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
}

void Pickler::text(std::string_view text) {
  if (text.size() <= 0xffffffff) {
    out_ += 'X';
    number(static_cast<std::uint32_t>(text.size()));
  } else {
    out_ += '\x8d';
    number(static_cast<std::uint64_t>(text.size()));
  }
  out_ += text;
}

void Pickler::bytes(const Bytes& bytes) {
  const auto raw = [this](std::string_view data) {
    out_ += data.size() <= 0xffffffff ? 'B' : '\x8e';
    if (data.size() <= 0xffffffff) {
      number(static_cast<std::uint32_t>(data.size()));
    } else {
      number(static_cast<std::uint64_t>(data.size()));
    }
    out_ += data;
  };
  // torch.load(weights_only=True) has no opcode for bytes: they are Latin-1 text to it.
  const auto encoded = [this](std::string_view data) {
    std::string utf8;
    for (const char byte : data) {
      const auto code = static_cast<unsigned char>(byte);
      if (code >= 0x80) utf8 += static_cast<char>(0xc0 | (code >> 6));
      utf8 += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f));
    }
    text(utf8);
    text("latin1");
    out_ += '\x86';
  };
  if (bytes.is_mutable) {
    global("builtins.bytearray");
    if (flavor_ == Flavor::Plain) {
      raw(bytes.data);
      out_ += '\x85';
    } else {
      encoded(bytes.data);
    }
    out_ += 'R';
  } else if (flavor_ == Flavor::Plain) {
    raw(bytes.data);
  } else {
    global("_codecs.encode");
    encoded(bytes.data);
    out_ += 'R';
  }
}

void Pickler::global(std::string_view type) {
  const auto [place, is_new] = global_memo_.emplace(std::string(type), 0);
  if (!is_new) return get(place->second);
  const std::size_t dot = type.rfind('.');
  out_ += 'c';
  out_ += type.substr(0, dot);
  out_ += '\n';
  out_ += type.substr(dot + 1);
  out_ += '\n';
  put(place->second);
}

void Pickler::sequence(const std::vector<Value>& items, std::string_view empty, std::string_view append) {
  out_ += empty;
  if (items.empty()) return;
  out_ += '(';
  for (auto& item : items) value(item);
  out_ += append;
}

void Pickler::tuple(const std::vector<Value>& items) {
  if (items.empty()) {
    out_ += ')';
    return;
  }
  if (items.size() > 3) out_ += '(';
  for (auto& item : items) value(item);
  out_ += items.size() > 3 ? 't' : static_cast<char>(0x84 + items.size());
}

void Pickler::dict(const Dict& dict) {
  if (dict.is_ordered_dict) {
    global("collections.OrderedDict");
    out_ += ")R";
  } else {
    out_ += '}';
  }
  if (!dict.entries.empty()) {
    out_ += '(';
    for (auto& [key, item] : dict.entries) {
      value(key);
      value(item);
    }
    out_ += 'u';
  }
  if (dict.attributes) {
    value(*dict.attributes);
    out_ += 'b';
  }
}

void Pickler::set(const Set& set) {
  global(set.is_frozen ? "builtins.frozenset" : "builtins.set");
  sequence(set.items, "]", "e");
  out_ += "\x85R";
}

void Pickler::object(const Object& object) {
  if (!find_global(std::string_view(object.type).substr(0, object.type.rfind('.')),
                   std::string_view(object.type).substr(object.type.rfind('.') + 1))) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot write: '{}' is not on the list of what a file may name", object.type));
  }
  global(object.type);
  if (!object.args) return;
  value(*object.args);
  out_ += 'R';
  if (object.state) {
    value(*object.state);
    out_ += 'b';
  }
}

void Pickler::sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<Value> items(sizes.begin(), sizes.end());
  tuple(items);
}

void Pickler::elements(const TensorView& view) { elements_.emplace_back(out_.size(), view); }

void Pickler::tensor(const Tensor& tensor) {
  const bool is_numpy = tensor.origin == TensorOrigin::Numpy || tensor.origin == TensorOrigin::NumpyScalar;
  if (flavor_ == Flavor::Plain && is_numpy) return numpy_array(tensor);
  if (tensor.origin != TensorOrigin::TorchParameter) return torch_tensor(tensor);
  global("torch._utils._rebuild_parameter");
  torch_tensor(tensor);
  out_ += tensor.requires_grad ? '\x88' : '\x89';
  global("collections.OrderedDict");
  out_ += ")R\x87R";
}

void Pickler::numpy_array(const Tensor& tensor) {
  const auto dtype = [&] {
    global("numpy.dtype");
    text(numpy_dtype_code(tensor.dtype));
    out_ += "\x85R";
  };
  const auto data = [&] {
    out_ += '\x8e';
    number(static_cast<std::uint64_t>(size_bytes(tensor.view())));
    elements(tensor.view());
  };
  if (tensor.origin == TensorOrigin::NumpyScalar && tensor.shape.empty()) {
    global("numpy.core.multiarray.scalar");
    dtype();
    data();
    out_ += "\x86R";
    return;
  }
  global("numpy.core.multiarray._reconstruct");
  global("numpy.ndarray");
  integer(0);
  out_ +=
      "\x85"
      "C\x01"
      "b\x87R";
  // BUILD with (version, shape, dtype, is it in Fortran order, data)
  out_ += "(K\x01";
  sizes(tensor.shape);
  dtype();
  out_ += '\x89';
  data();
  out_ += "tb";
}

void Pickler::torch_tensor(const Tensor& tensor) {
  const auto& place = plan_.place(tensor);
  const auto& planned = plan_.storages()[place.storage];
  const bool is_untyped = planned.is_untyped || torch_storage_name(tensor.dtype).empty();
  global(is_untyped ? "torch._utils._rebuild_tensor_v3" : "torch._utils._rebuild_tensor_v2");
  out_ += '(';
  storage(place.storage, is_untyped);
  integer(place.offset);
  sizes(tensor.shape);
  sizes(place.strides);
  const bool is_parameter = tensor.origin == TensorOrigin::TorchParameter;
  out_ += tensor.requires_grad && !is_parameter ? '\x88' : '\x89';
  global("collections.OrderedDict");
  out_ += ")R";
  if (is_untyped) global("torch." + std::string(to_string(tensor.dtype)));
  out_ += "tR";
}

void Pickler::storage(std::size_t index, bool is_untyped) {
  if (const auto known = storage_memo_.find(index); known != storage_memo_.end()) return get(known->second);
  if (flavor_ == Flavor::Plain) {
    embedded_storage(index, is_untyped);
  } else {
    const auto& planned = plan_.storages()[index];
    const std::string key = fmt::format("{}", index);
    out_ += '(';
    text("storage");
    global(is_untyped ? "torch.storage.UntypedStorage" : "torch." + std::string(torch_storage_name(planned.dtype)));
    text(key);
    text("cpu");
    integer(planned.size / static_cast<std::int64_t>(is_untyped ? 1 : item_size(planned.dtype)));
    out_ += "tQ";
  }
  put(storage_memo_[index]);
}

// torch.storage._load_from_bytes of a torch stream that holds one storage. torch does not read untyped ones so: those
// are given as bytes, which _rebuild_tensor_v3 takes as well.
void Pickler::embedded_storage(std::size_t index, bool is_untyped) {
  const auto& planned = plan_.storages()[index];
  const DType dtype = is_untyped ? DType::U8 : planned.dtype;
  const std::int64_t count = planned.size / static_cast<std::int64_t>(item_size(dtype));
  global("torch.storage._load_from_bytes");

  // The stream's head is a pickle of its own: made aside, as its memo numbers and length are its own.
  std::string outer = std::exchange(out_, {});
  out_ += std::string_view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  out_ += std::string_view("\x80\x02M\xe9\x03.", 6);
  out_ += "\x80\x02}(";
  text("protocol_version");
  integer(1001);
  text("little_endian");
  out_ += '\x88';
  text("type_sizes");
  out_ += "}(";
  for (auto& [name, size] : {std::pair("short", 2), {"int", 4}, {"long", 4}}) {
    text(name);
    integer(size);
  }
  out_ += "uu.\x80\x02(";
  text("storage");
  out_ += fmt::format("ctorch\n{}\n", torch_storage_name(dtype));
  text("0");
  text("cpu");
  integer(count);
  out_ += "NtQ.\x80\x02](";
  text("0");
  out_ += "e.";
  number(count);
  const std::string head = std::exchange(out_, std::move(outer));

  out_ += '\x8e';
  number(static_cast<std::uint64_t>(head.size()) + static_cast<std::uint64_t>(planned.size));
  out_ += head;
  elements(planned.view());
  out_ += "\x85R";
}

}  // namespace tenscope
