#include "compare/run_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>

#include "compare/call_key.hpp"
#include "compare/draw.hpp"
#include "compare/mask.hpp"
#include "compare/shape.hpp"
#include "compare/sketch_estimate.hpp"
#include "kernels/element.hpp"
#include "store/recorded_part.hpp"

namespace tenscope::compare {
namespace {

std::string number_text(const Item& item, const Interner& interner) {
  switch (item.value) {
    case ValueKind::Null:
      return "None";
    case ValueKind::Bool:
      return item.integer != 0 ? "True" : "False";
    case ValueKind::Integer:
      return fmt::format("{}", item.integer);
    case ValueKind::Float:
      return fmt::format("{}", item.number);
    default:
      return std::string(interner.text(item.text));
  }
}

// A text beside what is none: "5" became 5.
std::string value_text(const Item& item, const Item& other, const Interner& interner) {
  if (item.is_tensor()) return {};
  const std::string text = number_text(item, interner);
  return item.value == ValueKind::Text && other.value != ValueKind::Text ? fmt::format("\"{}\"", text) : text;
}

TensorView view_of(const std::vector<double>& values, const Shape& shape) {
  return {.data = values.data(), .dtype = DType::F64, .shape = shape};
}

}  // namespace

std::size_t RunValues::ContentHash::operator()(const ContentPair& pair) const noexcept {
  return mix_hash(mix_hash(pair.shape, pair.a.low), pair.b.low);
}

namespace {

// The only element of a tensor, as a number; it stays a tensor where it is a complex one.
Item number_of(const Item& tensor, const std::byte* element, Interner& interner) {
  Item number = tensor;
  kernels::visit_dtype(tensor.dtype, [&]<class T>(T) {
    const T value = kernels::load<T>(element);
    if constexpr (std::is_same_v<T, kernels::Bool>) {
      number.value = ValueKind::Bool;
      number.integer = value.bits != 0 ? 1 : 0;
    } else if constexpr (std::is_integral_v<T>) {
      if (!std::in_range<std::int64_t>(value)) {
        number.value = ValueKind::BigInteger;
        number.text = interner.text(std::to_string(value));
        return;
      }
      number.value = ValueKind::Integer;
      number.integer = static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): int8 is a number here
    } else if constexpr (!kernels::kIsComplex<T>) {
      number.value = ValueKind::Float;
      number.number = kernels::to_double(value);
    }
  });
  return number;
}

// Statistics are doubles.
constexpr double kLargestExact = 0x1p53;

bool is_rounded(const Item& tensor, const Stats& stats) {
  return is_exact(tensor.dtype) && stats.abs_max >= kLargestExact;
}

// The same from its statistics.
Item number_of(const Item& tensor, const Stats& stats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Item number = tensor;
  if (!is_exact(tensor.dtype) || is_rounded(tensor, stats)) {
    number.value = ValueKind::Float;
    number.number = stats.nan > 0       ? std::numeric_limits<double>::quiet_NaN()
                    : stats.pos_inf > 0 ? kInfinity
                    : stats.neg_inf > 0 ? -kInfinity
                                        : stats.min;
  } else {
    number.value = tensor.dtype == DType::Bool ? ValueKind::Bool : ValueKind::Integer;
    number.integer = static_cast<std::int64_t>(stats.min);
  }
  return number;
}

Item rounded(const Item& item, const Interner& interner) {
  Item number = item;
  number.value = ValueKind::Float;
  if (item.value == ValueKind::BigInteger)
    number.number = std::strtod(std::string(interner.text(item.text)).c_str(), nullptr);
  else if (item.value != ValueKind::Float)
    number.number = static_cast<double>(item.integer);
  return number;
}

}  // namespace

