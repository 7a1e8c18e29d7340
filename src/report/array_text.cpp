// Overview: NumPy first looks at all elements that will be shown, decides on a format that suits all (how many digits,
// scientific or not, how wide), then prints each with it. Lines are broken at line_width; of an array with more than
// `threshold` elements only the edges of each axis are shown.
#include "report/array_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/element.hpp"
#include "report/decimal.hpp"

namespace tenscope::report {
namespace {

using Pointers = std::vector<const std::byte*>;
using ElementText = std::function<std::string(const std::byte*)>;

FloatWidth width_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::C128:
      return FloatWidth::Double;
    case DType::F16:
      return FloatWidth::Half;
    default:
      return FloatWidth::Single;
  }
}

// The format of a set of floating-point numbers.
class FloatFormat {
 public:
  FloatFormat(const std::vector<double>& values, FloatWidth width, bool shows_plus, const ArrayTextOptions& options)
      : width_(width), shows_plus_(shows_plus), precision_(options.precision) {
    choose_notation(values, options.suppress);
    bool has_special = false, has_negative_inf = shows_plus;
    for (const double x : values) {
      if (std::isfinite(x)) {
        measure(x);
      } else {
        has_special = true;
        has_negative_inf |= std::isinf(x) && x < 0;
      }
    }
    if (is_scientific_) {
      precision_ = fraction_;
      pad_right_ = exponent_digits_ + 2 + precision_;
    } else {
      pad_right_ = fraction_;
    }
    if (has_special) pad_left_ = std::max({pad_left_, 3 - (pad_right_ + 1), 3 + has_negative_inf - (pad_right_ + 1)});
  }

  std::string operator()(double x) const {
    if (!std::isfinite(x)) {
      const std::string text = std::isnan(x) ? plus(x) + "nan" : (x < 0 ? "-" : plus(x)) + "inf";
      return fmt::format("{:>{}}", text, std::max(0, pad_left_ + pad_right_ + 1));
    }
    if (is_scientific_) {
      const std::string text = plus(x) + padded_scientific_text(x, precision_, exponent_digits_);
      const int whole = static_cast<int>(text.find('.'));
      return std::string(static_cast<std::size_t>(std::max(0, pad_left_ - whole)), ' ') + text;
    }
    const std::string text = plus(x) + positional_text(x, width_, precision_);
    const int whole = static_cast<int>(text.find('.'));
    const int fraction = static_cast<int>(text.size()) - whole - 1;
    return fmt::format("{:{}}{}{:{}}", "", std::max(0, pad_left_ - whole), text, "",
                       std::max(0, pad_right_ - fraction));
  }

 private:
  void choose_notation(const std::vector<double>& values, bool suppress) {
    double largest = 0, smallest = std::numeric_limits<double>::infinity();
    for (const double x : values) {
      if (x == 0 || !std::isfinite(x)) continue;
      largest = std::max(largest, std::abs(x));
      smallest = std::min(smallest, std::abs(x));
    }
    if (largest == 0) return;
    const bool is_single = width_ != FloatWidth::Double;
    const double small = is_single ? static_cast<double>(0.0001F) : 0.0001;
    const double ratio = is_single ? static_cast<double>(static_cast<float>(largest) / static_cast<float>(smallest))
                                   : largest / smallest;
    is_scientific_ = largest >= largest_positional(width_) || (!suppress && (smallest < small || ratio > 1000.0));
  }

  void measure(double x) {
    const std::string text =
        plus(x) + (is_scientific_ ? scientific_text(x, width_, precision_) : positional_text(x, width_, precision_));
    const auto point = text.find('.');
    const auto end = std::min(text.find('e'), text.size());
    pad_left_ = std::max(pad_left_, static_cast<int>(point));
    fraction_ = std::max(fraction_, static_cast<int>(end - point - 1));
    exponent_digits_ = std::max(exponent_digits_, static_cast<int>(text.size() - end) - 2);
  }

  std::string plus(double x) const {
    return shows_plus_ && !std::signbit(x) ? "+" : shows_plus_ && std::isnan(x) ? "+" : "";
  }

  FloatWidth width_;
  bool shows_plus_;
  int precision_;
  bool is_scientific_ = false;
  int pad_left_ = 0;
  int pad_right_ = 0;
  int fraction_ = 0;
  int exponent_digits_ = -1;
};

template <class T>
double part(const std::byte* bytes, std::size_t index = 0) {
  return kernels::to_double(kernels::load<T>(bytes + index * sizeof(T)));
}

template <class T>
std::vector<double> parts(const Pointers& shown, std::size_t index = 0) {
  std::vector<double> result;
  for (const std::byte* bytes : shown) result.push_back(part<T>(bytes, index));
  return result;
}

template <class T>
ElementText float_text(const Pointers& shown, DType dtype, const ArrayTextOptions& options) {
  return [format = FloatFormat(parts<T>(shown), width_of(dtype), false, options)](const std::byte* bytes) {
    return format(part<T>(bytes));
  };
}

template <class T>
ElementText complex_text(const Pointers& shown, DType dtype, const ArrayTextOptions& options) {
  return [real = FloatFormat(parts<T>(shown, 0), width_of(dtype), false, options),
          imaginary = FloatFormat(parts<T>(shown, 1), width_of(dtype), true, options)](const std::byte* bytes) {
    std::string text = imaginary(part<T>(bytes, 1));
    text.insert(text.find_last_not_of(' ') + 1, "j");
    return real(part<T>(bytes, 0)) + text;
  };
}

