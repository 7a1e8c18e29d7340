#include "compare/tensor_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/places.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"

namespace tenscope {
namespace {

std::vector<std::int64_t> unravel(std::int64_t flat, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

template <class T>
std::string float_text(T x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::optional<ElementPair> pair_at(const TensorView& a, const TensorView& b, std::int64_t flat_index) {
  if (flat_index < 0) return std::nullopt;
  return ElementPair{unravel(flat_index, a.shape), element_text(a, flat_index), element_text(b, flat_index)};
}

kernels::Tolerance default_tolerance(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64:
    case DType::C128:
      return {1e-7, 1e-7};
    case DType::F32:
    case DType::C64:
      return {1e-5, 1.3e-6};
    case DType::F16:
      return {1e-5, 1e-3};
    case DType::BF16:
      return {1e-5, 1.6e-2};
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return {0x1p-9, 0.125};
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return {0x1p-16, 0.25};
    default:
      return {0, 0};
  }
}

kernels::Tolerance tolerance_for(DType a, DType b, const DiffOptions& options) noexcept {
  if (options.atol || options.rtol || options.ulps) return {options.atol.value_or(0), options.rtol.value_or(0)};
  const auto x = default_tolerance(a);
  const auto y = default_tolerance(b);
  return {std::max(x.absolute, y.absolute), std::max(x.relative, y.relative)};
}

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::Identical:
      return "identical";
    case Verdict::Close:
      return "close";
    case Verdict::Different:
      return "different";
  }
  return "";
}

std::string element_text(const TensorView& view, std::int64_t flat_index) {
  std::byte scratch[16];
  const std::byte* bytes = kernels::ElementReader(view).read(flat_index, 1, scratch);
  return kernels::visit_dtype(view.dtype, [&]<class T>(T) -> std::string {
    const T x = kernels::load<T>(bytes);
    if constexpr (kernels::kIsComplex<T>) {
      const std::string imag = float_text(x.imag());
      return fmt::format("({}{}{}j)", float_text(x.real()), imag[0] == '-' ? "" : "+", imag);
    } else if constexpr (std::is_same_v<T, kernels::Bool>) {
      return x.bits != 0 ? "True" : "False";
    } else if constexpr (std::is_integral_v<T>) {
      return fmt::format("{}", static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(x));
    } else if constexpr (std::is_floating_point_v<T>) {
      return float_text(x);
    } else {
      return float_text(kernels::to_float(x));
    }
  });
}

TensorDiff diff_tensors(const TensorView& a, const TensorView& b, const DiffOptions& options) {
  TensorDiff result;
  result.a_dtype = a.dtype;
  result.b_dtype = b.dtype;
  result.a_shape.assign(a.shape.begin(), a.shape.end());
  result.b_shape.assign(b.shape.begin(), b.shape.end());
  result.tolerance = tolerance_for(a.dtype, b.dtype, options);
  result.max_ulps_allowed = options.ulps;
  if (result.a_shape != result.b_shape) {
    result.verdict = Verdict::Different;
    return result;
  }
  const TensorView& reference = a;
  const TensorView& value = b;
  const kernels::ElementDiff found = kernels::diff(value, reference,
                                                   {.tolerance = result.tolerance,
                                                    .equal_nan = options.equal_nan,
                                                    .ulps = options.ulps,
                                                    .threads = options.threads,
                                                    .progress = options.progress});
  result.has_elements = true;
  result.verdict = found.mismatches != 0 ? Verdict::Different : found.bit_equal ? Verdict::Identical : Verdict::Close;
  result.count = found.count;
  result.mismatches = found.mismatches;
  result.max_abs = found.max_abs;
  result.mean_abs = found.mean_abs;
  result.max_rel = found.max_rel;
  result.mean_rel = found.mean_rel;
  result.cosine = found.cosine;
  result.relative_l2 = found.relative_l2;
  result.nan_only_a = found.nan_only_reference;
  result.nan_only_b = found.nan_only_value;
  result.nan_both = found.nan_both;
  result.inf_only_a = found.inf_only_reference;
  result.inf_only_b = found.inf_only_value;
  result.zero_error = found.zero_error;
  result.error_histogram = found.error_histogram;
  if (found.has_ulps) {
    result.ulps = {found.ulp_quantile(0.5), found.ulp_quantile(0.9), found.ulp_quantile(0.99), found.max_ulps};
  }
  result.first = pair_at(a, b, found.first_index);
  result.worst = pair_at(a, b, found.worst_index);
  if (found.mismatches > 0) {
    result.places = find_places(found.axes);
    result.where = describe_places(result.places, found.mismatches, found.count);
  }
  return result;
}

}  // namespace tenscope
