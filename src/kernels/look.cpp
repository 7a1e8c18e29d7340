#include "kernels/look.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/element.hpp"
#include "tenscope/error.hpp"

namespace tenscope::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::size_t index(DType dtype) { return static_cast<std::size_t>(dtype); }
bool is_complex(DType dtype) { return kind_of(dtype) == DTypeKind::Complex; }
bool is_wide(DType dtype) { return dtype == DType::I64 || dtype == DType::U64 || is_complex(dtype); }

double magnitude(long double real, long double imag) {
  if (std::isnan(real) || std::isnan(imag)) return kNaN;
  return static_cast<double>(std::hypot(real, imag));
}

// `parts` are the components of count numbers; complex64's squares neither overflow nor vanish in double.
void magnitudes(DType dtype, const double* parts, std::int64_t count, double* out) {
  if (dtype == DType::C64) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = std::sqrt(parts[2 * i] * parts[2 * i] + parts[2 * i + 1] * parts[2 * i + 1]);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = magnitude(parts[2 * i], parts[2 * i + 1]);
}

struct Number {
  long double real = 0;
  long double imag = 0;
  bool is_nan() const { return std::isnan(real) || std::isnan(imag); }
  bool is_finite() const { return std::isfinite(real) && std::isfinite(imag); }
  bool operator==(const Number&) const = default;
};

Number number(DType dtype, const std::byte* bytes) {
  return visit_dtype(dtype, [&]<class T>(T) -> Number {
    const T x = load<T>(bytes);
    if constexpr (kIsComplex<T>)
      return {x.real(), x.imag()};
    else if constexpr (std::is_integral_v<T>)
      return {static_cast<long double>(x)};
    else
      return {static_cast<long double>(to_double(x))};
  });
}

// A pair that is not finite, or is taken one by one; `ulps` is not asked for unless both are finite.
template <class Ulps>
double pair_value(LookKind kind, double a, double b, Ulps&& ulps) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  switch (kind) {
    case LookKind::Relative:
      return a == 0 || std::isinf(a) ? kInf : std::abs(b - a) / std::abs(a);
    case LookKind::Ulps:
      return std::isinf(a) || std::isinf(b) ? kInf : ulps();
    default:
      return b - a;
  }
}

}  // namespace

Look::Look(const TensorView& view)
    : kind_(LookKind::Value),
      a_(view),
      b_(view),
      a_dtype_(view.dtype),
      b_dtype_(view.dtype),
      compare_(compare_table()),
      table_(look_table()) {}

Look::Look(LookKind kind, const TensorView& a, const TensorView& b)
    : kind_(kind), a_(a), b_(b), a_dtype_(a.dtype), b_dtype_(b.dtype), compare_(compare_table()), table_(look_table()) {
  if (!std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end())) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("tensors cannot be compared element by element: shapes [{}] and [{}] differ",
                            fmt::join(a.shape, ", "), fmt::join(b.shape, ", ")));
  }
  if (kind == LookKind::Ulps && (a.dtype != b.dtype || kind_of(a.dtype) != DTypeKind::Float)) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("units in the last place need two tensors of one floating-point type, and these are {} "
                            "and {}",
                            to_string(a.dtype), to_string(b.dtype)));
  }
}

std::int64_t Look::bytes() const {
  return count() * static_cast<std::int64_t>(a_.item_size() + (is_pair() ? b_.item_size() : 0));
}

double Look::min_normal() const {
  if (is_pair()) return 0;
  return visit_dtype(a_dtype_, []<class T>(T) {
    if constexpr (kIsComplex<T>)
      return kMinNormal<typename T::value_type>;
    else
      return kMinNormal<T>;
  });
}

bool Look::is_integral() const {
  const auto is_whole = [](DType dtype) {
    return kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex;
  };
  return kind_ == LookKind::Ulps || (kind_ != LookKind::Relative && is_whole(a_dtype_) && is_whole(b_dtype_));
}