template <class T>
ElementText integer_text(const Pointers& shown) {
  std::size_t width = 0;
  for (const std::byte* bytes : shown) width = std::max(width, fmt::formatted_size("{}", kernels::load<T>(bytes)));
  return [width](const std::byte* bytes) { return fmt::format("{:>{}}", kernels::load<T>(bytes), width); };
}

ElementText element_text(DType dtype, const Pointers& shown, const ArrayTextOptions& options) {
  return kernels::visit_dtype(dtype, [&](auto tag) -> ElementText {
    using T = decltype(tag);
    if constexpr (kernels::kIsComplex<T>) {
      return complex_text<typename T::value_type>(shown, dtype, options);
    } else if constexpr (std::is_same_v<T, kernels::Bool>) {
      return [](const std::byte* bytes) { return *bytes != std::byte{0} ? " True" : "False"; };
    } else if constexpr (std::is_integral_v<T>) {
      return integer_text<T>(shown);
    } else {
      return float_text<T>(shown, dtype, options);
    }
  });
}

std::string trimmed_scalar(double x, FloatWidth width) {
  const std::string text = scalar_text(x, width);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

// An array without axes is printed as the number itself.
std::string single_text(const TensorView& view) {
  const auto* bytes = static_cast<const std::byte*>(view.data);
  const FloatWidth width = width_of(view.dtype);
  return kernels::visit_dtype(view.dtype, [&](auto tag) -> std::string {
    using T = decltype(tag);
    if constexpr (kernels::kIsComplex<T>) {
      using Part = typename T::value_type;
      const double real = part<Part>(bytes, 0), imaginary = part<Part>(bytes, 1);
      const std::string tail = trimmed_scalar(imaginary, width) + "j";
      if (real == 0 && !std::signbit(real)) return tail;
      return fmt::format("({}{}{})", trimmed_scalar(real, width), tail[0] == '-' ? "" : "+", tail);
    } else if constexpr (std::is_same_v<T, kernels::Bool>) {
      return *bytes != std::byte{0} ? "True" : "False";
    } else if constexpr (std::is_integral_v<T>) {
      return fmt::format("{}", kernels::load<T>(bytes));
    } else {
      return scalar_text(part<T>(bytes), width);
    }
  });
}

class ArrayPrinter {
 public:
  ArrayPrinter(const TensorView& view, const ArrayTextOptions& options)
      : view_(view), options_(options), is_summary_(element_count(view.shape) > options.threshold) {
    strides_.assign(view.strides.begin(), view.strides.end());
    if (strides_.empty()) {
      strides_.resize(view.shape.size());
      std::int64_t stride = 1;
      for (std::size_t axis = strides_.size(); axis-- > 0; stride *= view.shape[axis]) strides_[axis] = stride;
    }
    for (std::int64_t& stride : strides_) stride *= static_cast<std::int64_t>(item_size(view.dtype));
    Pointers shown;
    collect(static_cast<const std::byte*>(view.data), 0, shown);
    text_of_ = element_text(view.dtype, shown, options);
  }

  std::string print() const {
    return axis_text(static_cast<const std::byte*>(view_.data), 0, " ", options_.line_width);
  }

 private:
  bool is_cut(std::size_t axis) const { return is_summary_ && 2 * options_.edge_items < view_.shape[axis]; }

  // The indices to show of an axis; -1 stands for the dots.
  std::vector<std::int64_t> indices(std::size_t axis) const {
    const std::int64_t size = view_.shape[axis];
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < size; ++i) {
      if (is_cut(axis) && i == options_.edge_items) {
        result.push_back(-1);
        i = size - options_.edge_items;
      }
      result.push_back(i);
    }
    return result;
  }

  void collect(const std::byte* bytes, std::size_t axis, Pointers& shown) const {
    if (axis == view_.shape.size()) {
      shown.push_back(bytes);
      return;
    }
    for (const std::int64_t i : indices(axis)) {
      if (i >= 0) collect(bytes + i * strides_[axis], axis + 1, shown);
    }
  }

  std::string axis_text(const std::byte* bytes, std::size_t axis, const std::string& indent, std::size_t width) const {
    const std::size_t axes_left = view_.shape.size() - axis;
    if (axes_left == 0) return text_of_(bytes);
    const auto child = [&](std::int64_t i) {
      return i < 0 ? std::string("...") : axis_text(bytes + i * strides_[axis], axis + 1, indent + " ", width - 1);
    };
    std::string text;
    const std::vector<std::int64_t> shown = indices(axis);
    if (axes_left == 1) {
      std::string line = indent;
      for (std::size_t k = 0; k < shown.size(); ++k) {
        const std::string word = child(shown[k]);
        if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
          text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
          line = indent;
        }
        line += word;
        if (k + 1 < shown.size()) line += ' ';
      }
      text += line;
    } else {
      for (std::size_t k = 0; k < shown.size(); ++k) {
        text += indent + child(shown[k]);
        if (k + 1 < shown.size()) text += std::string(axes_left - 1, '\n');
      }
    }
    return "[" + text.substr(std::min(indent.size(), text.size())) + "]";
  }

  const TensorView view_;
  const ArrayTextOptions options_;
  const bool is_summary_;
  std::vector<std::int64_t> strides_;  // in bytes
  ElementText text_of_;
};

}  // namespace

std::string array_text(const TensorView& view, const ArrayTextOptions& options) {
  if (element_count(view.shape) == 0) return "[]";
  if (view.shape.empty()) return single_text(view);
  return ArrayPrinter(view, options).print();
}

}  // namespace tenscope::report
