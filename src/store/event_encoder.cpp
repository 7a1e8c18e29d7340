#include "store/event_encoder.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "core/json_writer.hpp"
#include "store/shards.hpp"
#include "store/sketch_text.hpp"

namespace tenscope::store {
namespace {

constexpr std::size_t kKeptCapacity = 1 << 20;  // what a buffer may hold between two events
constexpr std::size_t kMaxKeyName = 4096;       // a longer name is cut in a segment's header; the journal has it whole

// Whether one of eight bytes is below 0x20, above 0x7e, a quote or a backslash.
bool has_special(std::uint64_t word) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  const auto has_zero = [](std::uint64_t w) { return (w - kOnes) & ~w & kHigh; };
  const auto below_space = (word - kOnes * 0x20) & ~word & kHigh;
  return (below_space | (word & kHigh) | has_zero(word ^ (kOnes * '"')) | has_zero(word ^ (kOnes * '\\')) |
          has_zero(word ^ (kOnes * 0x7F))) != 0;
}

void put_member(TextBuffer& out, std::string_view opening, std::string_view text) {
  if (text.empty()) return;
  out.put(opening);
  out.put_escaped(text);
  out.put('"');
}

// The probe's own JSON goes in as it is, but must not break the line.
void put_json(TextBuffer& out, std::string_view json) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  if (std::none_of(json.begin(), json.end(), is_control)) return out.put(json);
  for (const char c : json) out.put(is_control(c) ? ' ' : c);
}

void put_meta(TextBuffer& out, const EventInfo& info) {
  if (info.meta.empty() && info.inputs.empty() && info.shard == nullptr) return;
  out.put(R"(,"meta":)");
  if (info.inputs.empty() && info.shard == nullptr) return put_json(out, info.meta);
  out.put('{');
  if (!info.inputs.empty()) {
    std::string_view separator = R"("inputs":[")";
    for (const std::string_view input : info.inputs) {
      out.put(std::exchange(separator, R"(",")"));
      out.put_escaped(input);
    }
    out.put(R"("])");
  }
  if (info.shard != nullptr) {
    out.put(info.inputs.empty() ? R"("shard":)" : R"(,"shard":)");
    out.put(shard_json(*info.shard));
  }
  const auto brace = info.meta.find('{');
  const std::string_view rest = brace == std::string_view::npos ? "}" : info.meta.substr(brace + 1);
  if (const auto next = rest.find_first_not_of(" \t\r\n"); next != rest.npos && rest[next] != '}') out.put(',');
  put_json(out, rest);
}

void put_info(TextBuffer& out, const EventInfo& info, std::uint64_t thread) {
  out.put(R"(,"th":)");
  out.put_uint(thread);
  out.put(R"(,"kind":")");
  out.put(to_string(info.kind));
  out.put('"');
  put_member(out, R"(,"name":")", info.name);
  out.put(R"(,"step":)");
  out.put_int(info.step);
  if (info.call >= 0) {
    out.put(R"(,"call":)");
    out.put_int(info.call);
  }
  put_member(out, R"(,"site":")", info.site);
  put_member(out, R"(,"scope":")", info.scope);
  put_member(out, R"(,"io":")", info.io.text());
  put_member(out, R"(,"phase":")", info.phase.text());
  put_member(out, R"(,"root":")", info.root);
  put_member(out, R"(,"class":")", info.cls);
  put_member(out, R"(,"task":")", info.task);
  put_meta(out, info);
}

void put_number(TextBuffer& out, double value) {
  if (std::isfinite(value)) return out.put_double(value);
  out.put(std::isnan(value) ? R"({"float":"nan"})" : value > 0 ? R"({"float":"inf"})" : R"({"float":"-inf"})");
}

void put_stat(TextBuffer& out, std::string_view opening, double value) {
  out.put(opening);
  if (std::isnan(value)) return out.put("null");
  // A whole number is most often the minimum or maximum of an integer or bool tensor.
  if (std::abs(value) < 1e15 && std::nearbyint(value) == value && !(value == 0 && std::signbit(value))) {
    return out.put_int(static_cast<std::int64_t>(value));
  }
  put_number(out, value);
}

