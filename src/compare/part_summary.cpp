#include "compare/part_summary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "compare/sketch_estimate.hpp"
#include "kernels/sketch.hpp"
#include "kernels/summarize.hpp"
#include "store/shards.hpp"

namespace tenscope::compare {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kUnknownZeros = -1;

std::int64_t finite_count(const Stats& stats) { return stats.count - stats.nan - stats.pos_inf - stats.neg_inf; }

// The sum of the finite elements; that of none is 0.
double sum_of(const Stats& stats) {
  const auto count = static_cast<double>(finite_count(stats));
  return count == 0 ? 0 : stats.mean * count;
}

TensorRecord recorded_summary(const Reader& reader, EventId id) {
  auto record = std::get<TensorRecord>(reader.event(id).value);
  const auto sketch = reader.sketch(id);
  record.sketch = sketch ? std::make_shared<const Sketch>(*sketch) : nullptr;
  if (record.sketch == nullptr && record.stats.count == 1 && finite_count(record.stats) == 1) {
    auto of_number = std::make_shared<Sketch>();  // of a single number just the statistics are recorded
    of_number->sums.front() = record.stats.mean;
    record.sketch = std::move(of_number);
  }
  return record;
}

// The sketches of declared parts count elements by their place in the whole, and so add up.
std::shared_ptr<const Sketch> added_sketches(std::span<const TensorRecord> parts) {
  auto total = std::make_shared<Sketch>();
  for (const TensorRecord& part : parts) {
    if (element_count(part.shape) == 0) continue;
    if (part.sketch == nullptr) return nullptr;
    total->add(*part.sketch);
  }
  return total;
}

std::optional<TensorRecord> summary_of_part(const Reader& reader, const PartTensor& part) {
  if (!part.is_declared) return recorded_summary(reader, part.events.front());
  const store::WholeParts parts = store::whole_parts(reader, part.events);
  std::vector<TensorRecord> records;
  for (const EventId id : parts.events) records.push_back(recorded_summary(reader, id));
  if (parts.operation.empty()) {
    TensorRecord whole = join_summaries(records, parts.shape);
    whole.sketch = added_sketches(records);
    return whole;
  }
  if (parts.operation != "sum" && parts.operation != "avg") return std::nullopt;
  auto whole = add_summaries(records);
  if (!whole) return std::nullopt;
  // A part may be one of the summands of a part of the whole.
  const auto elements = static_cast<double>(element_count(parts.shape));
  const double in_parts = static_cast<double>(whole->stats.count) * static_cast<double>(records.size());
  whole->stats.mean *= static_cast<double>(whole->stats.count) / elements;
  whole->stats.count = element_count(parts.shape);
  whole->shape = parts.shape;
  return parts.operation == "avg" ? scale_summary(std::move(*whole), elements / in_parts) : whole;
}

std::optional<TensorRecord> fold_summaries(const Fold& fold, std::size_t taken,
                                           std::span<std::optional<TensorRecord>> parts) {
  if (fold.how == Fold::How::Same) return parts[taken];
  std::vector<TensorRecord> known;
  for (const auto& part : parts) {
    if (!part) return std::nullopt;
    known.push_back(*part);
  }
  if (known.size() == 1) return known.front();
  if (fold.how == Fold::How::Join) {
    Shape shape = known.front().shape;
    const auto axis = static_cast<std::size_t>(fold.axis);
    shape[axis] = 0;
    for (const TensorRecord& part : known) shape[axis] += part.shape[axis];
    return join_summaries(known, std::move(shape));
  }
  auto whole = add_summaries(known);
  if (whole && fold.how == Fold::How::Mean) return scale_summary(*whole, 1 / static_cast<double>(known.size()));
  return whole;
}

}  // namespace

