// diff_runs and diff_ranks: the comparison on run folders. Tensors are mapped when two fingerprints differ, and each
// pair of contents is measured once: a module's output is the next one's input.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "compare/measure.hpp"
#include "compare/run_diff.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {
namespace {

namespace fs = std::filesystem;
using compare::Item;
using compare::PairError;

// From statistics alone: a lower bound of the true difference.
PairError measure_statistics(const TensorRecord& a, const TensorRecord& b) {
  PairError error;
  error.remark = "only statistics were kept";
  if (a.shape != b.shape) {
    error.is_comparable = false;
    error.remark = "the shapes differ";
    return error;
  }
  const Stats &x = a.stats, &y = b.stats;
  error.count = x.count;
  error.differing = 1;
  error.has_other_finite = x.nan != y.nan || x.pos_inf != y.pos_inf || x.neg_inf != y.neg_inf;
  error.scale = x.abs_max;
  for (const auto& [p, q] : {std::pair{x.min, y.min}, {x.max, y.max}, {x.mean, y.mean}, {x.std, y.std}})
    if (std::isfinite(p) && std::isfinite(q)) error.max_abs = std::max(error.max_abs, std::abs(p - q));
  error.rel_l2 = x.l2 > 0 ? std::abs(x.l2 - y.l2) / x.l2 : 0;
  return error;
}

class FileComparer {
 public:
  FileComparer(const Reader& a, const Reader& b) : a_(a), b_(b) {}

  PairError measure(const Item& x, const Item& y) {
    if (x.is_tensor != y.is_tensor) return {.is_comparable = false, .remark = "a tensor on one side only"};
    if (!x.is_tensor) {
      if (x.has_number && y.has_number) return compare::measure_numbers(x.number, y.number);
      return {.is_comparable = false, .remark = "the values differ"};
    }
    if (x.shape != y.shape) return {.is_comparable = false, .remark = "the shapes differ"};
    const auto [place, is_new] = measured_.try_emplace(ContentPair{x.fingerprint, y.fingerprint, x.dtype, y.dtype});
    if (is_new) place->second = measure_tensors(x, y);
    return place->second;
  }

  std::optional<compare::UpdateError> measure_update(const compare::UpdateItems& x,
                                                     const compare::UpdateItems& y) const {
    for (const compare::UpdateItems* items : {&x, &y})
      for (const Item* item : {items->before, items->after, items->gradient}) {
        const bool is_like_the_first = item->dtype == x.after->dtype && item->shape == x.after->shape;
        if (!item->has_bytes || !is_like_the_first || kind_of(item->dtype) != DTypeKind::Float) return std::nullopt;
      }
    std::vector<TensorData> held;
    const auto tensors = [&](const Reader& reader, const compare::UpdateItems& items) {
      const auto view = [&](const Item* item) { return held.emplace_back(reader.tensor(item->event)).view; };
      return compare::UpdateTensors{view(items.before), view(items.after), view(items.gradient)};
    };
    const compare::UpdateTensors of_a = tensors(a_, x), of_b = tensors(b_, y);
    return compare::measure_update(of_a, of_b);
  }

  DiffMetrics describe(const Item& x, const Item& y) const {
    if (x.is_tensor && y.is_tensor && x.has_bytes && y.has_bytes) {
      const TensorData data_a = a_.tensor(x.event), data_b = b_.tensor(y.event);
      return compare::describe(data_a.view, data_b.view);
    }
    DiffMetrics metrics;
    PairError error;
    if (x.is_tensor && y.is_tensor) {
      const auto tensor_a = std::get<TensorRecord>(a_.event(x.event).value),
                 tensor_b = std::get<TensorRecord>(b_.event(y.event).value);
      metrics.dtype_a = to_string(tensor_a.dtype);
      metrics.dtype_b = to_string(tensor_b.dtype);
      metrics.shape_a = tensor_a.shape;
      metrics.shape_b = tensor_b.shape;
      error = measure_statistics(tensor_a, tensor_b);
    } else if (x.has_number && y.has_number) {
      error = compare::measure_numbers(x.number, y.number);
      metrics.worst_a = x.number;
      metrics.worst_b = y.number;
    } else {
      error.is_comparable = false;
      error.remark = x.is_tensor != y.is_tensor ? "a tensor on one side only" : "the values differ";
    }
    metrics.count = error.count;
    metrics.differing = error.differing;
    metrics.remark = error.remark;
    metrics.max_abs = error.is_comparable ? error.max_abs : std::numeric_limits<double>::quiet_NaN();
    metrics.rel_max = error.is_comparable ? error.relative() : std::numeric_limits<double>::quiet_NaN();
    metrics.rel_l2 = error.rel_l2;
    return metrics;
  }

 private:
  struct ContentPair {
    Fingerprint a, b;
    DType dtype_a, dtype_b;
    friend bool operator==(const ContentPair&, const ContentPair&) = default;
  };
  struct ContentHash {
    std::size_t operator()(const ContentPair& pair) const noexcept {
      return pair.a.low ^ (pair.b.low * 0x9E3779B97F4A7C15ULL);
    }
  };

  PairError measure_tensors(const Item& x, const Item& y) const {
    if (!x.has_bytes || !y.has_bytes)
      return measure_statistics(std::get<TensorRecord>(a_.event(x.event).value),
                                std::get<TensorRecord>(b_.event(y.event).value));
    const TensorData data_a = a_.tensor(x.event), data_b = b_.tensor(y.event);
    return compare::measure(data_a.view, data_b.view);
  }

  const Reader& a_;
  const Reader& b_;
  std::unordered_map<ContentPair, PairError, ContentHash> measured_;
};

}  // namespace