void put_count(TextBuffer& out, std::string_view opening, std::int64_t count) {
  if (count == 0) return;
  out.put(opening);
  out.put_int(count);
}

void put_stats(TextBuffer& out, DType dtype, const Stats& stats) {
  const bool has_exact = (dtype == DType::I64 || dtype == DType::U64) && !std::isnan(stats.min);
  const auto put_exact = [&](std::int64_t value) {
    dtype == DType::U64 ? out.put_uint(static_cast<std::uint64_t>(value)) : out.put_int(value);
  };
  out.put(R"(,"stats":{)");
  if (has_exact) {
    out.put(R"("min":)");
    put_exact(stats.exact_min);
    out.put(R"(,"max":)");
    put_exact(stats.exact_max);
  } else {
    put_stat(out, R"("min":)", stats.min);
    put_stat(out, R"(,"max":)", stats.max);
  }
  put_stat(out, R"(,"mean":)", stats.mean);
  put_stat(out, R"(,"std":)", stats.std);
  put_stat(out, R"(,"l2":)", stats.l2);
  put_stat(out, R"(,"absmax":)", stats.abs_max);
  put_count(out, R"(,"nan":)", stats.nan);
  put_count(out, R"(,"posinf":)", stats.pos_inf);
  put_count(out, R"(,"neginf":)", stats.neg_inf);
  put_count(out, R"(,"zero":)", stats.zero);
  put_count(out, R"(,"subnormal":)", stats.subnormal);
  out.put('}');
}

void put_sketch_member(TextBuffer& out, DType dtype, const TensorContent& content) {
  if (content.sketch) {
    out.put(R"(,"sketch":")");
    put_sketch(out, dtype, *content.sketch);
    out.put('"');
  } else if (content.sketch_of) {
    out.put(R"(,"sketch":)");
    out.put_uint(*content.sketch_of);
  }
}

void put_shape(TextBuffer& out, std::span<const std::int64_t> shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) out.put(',');
    out.put_int(shape[axis]);
  }
}

struct ValueEncoder {
  TextBuffer& out;
  void operator()(std::monostate) const {}
  void operator()(std::nullptr_t) const { out.put(R"(,"value":null)"); }
  void operator()(bool value) const { out.put(value ? R"(,"value":true)" : R"(,"value":false)"); }
  void operator()(std::int64_t value) const {
    out.put(R"(,"value":)");
    out.put_int(value);
  }
  void operator()(double value) const {
    out.put(R"(,"value":)");
    const auto start = out.size();
    put_number(out, value);
    if (out.view().substr(start).find_first_of(".e{") == std::string_view::npos) out.put(".0");
  }
  void operator()(const BigInt& value) const {
    out.put(R"(,"value":{"int":")");
    out.put_escaped(value.digits);
    out.put(R"("})");
  }
  void operator()(const std::string& value) const {
    out.put(R"(,"value":")");
    out.put_escaped(value);
    out.put('"');
  }
  void operator()(const TensorRecord&) const {}
};

}  // namespace

void TextBuffer::clear() noexcept {
  size_ = 0;
  if (capacity_ > kKeptCapacity) {
    data_.reset();
    capacity_ = 0;
  }
}

inline char* TextBuffer::room(std::size_t bytes) {
  if (capacity_ - size_ < bytes) [[unlikely]]
    grow(bytes);
  return data_.get() + size_;
}

void TextBuffer::grow(std::size_t bytes) {
  const std::size_t capacity = std::max<std::size_t>({1024, capacity_ * 2, size_ + bytes});
  auto data = std::make_unique_for_overwrite<char[]>(capacity);
  if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
  data_ = std::move(data);
  capacity_ = capacity;
}

void TextBuffer::put(std::string_view text) {
  char* to = room(text.size());
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  size_ += text.size();
}

