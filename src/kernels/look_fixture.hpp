#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/look.hpp"

// For tests: tensors of every type and any strides, and what a look at them shows, element by element.
namespace tenscope::kernels {

inline constexpr double kTestNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kTestInf = std::numeric_limits<double>::infinity();

struct StridedTensor {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // of the first element in the buffer
  std::vector<std::byte> buffer;

  TensorView view() const {
    return {buffer.data() + offset * static_cast<std::int64_t>(item_size(dtype)), dtype, shape, strides};
  }
  std::int64_t count() const { return element_count(shape); }

  const std::byte* element(std::int64_t place) const {
    std::int64_t at = offset;
    for (std::size_t axis = shape.size(); axis-- > 0; place /= shape[axis]) at += place % shape[axis] * strides[axis];
    return buffer.data() + at * static_cast<std::int64_t>(item_size(dtype));
  }
};

// Strides are of a random order of the axes, some negative, some 0, some with gaps.
inline StridedTensor strided_tensor(DType dtype, std::vector<std::int64_t> shape, std::mt19937_64& random,
                                    bool is_plain = false) {
  StridedTensor tensor{dtype, std::move(shape), {}, 0, {}};
  const std::size_t rank = tensor.shape.size();
  tensor.strides.resize(rank);
  std::vector<std::size_t> order(rank);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  if (!is_plain) std::shuffle(order.begin(), order.end(), random);
  std::int64_t extent = 1, low = 0, high = 0;
  for (const std::size_t axis : order) {
    std::int64_t stride = extent;
    const std::int64_t size = std::max<std::int64_t>(tensor.shape[axis], 1);
    const auto kind = is_plain ? 9 : random() % 8;
    if (kind == 0) {
      stride = 0;
    } else {
      if (kind == 1) stride += 1;
      extent = stride * size;
      if (kind == 2) stride = -stride;
    }
    tensor.strides[axis] = stride;
    (stride < 0 ? low : high) += stride * (size - 1);
  }
  tensor.offset = -low;
  tensor.buffer.resize(static_cast<std::size_t>(high - low + 1) * item_size(dtype));
  return tensor;
}

// Numbers of about the size of 1 (`noise` 0), random bits (`noise` 1), or some of both.
inline void fill(StridedTensor& tensor, std::mt19937_64& random, double noise) {
  std::uniform_real_distribution<double> share;
  visit_dtype(tensor.dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i + sizeof(T) <= tensor.buffer.size(); i += sizeof(T)) {
      std::byte bits[sizeof(T)];
      for (auto& byte : bits) byte = static_cast<std::byte>(random());
      T x = load<T>(bits);
      if (share(random) >= noise) {
        if constexpr (std::is_floating_point_v<T>)
          x = static_cast<T>(share(random) * 4 - 2);
        else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
          x = T(static_cast<typename T::value_type>(share(random) - 0.5), 1);
        else if constexpr (std::is_same_v<T, BFloat16>)
          x.bits = static_cast<std::uint16_t>(0x3E00 + random() % 0x200 + random() % 2 * 0x8000);
        else if constexpr (std::is_same_v<T, Float16>)
          x.bits = static_cast<std::uint16_t>(0x3400 + random() % 0x800 + random() % 2 * 0x8000);
        else if constexpr (std::is_same_v<T, Bool>)
          x.bits = static_cast<std::uint8_t>(random() % 2);
        else if constexpr (std::is_integral_v<T>)
          x = static_cast<T>(random() % 7);
        else
          x.bits = static_cast<std::uint8_t>(0x20 + random() % 0x30 + random() % 2 * 0x80);
      } else if (share(random) < 0.2) {
        if constexpr (std::is_floating_point_v<T>)
          x = static_cast<T>(random() % 3 == 0 ? kTestNaN : random() % 2 == 0 ? kTestInf : -kTestInf);
      }
      std::memcpy(&tensor.buffer[i], &x, sizeof(T));
    }
  });
}

// A shape of few axes and, mostly, few elements.
inline std::vector<std::int64_t> random_shape(std::mt19937_64& random, std::int64_t most = 6000) {
  std::vector<std::int64_t> shape(random() % 5);
  for (auto& size : shape) size = random() % 20 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % 30);
  if (!shape.empty() && random() % 3 == 0)
    shape[random() % shape.size()] = 300 + static_cast<std::int64_t>(random() % 900);
  while (element_count(shape) > most) {
    auto& largest = *std::max_element(shape.begin(), shape.end());
    largest = (largest + 1) / 2;
  }
  return shape;
}

struct ReferenceNumber {
  long double real = 0, imag = 0;
  bool is_nan() const { return std::isnan(real) || std::isnan(imag); }
  bool is_inf() const { return !is_nan() && (std::isinf(real) || std::isinf(imag)); }
  double size(bool is_complex) const {
    if (is_nan()) return kTestNaN;
    return static_cast<double>(is_complex ? std::hypot(real, imag) : real);
  }
};

