// Overview. A tensor is read in blocks of a few KB in C order (ElementReader); while a block is in the first-level
// cache it is hashed, its statistics are taken, it is sketched and it is copied. Statistics of a block are merged in
// double (moments.hpp).
#include "kernels/summarize.hpp"

#include <cstring>
#include <optional>

#include "kernels/blocks.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "kernels/hash.hpp"
#include "kernels/stats_table.hpp"

namespace tenscope::kernels {
namespace {

constexpr std::size_t kStreamBytes = std::size_t{4} << 20;

// The copy of a tensor's blocks: past the caches where it is large, for which the destination must be aligned from the
// second block on.
class Copier {
 public:
  Copier(std::byte* destination, std::size_t size) noexcept
      : destination_(destination),
        is_streaming_(destination != nullptr && size >= kStreamBytes),
        table_(stats_table()) {}
  ~Copier() {
    if (is_streaming_) table_.flush_stream();
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Bytes to the destination's next alignment, 0 where it does not matter.
  std::int64_t first_block() const noexcept {
    return is_streaming_ ? static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(destination_) % 64) : 0;
  }

  void copy(std::int64_t offset, const std::byte* bytes, std::int64_t size) const noexcept {
    if (destination_ == nullptr) return;
    std::byte* to = destination_ + offset;
    if (is_streaming_ && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
      table_.stream_copy(to, bytes, static_cast<std::size_t>(size));
    } else {
      std::memcpy(to, bytes, static_cast<std::size_t>(size));
    }
  }

 private:
  std::byte* destination_;
  bool is_streaming_;
  const StatsTable& table_;
};

template <class T>
struct ComponentOf {
  using type = T;
};
template <class T>
struct ComponentOf<std::complex<T>> {
  using type = T;
};

// Statistics, block by block.
class StatsBuilder {
 public:
  explicit StatsBuilder(DType dtype) noexcept
      : dtype_(dtype),
        parts_(kind_of(dtype) == DTypeKind::Complex ? 2 : 1),
        block_stats_(stats_table().block_stats[static_cast<std::size_t>(dtype)]),
        sketched_stats_(stats_table().sketched_stats[static_cast<std::size_t>(dtype)]) {}

  // Returns whether all elements are finite.
  bool add(const std::byte* bytes, std::int64_t count) noexcept {
    const BlockStats stats = block_stats_(bytes, count * parts_);
    moments_.merge(stats);
    return stats.count == count * parts_;
  }

  // Sketches them as well, in the same pass where that is possible.
  void add(std::int64_t begin, std::int64_t count, const std::byte* bytes, SketchBuilder& sketcher) noexcept {
    const std::int64_t block = sketched_stats_ != nullptr ? sketcher.whole_blocks_at(begin, count) : -1;
    if (block < 0) {
      const bool are_finite = add(bytes, count);
      sketcher.add(begin, count, bytes, are_finite);
      return;
    }
    const BlockStats stats = sketched_stats_(sketcher.sums(), block, bytes, count * parts_);
    moments_.merge(stats);
    if (stats.count != count * parts_) sketcher.add(begin, count, bytes);
  }

  Stats finish(const TensorView& view) const {
    Stats stats = moments_.finish(element_count(view.shape) * parts_);
    if (stats.count > 0 && (dtype_ == DType::I64 || dtype_ == DType::U64)) {
      const std::uint64_t flip = dtype_ == DType::U64 ? 1ULL << 63 : 0;
      stats.exact_min = static_cast<std::int64_t>(static_cast<std::uint64_t>(moments_.ordered_min()) ^ flip);
      stats.exact_max = static_cast<std::int64_t>(static_cast<std::uint64_t>(moments_.ordered_max()) ^ flip);
    }
    if (moments_.is_out_of_range()) widen(view, stats);
    return stats;
  }

 private:
  // mean, std and l2 again in long double, for values whose squares a double does not hold.
  static void widen(const TensorView& view, Stats& stats) {
    const ElementReader reader(view);
    long double sum = 0;
    long double squares = 0;
    long double deviations = 0;
    std::int64_t finite = 0;
    const auto for_each_finite = [&](auto&& f) {
      for_each_block(reader, 0, [&](std::int64_t, std::int64_t count, const std::byte* bytes) {
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
  std::int64_t parts_;
  BlockStats (*block_stats_)(const std::byte*, std::int64_t);
  StatsTable::SketchedStats sketched_stats_;
  Moments moments_;
};

}  // namespace

Summary summarize(const TensorView& view, std::byte* destination, Sketch* sketch, const PartOf& part) {
  const ElementReader reader(view);
  const std::int64_t item = static_cast<std::int64_t>(reader.item_size());
  const Copier copier(destination, size_bytes(view));
  StatsBuilder builder(view.dtype);
  std::optional<SketchBuilder> sketcher;
  if (sketch != nullptr) sketcher.emplace(view.dtype, view.shape, part);
  const auto add = [&](std::int64_t begin, std::int64_t count, const std::byte* bytes) {
    if (sketcher)
      builder.add(begin, count, bytes, *sketcher);
    else
      builder.add(bytes, count);
    copier.copy(begin * item, bytes, count * item);
  };
  const auto finish = [&](const Fingerprint& fingerprint) -> Summary {
    if (sketcher) *sketch = sketcher->finish();
    return {fingerprint, builder.finish(view)};
  };
  if (reader.count() * item <= kBlockBytes) {
    alignas(64) std::byte scratch[kBlockBytes];
    const std::byte* bytes = reader.read(0, reader.count(), scratch);
    add(0, reader.count(), bytes);
    return finish(hash_target().hash(bytes, size_bytes(view)));
  }
  Hasher hasher;
  for_each_block(reader, copier.first_block() / item,
                 [&](std::int64_t begin, std::int64_t count, const std::byte* bytes) {
                   hasher.update(bytes, static_cast<std::size_t>(count * item));
                   add(begin, count, bytes);
                 });
  return finish(hasher.digest());
}

Stats statistics(const TensorView& view) {
  StatsBuilder builder(view.dtype);
  for_each_block(ElementReader(view), 0,
                 [&](std::int64_t, std::int64_t count, const std::byte* bytes) { builder.add(bytes, count); });
  return builder.finish(view);
}

Fingerprint fingerprint(const TensorView& view) {
  const ElementReader reader(view);
  if (reader.is_contiguous()) return hash_target().hash(static_cast<const std::byte*>(view.data), size_bytes(view));
  Hasher hasher;
  for_each_block(reader, 0, [&](std::int64_t, std::int64_t count, const std::byte* bytes) {
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
