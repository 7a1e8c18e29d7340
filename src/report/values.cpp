#include "report/values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <ctime>
#include <vector>

#include "kernels/element.hpp"
#include "report/decimal.hpp"

namespace tenscope::report {
namespace {

bool has_exact_extremes(DType dtype) { return dtype == DType::I64 || dtype == DType::U64; }

std::string shortened(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  std::size_t cut = longest;
  while (cut > 0 && (text[cut] & 0xC0) == 0x80) --cut;
  return std::string(text.substr(0, cut)) + "…";
}

// A text in one line, as Python would quote it.
std::string in_quotes(std::string_view text) {
  std::string json;
  append_json_text(json, text);
  if (text.find('\'') != text.npos) return json;
  std::string result = "'" + json.substr(1, json.size() - 2) + "'";
  for (std::size_t at = 0; (at = result.find("\\\"", at)) != result.npos;) result.erase(at, 1);
  return result;
}

void write_statistic(JsonWriter& json, std::string_view key, double value) {
  json.key(key);
  std::isnan(value) ? json.null() : json.number(value);
}

struct ValueText {
  std::size_t longest;
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(std::nullptr_t) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return scalar_text(value, FloatWidth::Double); }
  std::string operator()(const BigInt& value) const { return shortened(value.digits, longest); }
  std::string operator()(const std::string& value) const { return in_quotes(shortened(value, longest)); }
  std::string operator()(const TensorRecord& value) const {
    return fmt::format("{}{}", to_string(value.dtype), shape_text(value.shape));
  }
};

struct ValueJson {
  JsonWriter& json;
  void operator()(std::monostate) const { json.null(); }
  void operator()(std::nullptr_t) const { json.null(); }
  void operator()(bool value) const { json.boolean(value); }
  void operator()(std::int64_t value) const { json.number(value); }
  void operator()(double value) const { json.number(value); }
  void operator()(const BigInt& value) const { json.begin_object().key("int").text(value.digits).end_object(); }
  void operator()(const std::string& value) const { json.text(value); }
  void operator()(const TensorRecord& value) const { write_tensor(json, value); }
};

template <class T>
void write_element(JsonWriter& json, const std::byte* bytes) {
  if constexpr (kernels::kIsComplex<T>) {
    const T element = kernels::load<T>(bytes);
    json.begin_array()
        .number(static_cast<double>(element.real()))
        .number(static_cast<double>(element.imag()))
        .end_array();
  } else if constexpr (std::is_same_v<T, kernels::Bool>) {
    json.boolean(*bytes != std::byte{0});
  } else if constexpr (std::is_unsigned_v<T>) {
    json.number(static_cast<std::uint64_t>(kernels::load<T>(bytes)));
  } else if constexpr (std::is_integral_v<T>) {
    json.number(static_cast<std::int64_t>(kernels::load<T>(bytes)));
  } else {
    json.number(kernels::to_double(kernels::load<T>(bytes)));
  }
}

template <class T>
void write_axis(JsonWriter& json, const TensorView& view, std::span<const std::int64_t> strides, const std::byte* bytes,
                std::size_t axis) {
  if (axis == view.shape.size()) return write_element<T>(json, bytes);
  json.begin_array();
  for (std::int64_t i = 0; i < view.shape[axis]; ++i) {
    write_axis<T>(json, view, strides, bytes + i * strides[axis] * static_cast<std::int64_t>(sizeof(T)), axis + 1);
  }
  json.end_array();
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string number_text(double value) { return std::isnan(value) ? "-" : fmt::format("{:.6g}", value); }

std::string extreme_text(const TensorRecord& tensor, bool of_max) {
  const Stats& stats = tensor.stats;
  const double value = of_max ? stats.max : stats.min;
  const std::int64_t exact = of_max ? stats.exact_max : stats.exact_min;
  if (std::isnan(value) || !has_exact_extremes(tensor.dtype)) return number_text(value);
  return tensor.dtype == DType::U64 ? std::to_string(static_cast<std::uint64_t>(exact)) : std::to_string(exact);
}

std::string value_text(const EventValue& value, std::size_t longest) { return std::visit(ValueText{longest}, value); }

std::string time_text(std::int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return std::to_string(time_ns);
  std::array<char, 32> buffer{};
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S", &local);
  return buffer.data();
}

std::string duration_text(std::int64_t duration_ns) {
  const auto ns = static_cast<double>(duration_ns);
  if (duration_ns < 1000) return fmt::format("{} ns", duration_ns);
  if (ns < 1e6) return fmt::format("{:.3g} µs", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3g} ms", ns / 1e6);
  if (ns < 60e9) return fmt::format("{:.3g} s", ns / 1e9);
  const std::int64_t seconds = duration_ns / 1'000'000'000;
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

void write_stats(JsonWriter& json, const TensorRecord& tensor) {
  const Stats& stats = tensor.stats;
  json.begin_object().key("count").number(stats.count);
  if (has_exact_extremes(tensor.dtype) && !std::isnan(stats.min)) {
    json.key("min").raw(extreme_text(tensor, false)).key("max").raw(extreme_text(tensor, true));
  } else {
    write_statistic(json, "min", stats.min);
    write_statistic(json, "max", stats.max);
  }
  write_statistic(json, "mean", stats.mean);
  write_statistic(json, "std", stats.std);
  write_statistic(json, "l2", stats.l2);
  write_statistic(json, "absmax", stats.abs_max);
  json.key("nan").number(stats.nan).key("posinf").number(stats.pos_inf).key("neginf").number(stats.neg_inf);
  json.key("zero").number(stats.zero).key("subnormal").number(stats.subnormal).end_object();
}

void write_shape(JsonWriter& json, std::span<const std::int64_t> shape) {
  json.begin_array();
  for (const std::int64_t size : shape) json.number(size);
  json.end_array();
}

void write_value(JsonWriter& json, const EventValue& value) { std::visit(ValueJson{json}, value); }

void write_tensor(JsonWriter& json, const TensorRecord& tensor) {
  json.begin_object().key("dtype").text(to_string(tensor.dtype)).key("shape");
  write_shape(json, tensor.shape);
  json.key("device").text(tensor.device).key("fingerprint").text(tensor.fingerprint.hex());
  json.key("bytes_kept").boolean(tensor.has_bytes()).key("stats");
  write_stats(json, tensor);
  json.end_object();
}

void write_elements(JsonWriter& json, const TensorView& view) {
  std::vector<std::int64_t> strides(view.strides.begin(), view.strides.end());
  if (strides.empty()) {
    strides.resize(view.shape.size());
    std::int64_t stride = 1;
    for (std::size_t axis = strides.size(); axis-- > 0; stride *= view.shape[axis]) strides[axis] = stride;
  }
  kernels::visit_dtype(view.dtype, [&](auto tag) {
    write_axis<decltype(tag)>(json, view, strides, static_cast<const std::byte*>(view.data), 0);
  });
}

std::string shell_word(std::string_view text) {
  const bool is_plain =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:-") ==
      std::string_view::npos;
  if (is_plain && !text.empty()) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string meta_text(simdjson::dom::parser& parser, const std::string& meta, std::string_view key) {
  simdjson::dom::element found;
  if (meta.empty() || parser.parse(meta)[key].get(found)) return "";
  std::string_view text;
  if (!found.get_string().get(text)) return std::string(text);
  std::string_view special;
  if (!found["float"].get_string().get(special)) return std::string(special);
  return found.is_null() ? "None" : simdjson::minify(found);
}

}  // namespace tenscope::report
