#include "report/histogram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

// Calls visit(double) for every finite element, of a complex one for both parts.
template <class Visit>
void for_each_finite(const TensorView& view, Visit visit) {
  constexpr std::int64_t kPiece = 4096;
  const kernels::ElementReader reader(view);
  std::vector<std::byte> scratch(kPiece * item_size(view.dtype));
  kernels::visit_dtype(view.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t begin = 0; begin < reader.count(); begin += kPiece) {
      const std::int64_t count = std::min(kPiece, reader.count() - begin);
      const std::byte* bytes = reader.read(begin, count, scratch.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const T element = kernels::load<T>(bytes + i * static_cast<std::int64_t>(sizeof(T)));
        if constexpr (kernels::kIsComplex<T>) {
          if (std::isfinite(element.real())) visit(static_cast<double>(element.real()));
          if (std::isfinite(element.imag())) visit(static_cast<double>(element.imag()));
        } else {
          const double x = kernels::to_double(element);
          if (std::isfinite(x)) visit(x);
        }
      }
    }
  });
}

std::string bar(double eighths, bool is_utf8) {
  constexpr std::array<std::string_view, 8> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto total = static_cast<std::size_t>(std::ceil(eighths));
  if (!is_utf8) return std::string((total + 7) / 8, '#');
  std::string text;
  for (std::size_t i = 0; i < total / 8; ++i) text += "█";
  return text + std::string(kParts[total % 8]);
}

}  // namespace

Histogram make_histogram(const TensorView& view, int bins) {
  Histogram result;
  if (element_count(view.shape) == 0) return result;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for_each_finite(view, [&](double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  });
  if (low > high) return result;
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  const double width = high / bins - low / bins;  // never overflows
  for (int i = 0; i < bins; ++i) result.edges.push_back(low + width * i);
  result.edges.push_back(high);
  result.counts.resize(static_cast<std::size_t>(bins));
  for_each_finite(view, [&](double x) {
    auto bin = static_cast<std::int64_t>((x / 2 - low / 2) / (high / 2 - low / 2) * bins);
    bin = std::clamp<std::int64_t>(bin, 0, bins - 1);
    if (bin > 0 && x < result.edges[static_cast<std::size_t>(bin)]) --bin;
    if (bin + 1 < bins && x >= result.edges[static_cast<std::size_t>(bin) + 1]) ++bin;
    ++result.counts[static_cast<std::size_t>(bin)];
  });
  return result;
}

std::string histogram_text(const Histogram& histogram, std::size_t width, bool is_utf8, bool color) {
  if (histogram.counts.empty()) return "";
  const std::int64_t most = *std::max_element(histogram.counts.begin(), histogram.counts.end());
  std::vector<std::string> lows;
  std::size_t low_width = 0, count_width = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    lows.push_back(fmt::format("{:.4g}", histogram.edges[i]));
    low_width = std::max(low_width, lows.back().size());
    count_width = std::max(count_width, fmt::formatted_size("{}", histogram.counts[i]));
  }
  const std::size_t used = low_width + count_width + 4;
  const double room = static_cast<double>(width > used + 10 ? width - used : 10) * 8;
  std::string text;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    const double share = static_cast<double>(histogram.counts[i]) / static_cast<double>(most);
    text += fmt::format("{:>{}}  {:>{}}  {}\n", lows[i], low_width, histogram.counts[i], count_width,
                        toned(bar(share * room, is_utf8), Tone::Cyan, color));
  }
  return text + fmt::format("{:>{}}\n", fmt::format("{:.4g}", histogram.edges.back()), low_width);
}

}  // namespace tenscope::report