// A tensor of one real number where the other run has a plain one: `loss` and `loss.item()`.
std::optional<RunValues::Numbers> RunValues::as_numbers(const Item& x, const Item& y) const {
  if (x.is_tensor() == y.is_tensor()) return std::nullopt;
  bool are_rounded = false;
  const auto number = [&](const TensorSource& source, const Item& item) {
    if (!item.is_tensor() || kind_of(item.dtype) == DTypeKind::Complex) return item;
    const TensorRecord record = source.record(item);
    if (element_count(record.shape) != 1) return item;
    if (!item.has_bytes) {
      are_rounded = is_rounded(item, record.stats);
      return number_of(item, record.stats);
    }
    const TensorData data = source.data(item);
    return number_of(item, static_cast<const std::byte*>(data.view.data), interner_);
  };
  const Item a = number(a_, x), b = number(b_, y);
  if (!a.is_number() || !b.is_number()) return std::nullopt;
  if (are_rounded) return Numbers{rounded(a, interner_), rounded(b, interner_), true};
  return Numbers{a, b};
}

PairError RunValues::measure_other_values(const Item& x, const Item& y) const {
  const auto numbers = as_numbers(x, y);
  if (!numbers) return measure_values(x, y, interner_);
  PairError error = measure_values(numbers->a, numbers->b, interner_);
  if (numbers->are_rounded) {
    error.is_lower_bound = true;
    error.obstacle = DiffObstacle::OnlyStatistics;
  }
  return error;
}

PairError RunValues::measure(const Item& x, const Item& y) {
  if (!x.is_tensor() || !y.is_tensor()) return measure_other_values(x, y);
  if (x.shape != y.shape && !are_comparable(x, y)) return {.is_comparable = false, .obstacle = DiffObstacle::Shapes};
  const auto [place, is_new] =
      measured_.try_emplace(ContentPair{x.fingerprint, y.fingerprint, x.dtype, y.dtype, x.shape});
  PairError& error = place->second;
  if (is_new || ((error.is_lower_bound || error.is_estimate) && x.has_bytes && y.has_bytes))
    error = measure_tensors(x, y);
  return error;
}

PairError RunValues::estimate(const Item& x, const Item& y) const {
  if (!x.is_tensor() || !y.is_tensor()) return measure_other_values(x, y);
  const auto known = measured_.find({x.fingerprint, y.fingerprint, x.dtype, y.dtype, x.shape});
  if (known != measured_.end()) return known->second;
  if (x.shape != y.shape && !are_comparable(x, y)) return {.is_comparable = false, .obstacle = DiffObstacle::Shapes};
  return measure_summaries(x, y);
}

namespace {

// Index and ranges are those of what was laid out; the report has those of the first run's own tensor, of which that
// may be a part.
void tell_in_first(const Shape& shape, const Layout& layout, DiffMetrics& metrics) {
  if (!metrics.worst_index.empty()) {
    std::int64_t place = 0;
    for (std::size_t k = 0; k < metrics.worst_index.size(); ++k)
      place = place * metrics.shape_a[k] + metrics.worst_index[k];
    place = place_in_first(shape, layout, place);
    metrics.worst_index.assign(shape.size(), 0);
    for (std::size_t axis = shape.size(); axis-- > 0; place /= shape[axis])
      metrics.worst_index[axis] = place % shape[axis];
  }
  std::vector<std::array<std::int64_t, 2>> ranges;
  bool is_known = !metrics.ranges.empty();
  for (std::size_t axis = 0, squeezed = 0, laid = 0; axis < shape.size() && is_known; ++axis) {
    std::array<std::int64_t, 2> own = {0, shape[axis]};
    if (shape[axis] != 1) {
      const auto range = std::ranges::find(layout.of_a, squeezed++, &Layout::Range::axis);
      const bool is_cut = range != layout.of_a.end();
      if (is_cut && range->period > 0) is_known = false;
      const bool is_laid = !is_cut || range->end - range->begin > 1;  // axes of size 1 are left out there
      if (is_laid && laid < metrics.ranges.size()) {
        const auto [first, last] = metrics.ranges[laid];
        const bool is_all = first == 0 && last == metrics.shape_a[laid];  // of what was compared
        const std::int64_t begin = is_cut ? range->begin : 0;
        if (!is_all) own = {begin + first, begin + last};
        ++laid;
      }
    }
    ranges.push_back(own);
  }
  metrics.ranges = is_known ? std::move(ranges) : std::vector<std::array<std::int64_t, 2>>();
  metrics.shape_a = shape;
}

}  // namespace