void TextBuffer::put(char c) {
  *room(1) = c;
  ++size_;
}

void TextBuffer::put_int(std::int64_t value) {
  char* to = room(24);
  size_ += static_cast<std::size_t>(std::to_chars(to, to + 24, value).ptr - to);
}

void TextBuffer::put_uint(std::uint64_t value) {
  char* to = room(24);
  size_ += static_cast<std::size_t>(std::to_chars(to, to + 24, value).ptr - to);
}

void TextBuffer::put_double(double value) {
  char* to = room(32);
  size_ += static_cast<std::size_t>(fmt::format_to(to, FMT_COMPILE("{}"), value) - to);
}

void TextBuffer::put_hex(std::uint64_t value) {
  char* to = room(16);
  for (int digit = 15; digit >= 0; --digit, value >>= 4) to[digit] = "0123456789abcdef"[value & 15];
  size_ += 16;
}

void TextBuffer::put_escaped(std::string_view text) {
  char* const start = room(text.size() + 8);
  char* to = start;
  std::size_t done = 0;
  for (; text.size() - done >= 8; done += 8, to += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + done, 8);
    if (has_special(word)) break;
    std::memcpy(to, &word, 8);
  }
  for (; done < text.size(); ++done) {
    const auto c = static_cast<unsigned char>(text[done]);
    if (c < 0x20 || c > 0x7E || c == '"' || c == '\\') break;
    *to++ = static_cast<char>(c);
  }
  size_ += static_cast<std::size_t>(to - start);
  if (done == text.size()) return;
  std::string quoted;
  append_json_text(quoted, text.substr(done));
  put(std::string_view(quoted).substr(1, quoted.size() - 2));
}

void encode_event(TextBuffer& out, const EventInfo& info, std::uint64_t thread, const EventValue& value) {
  put_info(out, info, thread);
  std::visit(ValueEncoder{out}, value);
}

void encode_event(TextBuffer& out, const EventInfo& info, std::uint64_t thread, const TensorView& tensor,
                  const TensorContent& content) {
  put_info(out, info, thread);
  out.put(R"(,"tensor":{"dtype":")");
  out.put(to_string(tensor.dtype));
  out.put(R"(","shape":[)");
  put_shape(out, tensor.shape);
  out.put(']');
  if (tensor.device != "cpu") put_member(out, R"(,"device":")", tensor.device);
  out.put(R"(,"fp":")");
  out.put_hex(content.summary.fingerprint.high);
  out.put_hex(content.summary.fingerprint.low);
  out.put('"');
  put_stats(out, tensor.dtype, content.summary.stats);
  put_sketch_member(out, tensor.dtype, content);
  if (const auto& blob = content.blob) {
    out.put(R"(,"at":[)");
    out.put_int(blob->segment);
    out.put(',');
    out.put_uint(blob->offset);
    out.put(',');
    out.put_uint(blob->size_bytes);
    out.put(']');
  } else if (!info.file.empty()) {
    put_member(out, R"(,"file":")", info.file);
  } else if (content.is_cut) {
    put_member(out, R"(,"cut":")", kBudgetNote);
  }
  out.put('}');
}

void encode_header_entry(HeaderEntry& out, std::string_view name, std::int64_t step, std::int64_t call, DType dtype,
                         std::span<const std::int64_t> shape) {
  out.key.clear();
  out.key.put('"');
  out.key.put_escaped(name.substr(0, kMaxKeyName));
  out.key.put('@');
  out.key.put_int(step);
  out.key.put('#');
  out.key.put_int(call);
  out.rest.clear();
  out.rest.put(R"(":{"dtype":")");
  out.rest.put(dtype == DType::C128 ? safetensors_name(DType::F64) : safetensors_name(dtype));
  out.rest.put(R"(","shape":[)");
  put_shape(out.rest, shape);
  if (dtype == DType::C128) out.rest.put(shape.empty() ? "2" : ",2");
  out.rest.put(R"(],"data_offsets":[)");
}

}  // namespace tenscope::store
