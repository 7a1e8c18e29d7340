// Overview. Each row of cells is made of groups of columns that fit a block. The rows of elements of a group are read
// one after another, widened to double and taken into a minimum, a maximum and a sum for each column, a loop without
// any dependence between neighbours; the columns of each cell are joined only then. A block with NaN or infinities,
// which is rare, goes element by element.
#include "kernels/tile.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/parallel.hpp"

namespace tenscope::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::uint8_t flag_of(double x) {
  return std::isnan(x) ? kHasNan : x == kInf ? kHasPositiveInf : x == -kInf ? kHasNegativeInf : std::uint8_t{0};
}

// What one thread works with.
struct Worker {
  LookBlock block;
  alignas(64) double min[kCompareBlock];
  alignas(64) double max[kCompareBlock];
  alignas(64) double sum[kCompareBlock];
  std::int64_t bad[kCompareBlock];
  std::uint8_t flags[kCompareBlock];
  bool has_bad = false;
  // Of a row's cells.
  std::vector<double> cell_min, cell_max, cell_sum;
  std::vector<std::int64_t> cell_bad;
  std::vector<std::uint8_t> cell_flags;
};

class TileMaker {
 public:
  TileMaker(const Look& look, const TileOptions& options, Tile& tile, ScaleCollector* scale)
      : look_(look), options_(options), tile_(tile), scale_(scale), table_(look_table()) {
    if (tile.is_exact) return;
    for (std::int64_t i = 0; i <= tile.width; ++i)
      column_begins_.push_back(part_begin(options.col_begin, options.col_end, i, tile.width));
  }

  // Cells [begin, end) of row `row`.
  void reduce(int number, Worker& worker, std::int64_t row, std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = row_begin(row), last = row_begin(row + 1);
    const auto cells = static_cast<std::size_t>(end - begin);
    worker.cell_min.assign(cells, kInf);
    worker.cell_max.assign(cells, -kInf);
    worker.cell_sum.assign(cells, 0.0);
    worker.cell_bad.assign(cells, 0);
    worker.cell_flags.assign(cells, 0);
    for (std::int64_t cell = begin; cell < end;) {
      // As many whole cells as fit a block, or one that does not, in pieces.
      std::int64_t next = cell + 1;
      while (next < end && column_begin(next + 1) - column_begin(cell) <= kCompareBlock) ++next;
      for (std::int64_t from = column_begin(cell); from < column_begin(next); from += kCompareBlock) {
        const std::int64_t to = std::min(from + kCompareBlock, column_begin(next));
        add_columns(number, worker, first, last, from, to);
        const std::int64_t piece[] = {from, to};  // of the one cell where there are not several
        join(worker, next == cell + 1 ? piece : &column_begins_[static_cast<std::size_t>(cell)], next - cell,
             static_cast<std::size_t>(cell - begin));
      }
      cell = next;
    }
    store(worker, row, begin, end);
  }

  // Row `row` as it is.
  void copy(int number, Worker& worker, std::int64_t row) const {
    const std::int64_t begin = options_.col_begin, end = options_.col_end;
    const std::int64_t line = (options_.row_begin + row) * options_.cols;
    for (std::int64_t from = begin; from < end; from += kCompareBlock) {
      const std::int64_t count = std::min(kCompareBlock, end - from);
      look_.read(line + from, count, worker.block);
      const double* values = worker.block.values;
      const bool all_finite = table_.all_finite(values, count);
      if (scale_ != nullptr) scale_->add(number, values, count, all_finite);
      const auto place = static_cast<std::size_t>(row * tile_.width + from - begin);
      table_.to_floats(values, count, &tile_.value[place]);
      std::uint8_t* flags = &tile_.flags[place];
      if (look_.is_pair()) {
        for (std::int64_t i = 0; i < count; ++i) flags[i] = values[i] != 0 ? kHasDifference : std::uint8_t{0};
      }
      if (all_finite) continue;
      for (std::int64_t i = 0; i < count; ++i) flags[i] = static_cast<std::uint8_t>(flags[i] | flag_of(values[i]));
    }
  }

 private:
  std::int64_t row_begin(std::int64_t i) const {
    return part_begin(options_.row_begin, options_.row_end, i, tile_.height);
  }
  std::int64_t column_begin(std::int64_t i) const { return column_begins_[static_cast<std::size_t>(i)]; }

  // Takes the elements of the rows [first, last) and columns [from, to) into the worker's columns.
  void add_columns(int number, Worker& worker, std::int64_t first, std::int64_t last, std::int64_t from,
                   std::int64_t to) const {
    const std::int64_t width = to - from;
    std::fill_n(worker.min, width, kInf);
    std::fill_n(worker.max, width, -kInf);
    std::fill_n(worker.sum, width, 0.0);
    worker.has_bad = false;
    // Short rows that lie behind each other are read together.
    const std::int64_t together = width == options_.cols ? std::max<std::int64_t>(1, kCompareBlock / width) : 1;
    for (std::int64_t row = first; row < last; row += together) {
      const std::int64_t count = std::min(together, last - row) * width;
      // What is read next: this group's next row, or the first of the group that follows.
      const bool is_last = row + together >= last;
      look_.prefetch(is_last ? first * options_.cols + to : (row + together) * options_.cols + from,
                     is_last ? std::min(width, options_.col_end - to) : width);
      look_.read(row * options_.cols + from, count, worker.block);
      const double* values = worker.block.values;
      const bool all_finite = table_.all_finite(values, count);
      if (scale_ != nullptr) scale_->add(number, values, count, all_finite);
      for (std::int64_t i = 0; i < count; i += width) {
        if (all_finite)
          table_.accumulate(values + i, width, worker.min, worker.max, worker.sum);
        else
          add_mixed(worker, values + i, width);
      }
    }
  }