// Shapes may differ by axes of size 1, and by a layout that was found.
bool RunValues::are_comparable(const Item& x, const Item& y) const {
  if (layouts_.contains({x.event, y.event})) return true;
  return without_ones(a_.record(x).shape) == without_ones(b_.record(y).shape);
}

std::optional<LaidOut> RunValues::laid_out(const Item& x, const Item& y) const {
  const auto found = layouts_.find({x.event, y.event});
  if (found == layouts_.end() || !x.has_bytes || !y.has_bytes) return std::nullopt;
  const TensorData data_a = a_.data(x), data_b = b_.data(y);
  return lay_out(data_a.view, data_b.view, found->second);
}

PairError RunValues::measure_summaries(const Item& x, const Item& y) const {
  const TensorRecord record_a = a_.record(x), record_b = b_.record(y);
  const auto sketches = sketches_of(x, y);
  return sketches ? compare::estimate(record_a, record_b, sketches->first, sketches->second)
                  : measure_statistics(record_a, record_b);
}

// Of both, where they have one and are the same part of a whole.
std::optional<std::pair<Sketch, Sketch>> RunValues::sketches_of(const Item& x, const Item& y) const {
  if (a_.part_id(x) != b_.part_id(y)) return std::nullopt;
  auto sketch_a = a_.sketch(x), sketch_b = b_.sketch(y);
  if (!sketch_a || !sketch_b) return std::nullopt;
  return std::pair(*sketch_a, *sketch_b);
}

PairError RunValues::measure_tensors(const Item& x, const Item& y) const {
  if (!x.has_bytes || !y.has_bytes) return measure_summaries(x, y);
  if (const auto both = laid_out(x, y))
    return compare::measure(view_of(both->a, both->shape), view_of(both->b, both->shape));
  TensorData data_a = a_.data(x), data_b = b_.data(y);
  const Shape shape_a = without_ones(a_.record(x).shape), shape_b = without_ones(b_.record(y).shape);
  if (x.shape != y.shape) {
    data_a.view.shape = shape_a;
    data_b.view.shape = shape_b;
  }
  return compare::measure(data_a.view, data_b.view);
}

ContentSource RunValues::content_source() {
  const auto source = [this](int side) -> const TensorSource& { return side == 0 ? a_ : b_; };
  return {.record = [=](int side, const Item& item) { return source(side).record(item); },
          .data = [=](int side, const Item& item) { return source(side).data(item); },
          .meta = [=](int side, const Item& item) { return source(side).meta(item); },
          .keep = [this](const Item& x, const Item& y,
                         const Layout& layout) { layouts_.insert_or_assign({x.event, y.event}, layout); }};
}

namespace {

// Calls use(tensors of a, tensors of b) where all are floats of one dtype and shape whose bytes were kept.
template <class Use>
auto with_update_tensors(const TensorSource& a, const TensorSource& b, const UpdateItems& x, const UpdateItems& y,
                         Use use) -> std::optional<decltype(use(UpdateTensors{}, UpdateTensors{}))> {
  for (const UpdateItems* items : {&x, &y})
    for (const Item* item : {items->before, items->after, items->gradient}) {
      if (item == nullptr) continue;
      const bool is_like_the_first = item->dtype == x.after->dtype && item->shape == x.after->shape;
      if (!item->has_bytes || !is_like_the_first || kind_of(item->dtype) != DTypeKind::Float) return std::nullopt;
    }
  std::vector<TensorData> held;
  const auto tensors = [&](const TensorSource& source, const UpdateItems& items) {
    const auto view = [&](const Item* item) {
      return item == nullptr ? TensorView{} : held.emplace_back(source.data(*item)).view;
    };
    return UpdateTensors{view(items.before), view(items.after), view(items.gradient)};
  };
  const UpdateTensors of_a = tensors(a, x), of_b = tensors(b, y);
  return use(of_a, of_b);
}

}  // namespace

