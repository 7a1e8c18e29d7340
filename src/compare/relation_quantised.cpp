// b is a, quantised in blocks as ggml and others do: a few integer levels, and a scale (and perhaps an offset) for each
// block of elements that lie together. All is computed from a, nothing is fitted; only the schemes below are known.
#include <fmt/format.h>

#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

constexpr const FloatFormat& kHalf = kFloatFormats[3];

enum class Levels : std::uint8_t { Absmax, Extreme, Range };  // d = max |a| / top; d = extreme / -8; (max - min) / top

struct Scheme {
  const char* name;
  Levels levels;
  double top;
  bool is_half;  // the scale is kept as float16
};

constexpr std::array kSchemes = {
    Scheme{"8 bits (q8_0)", Levels::Absmax, 127, true},       Scheme{"8 bits", Levels::Absmax, 127, false},
    Scheme{"4 bits (q4_0)", Levels::Extreme, 8, true},        Scheme{"4 bits", Levels::Absmax, 7, false},
    Scheme{"4 bits (q4_1)", Levels::Range, 15, true},         Scheme{"8 bits and an offset", Levels::Range, 255, false},
    Scheme{"4 bits and an offset", Levels::Range, 15, false},
};

// What a block becomes.
class Quantiser {
 public:
  Quantiser(const Scheme& scheme, const double* values, std::int64_t count) : scheme_(scheme) {
    double low = INFINITY, high = -INFINITY, extreme = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      low = std::min(low, values[i]), high = std::max(high, values[i]);
      if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
    }
    largest_ = std::abs(extreme);
    step_ = scheme.levels == Levels::Absmax    ? largest_ / scheme.top
            : scheme.levels == Levels::Extreme ? extreme / -scheme.top
                                               : (high - low) / scheme.top;
    offset_ = scheme.levels == Levels::Range ? low : 0;
    kept_step_ = scheme.is_half ? round_to(kHalf, step_) : step_;
    kept_offset_ = scheme.is_half ? round_to(kHalf, offset_) : offset_;
  }

  double largest() const { return largest_; }
  double step() const { return std::abs(kept_step_); }
  // Whether y is what becomes of x. On the border of two levels either is right.
  bool is(double x, double y, double tolerance) const {
    const double level = step_ == 0 ? 0 : (x - offset_) / step_;
    double nearest = std::floor(level + 0.5);
    if (scheme_.levels == Levels::Extreme) nearest = std::clamp(nearest, -8.0, 7.0);
    if (std::abs(nearest * kept_step_ + kept_offset_ - y) <= tolerance) return true;
    const double border = level - std::floor(level) - 0.5;
    if (std::abs(border) > 1e-4) return false;
    const double other = nearest > level ? nearest - 1 : nearest + 1;
    return std::abs(other * kept_step_ + kept_offset_ - y) <= tolerance;
  }

 private:
  const Scheme& scheme_;
  double largest_, step_, offset_, kept_step_, kept_offset_;
};

std::string expression_of(const Scheme& scheme, std::int64_t block, const std::string& source) {
  const std::string x = fmt::format("(x := {}.reshape(-1, {}))", source, block);
  const auto kept = [&](const std::string& name) {
    return scheme.is_half ? fmt::format("{}.astype(np.float16).astype(np.float32)", name) : name;
  };
  switch (scheme.levels) {
    case Levels::Absmax:
      return fmt::format("np.rint({} / (s := np.abs(x).max(1, keepdims=True) / {}).clip(1e-38)) * {}", x, scheme.top,
                         kept("s"));
    case Levels::Extreme:
      return fmt::format(
          "np.floor({} / np.where((s := np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1) / -8) == 0, 1, s) + "
          "0.5).clip(-8, 7) * {}",
          x, kept("s"));
    case Levels::Range:
      return fmt::format(
          "np.floor(({} - (o := x.min(1, keepdims=True))) / (s := (x.max(1, keepdims=True) - o) / {}).clip(1e-38) + "
          "0.5) "
          "* {} + {}",
          x, scheme.top, kept("s"), kept("o"));
  }
  __builtin_unreachable();
}

}  // namespace

Explanation RelationSearch::quantised() {
  constexpr std::int64_t kMostOfABlock = 1 << 16;
  constexpr std::int64_t kBlocks = 16;  // that refute a scheme, if it is wrong
  constexpr double kMostBits = 16;
  if (precision_a_ == 0 || precision_b_ == 0 || !scan_.is_elementwise || shape_.empty()) return {};
  Shape sizes = {32, 16, 64, 128, 256};
  if (std::find(sizes.begin(), sizes.end(), shape_.back()) == sizes.end()) sizes.push_back(shape_.back());
  const double part = std::max(relative_tolerance(view_b_.dtype), 1e-6);
  for (const std::int64_t size : sizes) {
    if (size < 8 || size > kMostOfABlock || count_ % size != 0) continue;
    const std::int64_t blocks = count_ / size;
    std::vector<double> x(static_cast<std::size_t>(size)), y(x.size());
    const auto read = [&](const DoubleReader& reader, std::int64_t block, std::vector<double>& out) {
      for (std::int64_t at = 0; at < size; at += DoubleReader::kBlock)
        reader.read(block * size + at, std::min(DoubleReader::kBlock, size - at), out.data() + at);
    };
    for (const Scheme& scheme : kSchemes) {
      double bits = 0;
      const auto holds = [&](const std::vector<double>& from, const std::vector<double>& to, double* said_bits) {
        const Quantiser quantiser(scheme, from.data(), size);
        if (!std::isfinite(quantiser.largest())) return false;
        const double tolerance = part * quantiser.largest();
        for (std::size_t i = 0; i < from.size(); ++i) {
          if (!quantiser.is(from[i], to[i], tolerance)) return false;
          if (said_bits != nullptr && std::abs(from[i] - to[i]) > tolerance)
            *said_bits += std::clamp(std::log2(quantiser.step() / (2 * tolerance)), 0.0, kMostBits);
        }
        return true;
      };
      bool may_be = true;
      for (std::int64_t k = 0; k < std::min(kBlocks, blocks) && may_be; ++k) {
        const std::int64_t block = blocks <= kBlocks ? k : k * (blocks - 1) / (kBlocks - 1);
        read(reader_a_, block, x);
        read(reader_b_, block, y);
        may_be = holds(x, y, &bits);
      }
      if (!may_be || !pays(bits, kMostBits, 1)) continue;
      if (passes_-- <= 0) return {};
      std::atomic<bool> is_true = true;
      kernels::for_each_chunk(blocks, std::max<std::int64_t>(1, (1 << 15) / size), threads_,
                              [&](int, std::int64_t begin, std::int64_t end) {
                                std::vector<double> from(static_cast<std::size_t>(size)), to(from.size());
                                for (; begin < end && is_true; ++begin) {
                                  read(reader_a_, begin, from);
                                  read(reader_b_, begin, to);
                                  if (!holds(from, to, nullptr)) is_true = false;
                                }
                              });
      if (!is_true) continue;
      const std::string single = view_a_.dtype == DType::F32 ? "a" : cast("a", DType::F32);
      return said("quantised", fmt::format("b is a, quantised in blocks of {} to {}", size, scheme.name),
                  cast(reshaped(expression_of(scheme, size, single), shape_), view_b_.dtype));
    }
  }
  return {};
}

}  // namespace tenscope::compare