namespace compare {

bool is_run_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !list_runs(path).empty();
}

}  // namespace compare

RunDiff diff_runs(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  // The second run is read by another thread, with an interner of its own.
  compare::Interner interner, interner_b;
  std::optional<Reader> opened_b;
  compare::Timeline timeline_b;
  std::future<void> reading_b = std::async(std::launch::async, [&] {
    opened_b.emplace(b);
    timeline_b = compare::read_timeline(*opened_b, interner_b);
  });
  const Reader reader_a(a);
  const compare::Timeline timeline_a = compare::read_timeline(reader_a, interner);
  reading_b.get();
  const Reader& reader_b = *opened_b;
  compare::translate(timeline_b, interner_b, interner);
  FileComparer comparer(reader_a, reader_b);
  RunDiff diff = compare::diff_timelines(
      timeline_a, timeline_b, interner,
      {.pair = [&](const Item& x, const Item& y) { return comparer.measure(x, y); },
       .update = [&](const auto& x, const auto& y) { return comparer.measure_update(x, y); }},
      [&](const Item& x, const Item& y) { return comparer.describe(x, y); }, options);
  diff.a = reader_a.path().string();
  diff.b = reader_b.path().string();
  for (const auto& [reader, which] : {std::pair{&reader_a, "first"}, std::pair{&reader_b, "second"}}) {
    for (const Problem& problem : reader->problems())
      diff.notes.push_back(
          fmt::format("{} run: {} at byte {} of {}", which, problem.reason, problem.offset, problem.file.string()));
    for (const WriterInfo& writer : reader->writers())
      if (!writer.closed)
        diff.notes.push_back(
            fmt::format("{} run: {} was not closed: the process died or is still running", which, writer.folder));
  }
  return diff;
}

std::vector<RankDifference> diff_ranks(const fs::path& run) {
  const Reader reader(run);
  compare::Interner interner;
  const compare::Timeline timeline = compare::read_timeline(reader, interner);
  if (timeline.lanes.size() < 2)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot compare ranks: the run has only one: {}", run.string()));
  FileComparer comparer(reader, reader);

  // What a tensor was at a moment of a rank's own time; `nth` counts events within a phase of a step.
  struct Key {
    compare::TextId root, name;
    compare::Io io;
    std::int64_t step;
    compare::Phase phase;
    int nth;
    auto operator<=>(const Key&) const = default;
    bool is_of(const Key& other) const { return root == other.root && name == other.name && io == other.io; }
  };
  std::map<Key, const Item*> reference;
  // Gradients that are still being accumulated may differ: the last backward of a step counts.
  std::map<std::int64_t, std::int64_t> last_backward;
  for (const compare::Lane& lane : timeline.lanes)
    for (const Item& item : lane.items)
      if (item.io == compare::Io::Grad) last_backward[item.step] = std::max(last_backward[item.step], item.call);
  const auto is_shared = [&](const Item& item) {
    if (!item.is_tensor) return false;
    if (item.io == compare::Io::Grad) return item.call == last_backward[item.step];
    return item.io == compare::Io::Param || item.io == compare::Io::Buffer;
  };
  std::map<Key, int> counts;
  const auto key_of = [&](const Item& item) {
    Key key{item.root, item.name, item.io, item.step, item.phase, 0};
    key.nth = counts[key]++;
    return key;
  };
  for (const Item& item : timeline.lanes[0].items)
    if (is_shared(item)) reference.emplace(key_of(item), &item);
  // Parameters and buffers are recorded when they change: where the other rank has no such event, its last one counts.
  const auto counterpart = [&](const Key& key) -> const Item* {
    auto after = reference.upper_bound(key);
    if (after == reference.begin()) return nullptr;
    const auto& [other, item] = *std::prev(after);
    return other == key || (key.io != compare::Io::Grad && other.is_of(key)) ? item : nullptr;
  };

  std::map<std::pair<compare::TextId, compare::Io>, std::size_t> found;  // by name and role, into result
  std::vector<RankDifference> result;
  for (std::size_t lane = 1; lane < timeline.lanes.size(); ++lane) {
    counts.clear();
    for (const Item& item : timeline.lanes[lane].items) {
      if (!is_shared(item)) continue;
      const Item* other = counterpart(key_of(item));
      if (other == nullptr || (other->fingerprint == item.fingerprint && other->shape == item.shape)) continue;
      const auto [place, is_new] = found.try_emplace({item.name, item.io}, result.size());
      const int rank = timeline.lanes[lane].rank;
      if (is_new) {
        RankDifference difference;
        difference.place = {.root = std::string(interner.text(item.root)),
                            .module = std::string(interner.text(item.scope)),
                            .name = std::string(interner.text(item.name)),
                            .io = std::string(to_string(item.io)),
                            .phase = std::string(to_string(item.phase)),
                            .cls = std::string(interner.text(item.cls)),
                            .site = {},
                            .step = item.step,
                            .call = item.call,
                            .rank = rank};
        difference.ranks.push_back(rank);
        difference.rel_max = comparer.measure(*other, item).relative();
        result.push_back(std::move(difference));
        continue;
      }
      RankDifference& difference = result[place->second];
      if (std::find(difference.ranks.begin(), difference.ranks.end(), rank) == difference.ranks.end())
        difference.ranks.push_back(rank);
      if (item.step < difference.place.step) difference.place.step = item.step;
    }
  }
  // Buffers (running statistics) are often each rank's own: they stand last.
  std::stable_sort(result.begin(), result.end(), [](const RankDifference& x, const RankDifference& y) {
    return std::pair(x.place.io == "buffer", x.place.step) < std::pair(y.place.io == "buffer", y.place.step);
  });
  return result;
}

}  // namespace tenscope