inline ReferenceNumber reference_number(const StridedTensor& tensor, std::int64_t place) {
  return visit_dtype(tensor.dtype, [&]<class T>(T) -> ReferenceNumber {
    const T x = load<T>(tensor.element(place));
    if constexpr (kIsComplex<T>)
      return {x.real(), x.imag()};
    else if constexpr (std::is_integral_v<T>)
      return {static_cast<long double>(x)};
    else
      return {to_double(x)};
  });
}

// The bits of a float as a number that rises by 1 from each float to the next.
inline __int128 reference_order(DType dtype, const std::byte* bytes) {
  std::uint64_t bits = 0;
  const std::size_t size = item_size(dtype);
  std::memcpy(&bits, bytes, size);
  const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
  return (bits & sign) != 0 ? -static_cast<__int128>(bits & ~sign) : static_cast<__int128>(bits);
}

inline double reference_value(LookKind kind, const StridedTensor& a, const StridedTensor* b, std::int64_t place) {
  const bool is_complex =
      kind_of(a.dtype) == DTypeKind::Complex || (b != nullptr && kind_of(b->dtype) == DTypeKind::Complex);
  const ReferenceNumber x = reference_number(a, place);
  if (kind == LookKind::Value) return x.size(is_complex);
  const ReferenceNumber y = reference_number(*b, place);
  if (x.is_nan() && y.is_nan()) return 0;
  if (x.is_nan() || y.is_nan()) return kTestNaN;
  if (x.real == y.real && x.imag == y.imag) return 0;
  if (is_complex && x.is_inf() && y.is_inf()) return kTestInf;
  const double difference = ReferenceNumber{y.real - x.real, y.imag - x.imag}.size(is_complex);
  if (kind == LookKind::Difference) return difference;
  if (x.is_inf() || (kind == LookKind::Ulps && y.is_inf())) return kTestInf;
  if (kind == LookKind::Relative) return std::abs(difference) / std::abs(x.size(is_complex));
  const __int128 steps = reference_order(b->dtype, b->element(place)) - reference_order(a.dtype, a.element(place));
  return static_cast<double>(steps < 0 ? -steps : steps);
}

inline std::vector<double> reference_values(LookKind kind, const StridedTensor& a, const StridedTensor* b = nullptr) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < a.count(); ++i) values.push_back(reference_value(kind, a, b, i));
  return values;
}

// A tensor, perhaps with a partner of the same shape, and its look.
struct LookCase {
  StridedTensor a, b;
  LookKind kind = LookKind::Value;
  std::vector<double> expected;

  Look look() const { return kind == LookKind::Value ? Look(a.view()) : Look(kind, a.view(), b.view()); }
};

inline LookCase random_case(DType dtype, LookKind kind, std::vector<std::int64_t> shape, std::mt19937_64& random,
                            std::optional<DType> other = std::nullopt) {
  LookCase result;
  const double noises[] = {0, 0, 0.02, 1};
  const double noise = noises[random() % 4];
  result.kind = kind;
  result.a = strided_tensor(dtype, shape, random, random() % 2 == 0);
  fill(result.a, random, noise);
  if (kind != LookKind::Value) {
    result.b = strided_tensor(other.value_or(dtype), shape, random, random() % 2 == 0);
    fill(result.b, random, noise);
    if (random() % 2 == 0 && !other) {  // mostly the same
      result.b = result.a;
      StridedTensor changed = result.b;
      fill(changed, random, noise);
      const std::size_t item = item_size(dtype);
      for (std::size_t i = 0; i + item <= changed.buffer.size(); i += item) {
        if (random() % 10 == 0) std::memcpy(&result.b.buffer[i], &changed.buffer[i], item);
      }
    }
  }
  result.expected = reference_values(kind, result.a, kind == LookKind::Value ? nullptr : &result.b);
  return result;
}

// Random cases of every type, alone and as pairs, of equal and of mixed types.
template <class F>
void for_each_case(std::uint64_t seed, int rounds, F&& f) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      const auto type = static_cast<DType>(dtype);
      f(random_case(type, LookKind::Value, random_shape(random), random), random);
      f(random_case(type, LookKind::Difference, random_shape(random), random), random);
      f(random_case(type, LookKind::Relative, random_shape(random), random), random);
      f(random_case(type, LookKind::Difference, random_shape(random), random,
                    static_cast<DType>(random() % kDTypeCount)),
        random);
      if (kind_of(type) == DTypeKind::Float) f(random_case(type, LookKind::Ulps, random_shape(random), random), random);
    }
  }
}

}  // namespace tenscope::kernels