void Look::read(std::int64_t begin, std::int64_t count, LookBlock& block) const noexcept {
  const std::byte* a = a_.read(begin, count, block.a_scratch);
  if (is_pair()) {
    const std::byte* b = b_.read(begin, count, block.b_scratch);
    return is_wide(a_dtype_) || is_wide(b_dtype_) ? read_wide(a, b, count, block) : read_floats(a, b, count, block);
  }
  if (!is_complex(a_dtype_)) return compare_.widen[index(a_dtype_)](a, count, block.values);
  double parts[2 * kCompareBlock];
  compare_.widen[index(a_dtype_)](a, count, parts);
  magnitudes(a_dtype_, parts, count, block.values);
}

void Look::prefetch(std::int64_t begin, std::int64_t count) const noexcept {
  const auto fetch = [&](const ElementReader& reader) {
    if (!reader.is_contiguous()) return;
    const std::byte* bytes = reader.read(begin, count, nullptr);
    const std::int64_t size = count * static_cast<std::int64_t>(reader.item_size());
    for (std::int64_t i = 0; i < size; i += 64) __builtin_prefetch(bytes + i);
  };
  fetch(a_);
  if (is_pair()) fetch(b_);
}

void Look::read_floats(const std::byte* a, const std::byte* b, std::int64_t count, LookBlock& block) const noexcept {
  compare_.widen[index(a_dtype_)](a, count, block.a);
  compare_.widen[index(b_dtype_)](b, count, block.b);
  table_.subtract(block.a, block.b, count, block.values);
  const bool all_finite = table_.all_finite(block.values, count);
  if (all_finite && kind_ == LookKind::Difference) return;
  if (all_finite && kind_ == LookKind::Relative) return table_.relative(block.a, block.b, count, block.values);
  std::uint64_t ulps[kCompareBlock];
  if (kind_ == LookKind::Ulps) {
    compare_.ulps[index(a_dtype_)](a, b, count, ulps);
    if (all_finite) {
      for (std::int64_t i = 0; i < count; ++i) block.values[i] = static_cast<double>(ulps[i]);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    block.values[i] = pair_value(kind_, block.a[i], block.b[i], [&] { return static_cast<double>(ulps[i]); });
  }
}

void Look::read_wide(const std::byte* a, const std::byte* b, std::int64_t count, LookBlock& block) const noexcept {
  const auto a_item = static_cast<std::int64_t>(a_.item_size()), b_item = static_cast<std::int64_t>(b_.item_size());
  const bool has_complex = is_complex(a_dtype_) || is_complex(b_dtype_);
  if (a_dtype_ == DType::I64 && b_dtype_ == DType::I64 && kind_ == LookKind::Difference) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto x = load<std::int64_t>(a + i * 8), y = load<std::int64_t>(b + i * 8);
      std::int64_t difference = 0;
      block.a[i] = static_cast<double>(x);
      block.values[i] = __builtin_sub_overflow(y, x, &difference)
                            ? static_cast<double>(static_cast<long double>(y) - static_cast<long double>(x))
                            : static_cast<double>(difference);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const Number x = number(a_dtype_, a + i * a_item), y = number(b_dtype_, b + i * b_item);
    const double size = has_complex ? magnitude(x.real, x.imag) : static_cast<double>(x.real);
    block.a[i] = size;
    double& value = block.values[i];
    if (x == y || (x.is_nan() && y.is_nan())) {
      value = 0;
    } else if (x.is_nan() || y.is_nan()) {
      value = kNaN;
    } else if (!x.is_finite() && !y.is_finite() && has_complex) {
      value = kInf;  // infinities in different directions
    } else {
      const long double real = y.real - x.real, imag = y.imag - x.imag;
      value = has_complex ? magnitude(real, imag) : static_cast<double>(real);
      if (kind_ == LookKind::Relative) {
        value = size == 0 || std::isinf(size) ? kInf : std::abs(value) / std::abs(size);
      }
    }
  }
}

}  // namespace tenscope::kernels
