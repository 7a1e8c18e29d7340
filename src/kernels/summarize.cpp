// Overview. A tensor is read in blocks of a few KB in C order (ElementReader); while a block is in the first-level
// cache it is hashed, its statistics are taken and it is copied. Statistics of a block are merged in double
// (moments.hpp).
#include "kernels/summarize.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/element_reader.hpp"
#include "kernels/hash.hpp"
#include "kernels/stats_scalar.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::int64_t kBlockBytes = 4096;

template <class F>
void for_each_block(const ElementReader& reader, F&& f) {
  alignas(64) std::byte scratch[kBlockBytes];
  const std::int64_t block = kBlockBytes / static_cast<std::int64_t>(reader.item_size());
  for (std::int64_t begin = 0; begin < reader.count(); begin += block) {
    const std::int64_t count = std::min(block, reader.count() - begin);
    f(begin, count, reader.read(begin, count, scratch));
  }
}

template <class T>
struct ComponentOf {
  using type = T;
};
template <class T>
struct ComponentOf<std::complex<T>> {
  using type = T;
};

// Statistics block by block. `exact_*` follow the integers that a double does not hold.
class StatsBuilder {
 public:
  explicit StatsBuilder(DType dtype) noexcept : dtype_(dtype) {}

  void add(const std::byte* bytes, std::int64_t count) noexcept {
    visit_dtype(dtype_, [&](auto tag) {
      using T = typename ComponentOf<decltype(tag)>::type;
      if (kIsComplex<decltype(tag)>) count *= 2;
      moments_.merge(block_stats_scalar<T>(bytes, count));
      if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>) add_exact<T>(bytes, count);
    });
  }

  Stats finish(const TensorView& view) const {
    Stats stats = moments_.finish(element_count(view.shape) * (kind_of(dtype_) == DTypeKind::Complex ? 2 : 1));
    if (has_exact_) {
      stats.exact_min = exact_min_;
      stats.exact_max = exact_max_;
    }
    if (moments_.is_out_of_range()) widen(view, stats);
    return stats;
  }

 private:
  template <class T>
  void add_exact(const std::byte* bytes, std::int64_t count) noexcept {
    T low = has_exact_ ? static_cast<T>(exact_min_) : load<T>(bytes);
    T high = has_exact_ ? static_cast<T>(exact_max_) : low;
    for (std::int64_t i = 0; i < count; ++i) {
      const T x = load<T>(bytes + i * 8);
      low = std::min(low, x);
      high = std::max(high, x);
    }
    exact_min_ = static_cast<std::int64_t>(low);
    exact_max_ = static_cast<std::int64_t>(high);
    has_exact_ = true;
  }

  // mean, std and l2 again in long double, for values whose squares a double does not hold.
  static void widen(const TensorView& view, Stats& stats) {
    const ElementReader reader(view);
    long double sum = 0;
    long double squares = 0;
    long double deviations = 0;
    std::int64_t finite = 0;
    const auto for_each_finite = [&](auto&& f) {
      for_each_block(reader, [&](std::int64_t, std::int64_t count, const std::byte* bytes) {
        visit_dtype(view.dtype, [&](auto tag) {
          using T = typename ComponentOf<decltype(tag)>::type;
          const std::int64_t parts = kIsComplex<decltype(tag)> ? 2 * count : count;
          for (std::int64_t i = 0; i < parts; ++i) {
            const double x = to_double(load<T>(bytes + i * static_cast<std::int64_t>(sizeof(T))));
            if (std::isfinite(x)) f(static_cast<long double>(x));
          }
        });
      });
    };
    for_each_finite([&](long double x) { sum += x, squares += x * x, ++finite; });
    const long double mean = sum / static_cast<long double>(finite);
    for_each_finite([&](long double x) { deviations += (x - mean) * (x - mean); });
    stats.mean = static_cast<double>(mean);
    stats.std = static_cast<double>(std::sqrt(deviations / static_cast<long double>(finite)));
    stats.l2 = static_cast<double>(std::sqrt(squares));
  }

  DType dtype_;
  Moments moments_;
  bool has_exact_ = false;
  std::int64_t exact_min_ = 0;
  std::int64_t exact_max_ = 0;
};

}  // namespace

Summary summarize(const TensorView& view, std::byte* destination) {
  const ElementReader reader(view);
  const std::int64_t item = static_cast<std::int64_t>(reader.item_size());
  Hasher hasher;
  StatsBuilder builder(view.dtype);
  for_each_block(reader, [&](std::int64_t begin, std::int64_t count, const std::byte* bytes) {
    hasher.update(bytes, static_cast<std::size_t>(count * item));
    builder.add(bytes, count);
    if (destination != nullptr) std::memcpy(destination + begin * item, bytes, static_cast<std::size_t>(count * item));
  });
  return {hasher.digest(), builder.finish(view)};
}

Stats statistics(const TensorView& view) {
  StatsBuilder builder(view.dtype);
  for_each_block(ElementReader(view),
                 [&](std::int64_t, std::int64_t count, const std::byte* bytes) { builder.add(bytes, count); });
  return builder.finish(view);
}

Fingerprint fingerprint(const TensorView& view) {
  const ElementReader reader(view);
  if (reader.is_contiguous()) return hash_target().hash(static_cast<const std::byte*>(view.data), size_bytes(view));
  Hasher hasher;
  for_each_block(reader, [&](std::int64_t, std::int64_t count, const std::byte* bytes) {
    hasher.update(bytes, static_cast<std::size_t>(count) * reader.item_size());
  });
  return hasher.digest();
}

void copy_c_order(const TensorView& view, std::byte* destination) {
  const ElementReader reader(view);
  if (reader.count() == 0) return;
  const std::byte* bytes = reader.read(0, reader.count(), destination);
  if (bytes != destination) std::memcpy(destination, bytes, size_bytes(view));
}

}  // namespace tenscope::kernels