TensorRecord join_summaries(std::span<const TensorRecord> parts, Shape shape) {
  TensorRecord whole{.dtype = parts.front().dtype, .shape = std::move(shape), .device = parts.front().device};
  Stats& all = whole.stats;
  double sum = 0;
  long double l2 = 0;  // the hypot of doubles would ask for glibc 2.35
  for (const TensorRecord& part : parts) {
    const Stats& one = part.stats;
    all.count += one.count;
    all.nan += one.nan;
    all.pos_inf += one.pos_inf;
    all.neg_inf += one.neg_inf;
    all.zero = all.zero == kUnknownZeros || one.zero == kUnknownZeros ? kUnknownZeros : all.zero + one.zero;
    all.subnormal += one.subnormal;
    if (finite_count(one) == 0) continue;
    // NaN of none so far is replaced, NaN of a part that is not known is kept.
    const bool is_first = finite_count(all) - finite_count(one) == 0;
    const auto fold = [&](double& so_far, double next, auto choose) {
      so_far = is_first ? next : std::isnan(so_far) || std::isnan(next) ? kUnknown : choose(so_far, next);
    };
    fold(all.min, one.min, [](double x, double y) { return std::min(x, y); });
    fold(all.max, one.max, [](double x, double y) { return std::max(x, y); });
    fold(all.abs_max, one.abs_max, [](double x, double y) { return std::max(x, y); });
    sum += sum_of(one);
    l2 = std::hypot(l2, one.l2);  // squares may overflow
  }
  const auto count = static_cast<double>(finite_count(all));
  if (count == 0) return whole;
  all.mean = sum / count;
  all.l2 = static_cast<double>(l2);
  const double root_mean_square = all.l2 / std::sqrt(count);
  all.std =
      std::sqrt(std::max(0.0, root_mean_square - all.mean)) * std::sqrt(std::max(0.0, root_mean_square + all.mean));
  return whole;
}

std::optional<TensorRecord> add_summaries(std::span<const TensorRecord> parts) {
  TensorRecord whole = parts.front();
  whole.fingerprint = {};
  whole.blob.reset();
  whole.file.clear();
  double sum = 0;
  for (const TensorRecord& part : parts) {
    if (finite_count(part.stats) != part.stats.count) return std::nullopt;
    sum += sum_of(part.stats);
  }
  whole.sketch = added_sketches(parts);
  if (whole.sketch == nullptr) return std::nullopt;
  Stats& stats = whole.stats;
  stats.mean = stats.count == 0 ? kUnknown : sum / static_cast<double>(stats.count);
  stats.min = stats.max = stats.std = stats.l2 = stats.abs_max = kUnknown;
  stats.zero = kUnknownZeros;
  return whole;
}

TensorRecord scale_summary(TensorRecord summary, double factor) {
  summary.fingerprint = {};
  Stats& stats = summary.stats;
  for (double* value : {&stats.min, &stats.max, &stats.mean}) *value *= factor;
  for (double* value : {&stats.std, &stats.l2, &stats.abs_max}) *value *= std::abs(factor);
  if (factor < 0) std::swap(stats.min, stats.max);
  if (summary.sketch != nullptr) {
    auto sketch = std::make_shared<Sketch>();
    sketch->add(*summary.sketch, factor);
    summary.sketch = std::move(sketch);
  }
  return summary;
}

void complete_summaries(TensorRecord& a, TensorRecord& b) {
  const bool are_sums = std::isnan(a.stats.l2) && std::isnan(b.stats.l2) && a.sketch != nullptr;
  if (are_sums && a.stats.count > 0) {
    // As normal numbers of this length have it.
    const auto root = std::sqrt(static_cast<double>(a.stats.count));
    a.stats.l2 = std::sqrt(dot(*a.sketch, *a.sketch));
    a.stats.std = a.stats.l2 / root;
    a.stats.abs_max = a.stats.std * std::min(root, 3.0);
    a.stats.min = -a.stats.abs_max;
    a.stats.max = a.stats.abs_max;
  }
  for (const auto& [to, from] : {std::pair(&a.stats, &b.stats), std::pair(&b.stats, &a.stats)}) {
    for (double Stats::* value : {&Stats::min, &Stats::max, &Stats::mean, &Stats::std, &Stats::l2, &Stats::abs_max})
      if (std::isnan(to->*value)) to->*value = from->*value;
    if (to->zero == kUnknownZeros) to->zero = from->zero;
  }
}

PartSummaries part_summaries(const Reader& reader, const PartSet& set) {
  PartSummaries result;
  for (const PartTensor& part : set.parts) result.push_back(summary_of_part(reader, part));
  return result;
}

std::optional<TensorRecord> summary_of(const PartSet& set, const PartSummaries& parts, const Arrangement& how) {
  auto whole = fold_grid(how.assembly, in_order(how, set.ranks, set.passes, parts), fold_summaries);
  if (whole && !how.assembly.shaped_as.empty()) whole->shape = how.assembly.shaped_as;
  return whole;
}

TensorRecord summary_of(const HostTensor& whole) {
  const Summary summary = kernels::summarize(whole.view());
  return {.dtype = whole.dtype,
          .shape = whole.shape,
          .device = "cpu",
          .fingerprint = summary.fingerprint,
          .stats = summary.stats,
          .sketch = std::make_shared<const Sketch>(kernels::sketch(whole.view()))};
}

}  // namespace tenscope::compare