  static void add_mixed(Worker& worker, const double* values, std::int64_t width) {
    if (!worker.has_bad) {
      std::fill_n(worker.bad, kCompareBlock, 0);
      std::fill_n(worker.flags, kCompareBlock, std::uint8_t{0});
      worker.has_bad = true;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const double x = values[i];
      if (std::isfinite(x)) {
        worker.min[i] = std::min(worker.min[i], x);
        worker.max[i] = std::max(worker.max[i], x);
        worker.sum[i] += x;
      } else {
        ++worker.bad[i];
        worker.flags[i] = static_cast<std::uint8_t>(worker.flags[i] | flag_of(x));
      }
    }
  }

  // Takes the worker's columns, the first of which is bounds[0], into cells.
  void join(Worker& worker, const std::int64_t* bounds, std::int64_t cells, std::size_t first) const {
    table_.join_columns(worker.min, worker.max, worker.sum, bounds, bounds[0], cells, &worker.cell_min[first],
                        &worker.cell_max[first], &worker.cell_sum[first]);
    if (!worker.has_bad) return;
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      const std::size_t place = first + static_cast<std::size_t>(cell);
      for (std::int64_t i = bounds[cell] - bounds[0]; i < bounds[cell + 1] - bounds[0]; ++i) {
        worker.cell_bad[place] += worker.bad[i];
        worker.cell_flags[place] = static_cast<std::uint8_t>(worker.cell_flags[place] | worker.flags[i]);
      }
    }
  }

  void store(Worker& worker, std::int64_t row, std::int64_t begin, std::int64_t end) const {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    const std::int64_t rows = row_begin(row + 1) - row_begin(row);
    const auto place = static_cast<std::size_t>(row * tile_.width + begin);
    for (std::int64_t i = 0; i < end - begin; ++i) {
      const auto cell = static_cast<std::size_t>(i);
      double &min = worker.cell_min[cell], &max = worker.cell_max[cell], &mean = worker.cell_sum[cell];
      const std::int64_t bad = worker.cell_bad[cell];
      const std::int64_t finite = rows * (column_begin(begin + i + 1) - column_begin(begin + i)) - bad;
      const bool differs = look_.is_pair() && (bad != 0 || min < 0 || max > 0);
      tile_.flags[place + cell] = static_cast<std::uint8_t>(worker.cell_flags[cell] | (differs ? kHasDifference : 0));
      if (finite == 0)
        min = max = mean = kNaN;
      else
        mean = std::clamp(mean / static_cast<double>(finite), min, max);
    }
    table_.to_floats(worker.cell_min.data(), end - begin, &tile_.min[place]);
    table_.to_floats(worker.cell_max.data(), end - begin, &tile_.max[place]);
    table_.to_floats(worker.cell_sum.data(), end - begin, &tile_.mean[place]);
  }

  const Look& look_;
  const TileOptions& options_;
  Tile& tile_;
  ScaleCollector* scale_;
  const LookTable& table_;
  std::vector<std::int64_t> column_begins_;  // of the cells, and where the last one ends
};

}  // namespace

Tile make_tile(const Look& look, const TileOptions& options, ValueScale* scale) {
  const std::int64_t rows = options.row_end - options.row_begin, cols = options.col_end - options.col_begin;
  Tile tile;
  tile.height = std::min(options.height, rows);
  tile.width = std::min(options.width, cols);
  tile.is_exact = tile.height == rows && tile.width == cols;
  if (rows * cols == 0) {
    if (scale != nullptr) *scale = measure_scale(look, options.threads);
    return tile;
  }
  const auto cells = static_cast<std::size_t>(tile.height * tile.width);
  tile.flags.resize(cells);
  if (tile.is_exact) {
    tile.value.resize(cells);
  } else {
    for (auto* plane : {&tile.min, &tile.max, &tile.mean}) plane->resize(cells);
  }
  const std::int64_t looked_at = rows * cols * (look.bytes() / look.count());
  const int threads = thread_count(looked_at, options.threads);
  std::optional<ScaleCollector> collector;
  const bool is_whole = rows * cols == look.count();
  if (scale != nullptr && is_whole) collector.emplace(look, threads);

  const TileMaker maker(look, options, tile, collector ? &*collector : nullptr);
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  if (tile.is_exact) {
    const std::int64_t chunk = std::max<std::int64_t>(1, 65536 / cols);
    for_each_chunk(tile.height, chunk, threads, [&](int number, std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) maker.copy(number, workers[static_cast<std::size_t>(number)], begin);
    });
  } else {
    // A picture of few rows is cut along them as well, so that every thread has work.
    const std::int64_t pieces = tile.height >= 16 ? 1 : std::min<std::int64_t>(16, tile.width);
    for_each_chunk(tile.height * pieces, 1, threads, [&](int number, std::int64_t job, std::int64_t) {
      const std::int64_t piece = job % pieces;
      maker.reduce(number, workers[static_cast<std::size_t>(number)], job / pieces,
                   part_begin(0, tile.width, piece, pieces), part_begin(0, tile.width, piece + 1, pieces));
    });
  }
  if (collector) *scale = collector->finish();
  if (scale != nullptr && !is_whole) *scale = measure_scale(look, options.threads);
  return tile;
}

}  // namespace tenscope::kernels
