#include "format/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace tenscope {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxHeaderBytes = 1 << 20;

struct Code {
  std::string_view code;
  DType dtype;
};
constexpr std::array<Code, 14> kCodes{{{"f8", DType::F64},
                                       {"f4", DType::F32},
                                       {"f2", DType::F16},
                                       {"i8", DType::I64},
                                       {"i4", DType::I32},
                                       {"i2", DType::I16},
                                       {"i1", DType::I8},
                                       {"u8", DType::U64},
                                       {"u4", DType::U32},
                                       {"u2", DType::U16},
                                       {"u1", DType::U8},
                                       {"b1", DType::Bool},
                                       {"c8", DType::C64},
                                       {"c16", DType::C128}}};

// The header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  HeaderParser(const Source& source, std::uint64_t begin, std::uint64_t size)
      : source_(source), text_(source.text(begin, size, "header")), begin_(begin) {}

  Layout parse() {
    std::string_view descr, order;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && descr.empty()) {
        if (peek() != '\'' && peek() != '"') source_.unsupported(at(), "a structured dtype");
        descr = quoted();
      } else if (key == "fortran_order" && order.empty()) {
        order = word();
      } else if (key == "shape" && !has_shape) {
        shape();
        has_shape = true;
      } else {
        source_.corrupt(at(), fmt::format("header with an unknown or repeated key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (descr.empty() || order.empty() || !has_shape)
      source_.corrupt(begin_, "header without descr, fortran_order or shape");
    if (order != "True" && order != "False") source_.corrupt(begin_, fmt::format("fortran_order '{}'", order));
    const auto dtype = parse_numpy_dtype(descr);
    if (!dtype) source_.unsupported(begin_, fmt::format("dtype '{}'", descr));
    layout_.dtype = dtype->dtype;
    layout_.is_big_endian = dtype->is_big_endian;
    layout_.is_fortran = order == "True";
    skip_spaces();
    if (position_ != text_.size()) source_.corrupt(at(), "text after the header");
    return std::move(layout_);
  }

 private:
  std::uint64_t at() const { return begin_ + position_; }
  void skip_spaces() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }
  char peek() {
    skip_spaces();
    if (position_ == text_.size()) source_.corrupt(at(), "header that ends too early");
    return text_[position_];
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) source_.corrupt(at(), fmt::format("header where '{}' was expected", c));
  }
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') source_.corrupt(at(), "header where quoted text was expected");
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == text_.npos) source_.corrupt(at(), "header with text that does not end");
    const auto result = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return result;
  }
  std::string_view word() {
    peek();
    const std::size_t begin = position_;
    while (position_ < text_.size() && text_[position_] >= 'A' && text_[position_] <= 'z') ++position_;
    return text_.substr(begin, position_ - begin);
  }
  void shape() {
    expect('(');
    while (!accept(')')) {
      peek();
      std::int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(text_.data() + position_, end, size);
      if (error != std::errc{}) source_.corrupt(at(), "shape with something else than integers");
      position_ = static_cast<std::size_t>(stop - text_.data());
      if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // Python 2 wrote 3L
      layout_.shape.push_back(size);
      if (layout_.shape.size() > kMaxRank) source_.corrupt(at(), fmt::format("rank above {}", kMaxRank));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  const Source& source_;
  std::string_view text_;
  std::uint64_t begin_;
  std::size_t position_ = 0;
  Layout layout_;
};

}  // namespace

Tensor read_npy(const Source& source, Budget& budget) {
  if (source.text(0, kMagic.size(), "magic") != kMagic) source.corrupt(0, "no .npy magic at its start");
  const auto version = source.little<std::uint8_t>(6, "version");
  if (version < 1 || version > 3) source.fail(ErrorCode::Version, 6, fmt::format("version {} is not known", version));
  const std::uint64_t header_bytes = version == 1 ? source.little<std::uint16_t>(8, "header length")
                                                  : source.little<std::uint32_t>(8, "header length");
  const std::uint64_t header_at = version == 1 ? 10 : 12;
  if (header_bytes > kMaxHeaderBytes) source.corrupt(8, fmt::format("a header of {} bytes", header_bytes));

  Layout layout = HeaderParser(source, header_at, header_bytes).parse();
  return make_tensor(source, header_at + header_bytes, std::move(layout), budget);
}

bool is_fortran_order(const TensorView& tensor) noexcept {
  if (tensor.strides.empty() || is_c_order(tensor)) return false;
  std::int64_t expected = 1;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

TensorView npy_elements(const TensorView& tensor, std::vector<std::int64_t>& shape) {
  if (!is_fortran_order(tensor)) return tensor;
  shape.assign(tensor.shape.begin(), tensor.shape.end());
  std::reverse(shape.begin(), shape.end());
  TensorView transposed = tensor;
  transposed.shape = shape;
  transposed.strides = {};
  return transposed;
}

std::string npy_header(const TensorView& tensor) {
  std::string sizes;
  for (auto size : tensor.shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (tensor.shape.size() == 1) sizes += ',';
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}",
                                   numpy_dtype_code(tensor.dtype), is_fortran_order(tensor) ? "True" : "False", sizes);
  const std::size_t prefix = kMagic.size() + 2 + 2;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::string result(kMagic);
  result += '\1';
  result += '\0';
  result += static_cast<char>(header.size() & 0xff);
  result += static_cast<char>(header.size() >> 8);
  return result + header;
}

std::optional<NumpyDType> parse_numpy_dtype(std::string_view code) {
  if (code == "?" || code == "|b1" || code == "bool") return NumpyDType{DType::Bool, false};
  bool is_big_endian = false;
  if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
    is_big_endian = code[0] == '>';
    code.remove_prefix(1);
  }
  for (auto& known : kCodes) {
    if (known.code == code) return NumpyDType{known.dtype, is_big_endian};
  }
  return std::nullopt;
}

std::string numpy_dtype_code(DType dtype) {
  for (auto& known : kCodes) {
    if (known.dtype == dtype) return (item_size(dtype) == 1 ? "|" : "<") + std::string(known.code);
  }
  throw Error(ErrorCode::Unsupported,
              fmt::format("cannot write for NumPy: it has no {}; .pt and .safetensors have", to_string(dtype)));
}

}  // namespace tenscope