std::optional<UpdateError> RunValues::measure_update(const UpdateItems& x, const UpdateItems& y) const {
  if (const auto error = with_update_tensors(a_, b_, x, y, compare::measure_update)) return error;
  for (const UpdateItems* items : {&x, &y})
    if (items->before == nullptr || items->gradient == nullptr) return std::nullopt;
  if (x.after->dtype != y.after->dtype || kind_of(x.after->dtype) != DTypeKind::Float) return std::nullopt;
  const auto before = sketches_of(*x.before, *y.before), after = sketches_of(*x.after, *y.after);
  const auto gradient = sketches_of(*x.gradient, *y.gradient);
  if (!before || !after || !gradient) return std::nullopt;
  return estimate_update({before->first, after->first, gradient->first},
                         {before->second, after->second, gradient->second}, x.after->dtype);
}

std::optional<DiffUpdate> RunValues::describe_update(const UpdateItems& x, const UpdateItems& y) const {
  return with_update_tensors(a_, b_, x, y, compare::describe_update);
}

bool RunValues::is_same_mask(const Item& x, const Item& y) const {
  if (!x.is_tensor() || !y.is_tensor() || !x.has_bytes || !y.has_bytes) return false;
  const TensorData data_a = a_.data(x), data_b = b_.data(y);
  return compare::is_same_mask(data_a.view, data_b.view);
}

DiffDistribution RunValues::measure_distribution(const Item& x, const Item& y) {
  const TensorRecord record = a_.record(x);
  DiffDistribution result = compare_distributions(record, b_.record(y), measure(x, y));
  // Of a few numbers the correlation does not tell, but a relation does.
  constexpr std::int64_t kFew = 1024;
  if (result.is_independent && record.stats.count <= kFew && x.has_bytes && y.has_bytes) {
    const TensorData data_a = a_.data(x), data_b = b_.data(y);
    result.is_independent = find_relation(data_a.view, data_b.view).empty();
  }
  return result;
}

DiffMetrics RunValues::describe(const Item& x, const Item& y) const {
  if (const auto both = laid_out(x, y)) {
    DiffMetrics metrics = compare::describe(view_of(both->a, both->shape), view_of(both->b, both->shape));
    metrics.dtype_a = type_name(x);
    metrics.dtype_b = type_name(y);
    metrics.shape_b = b_.record(y).shape;
    const Layout& layout = layouts_.at({x.event, y.event});
    metrics.layout = layout.in_words();
    tell_in_first(a_.record(x).shape, layout, metrics);
    return metrics;
  }
  if (x.is_tensor() && y.is_tensor() && x.has_bytes && y.has_bytes) {
    const TensorData data_a = a_.data(x), data_b = b_.data(y);
    return compare::describe(data_a.view, data_b.view);
  }
  DiffMetrics metrics;
  PairError error;
  metrics.dtype_a = type_name(x);
  metrics.dtype_b = type_name(y);
  if (x.is_tensor() && y.is_tensor()) {
    const TensorRecord tensor_a = a_.record(x), tensor_b = b_.record(y);
    metrics.shape_a = tensor_a.shape;
    metrics.shape_b = tensor_b.shape;
    metrics.nan_a = tensor_a.stats.nan;
    metrics.nan_b = tensor_b.stats.nan;
    metrics.inf_a = tensor_a.stats.pos_inf + tensor_a.stats.neg_inf;
    metrics.inf_b = tensor_b.stats.pos_inf + tensor_b.stats.neg_inf;
    error = measure_summaries(x, y);
  } else {
    error = measure_other_values(x, y);
    const auto numbers = as_numbers(x, y);
    const Item &shown_a = numbers ? numbers->a : x, &shown_b = numbers ? numbers->b : y;
    metrics.worst_a = value_text(shown_a, shown_b, interner_);
    metrics.worst_b = value_text(shown_b, shown_a, interner_);
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  metrics.count = error.count;
  metrics.differing = error.differing;
  metrics.obstacle = error.obstacle;
  metrics.max_abs = error.is_comparable ? error.max_abs : kNan;
  metrics.rel_max = error.is_comparable ? error.relative() : kNan;
  metrics.rel_l2 = error.is_comparable ? error.rel_l2 : kNan;
  const bool has_correlation = error.obstacle == DiffObstacle::None || error.is_estimate;
  metrics.correlation = has_correlation ? error.correlation : kNan;
  metrics.rel_l2_error = metrics.rel_l2 * error.uncertainty;
  return metrics;
}

}  // namespace tenscope::compare
