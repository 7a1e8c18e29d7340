#include "compare/call_budget.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "compare/noise.hpp"
#include "compare/relation_values.hpp"
#include "compare/replay_attention.hpp"
#include "compare/shape.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

// Some of so many rows or columns, evenly spread.
std::vector<std::int64_t> some_of(std::int64_t all, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  const std::int64_t count = std::min(all, most);
  for (std::int64_t k = 0; k < count; ++k) chosen.push_back(k * all / count);
  return chosen;
}

std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool has_real_bytes(const Item& item) { return item.has_bytes && kind_of(item.dtype) != DTypeKind::Complex; }

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

std::vector<const RowSample*> pointers(const std::vector<RowSample>& samples) {
  std::vector<const RowSample*> result;
  for (const RowSample& one : samples) result.push_back(&one);
  return result;
}

}  // namespace

void CallBudget::Squares::add(const Tensor& tensor) {
  size += tensor.size * tensor.size;
  error += tensor.error * tensor.error;
}

void CallBudget::Squares::add(const Squares& other) {
  size += other.size;
  error += other.error;
}

std::size_t CallBudget::enter(int node, std::optional<std::size_t> parent) {
  frames_.push_back({.node = node, .parent = parent});
  if (parent) frames_[*parent].has_calls = true;
  return frames_.size() - 1;
}

void CallBudget::take_input(std::size_t frame, const Item& a, const Item& b) {
  const auto [id, is_new] = tensor_of(a, b);
  if (const auto parent = frames_[frame].parent) {
    if (is_new) {
      compute(*parent, id);
      frames_[*parent].at_hand.push_back(id);
    }
    frames_[*parent].used.insert(id);
  } else {
    given_.insert(id);
  }
  frames_[frame].at_hand.push_back(id);
}

void CallBudget::take_output(std::size_t frame, const Item& a, const Item& b) {
  const auto [id, is_new] = tensor_of(a, b);
  if (is_new) compute(frame, id);
  if (const auto parent = frames_[frame].parent) {
    std::vector<std::size_t>& at_hand = frames_[*parent].at_hand;
    if (std::ranges::find(at_hand, id) == at_hand.end()) at_hand.push_back(id);
  } else {
    outputs_.push_back(id);
  }
}

void CallBudget::finish() {
  const std::string root(interner_.text(node(frames_.front().node).root));
  BudgetSums::Root& into = sums_.roots.try_emplace(root, BudgetSums::Root{.order = sums_.roots.size()}).first->second;
  ++into.calls;
  Squares leaving;
  for (const std::size_t id : outputs_)
    if (tensors_[id].is_known()) leaving.add(tensors_[id]);
  into.leaving += leaving.relative();
  shares_.resize(computations_.size());
  if (leaving.error > 0) follow_back(leaving.error, into);
  add_modules(root);
}

// A tensor that was seen before in this call has the same numbers, in both runs.
std::pair<std::size_t, bool> CallBudget::tensor_of(const Item& a, const Item& b) {
  const std::array<std::uint64_t, 4> key = {a.fingerprint.low, a.fingerprint.high, b.fingerprint.low,
                                            b.fingerprint.high};
  const bool has_key = a.fingerprint != Fingerprint() && b.fingerprint != Fingerprint();
  if (has_key)
    if (const auto found = by_content_.find(key); found != by_content_.end()) return {found->second, false};
  Tensor tensor{.a = &a, .b = &b};
  tensor.size = measures_.source_a->record(a).stats.l2;
  if (std::isnan(tensor.size)) tensor.size = 0;
  if (!is_same_value(a, b)) {
    const PairError error = measures_.pair(a, b);
    const bool is_known = error.is_comparable && !error.is_lower_bound && !error.has_other_finite &&
                          std::isfinite(error.rel_l2) && tensor.size > 0;
    const bool is_equal = error.is_comparable && !error.is_lower_bound && !error.is_estimate && error.differing == 0;
    tensor.error = is_equal ? 0 : is_known ? error.rel_l2 * tensor.size : std::numeric_limits<double>::quiet_NaN();
  }
  tensors_.push_back(tensor);
  if (has_key) by_content_.emplace(key, tensors_.size() - 1);
  return {tensors_.size() - 1, true};
}

void CallBudget::compute(std::size_t frame_id, std::size_t result) {
  Frame& frame = frames_[frame_id];
  Computation made{.frame = frame_id, .result = result};
  // The code of a module around others has used what it gave to them: what is left is what it computes from, unless the
  // numbers say otherwise.
  std::vector<std::size_t> sources;
  for (const std::size_t id : frame.at_hand)
    if (!frame.has_calls || !frame.used.contains(id)) sources.push_back(id);
  if (sources.empty()) sources = frame.at_hand;
  const auto is_known = [&](std::size_t id) { return tensors_[id].is_known(); };
  const auto has_error = [&](std::size_t id) { return tensors_[id].error > 0; };
  made.is_known = is_known(result) && std::ranges::all_of(sources, is_known);
  const bool may_be_replayed = made.is_known && has_error(result) && std::ranges::any_of(frame.at_hand, has_error);
  if (may_be_replayed && by_replay(frame, made)) {
    sources.clear();
    for (const auto& [id, share] : made.sources) sources.push_back(id);
  } else if (made.is_known) {
    by_sizes(sources, made);
  }
  if (made.is_known) {
    made.leaving.add(tensors_[result]);
    for (const std::size_t id : sources) made.arriving.add(tensors_[id]);
  }
  frame.used.insert(sources.begin(), sources.end());
  computations_.push_back(std::move(made));
}

// Where nothing is known of the computation, relative errors are taken to leave as large as they arrive. A module that
// is the same in both runs adds no more than the rounding of its result: what is beyond that is amplified.
void CallBudget::by_sizes(const std::vector<std::size_t>& sources, Computation& made) const {
  const Tensor& result = tensors_[made.result];
  Squares arriving;
  for (const std::size_t id : sources) arriving.add(tensors_[id]);
  const double leaving = result.error * result.error;
  const double size = result.size * result.size;
  made.handed_on = std::min(leaving, arriving.relative() * size);
  made.added = leaving - made.handed_on;
  made.is_assumed = arriving.error > 0;
  if (made.is_assumed && is_same_code(frames_[made.frame])) {
    const DType coarser =
        unit_roundoff(result.a->dtype) > unit_roundoff(result.b->dtype) ? result.a->dtype : result.b->dtype;
    const double rounding = default_tolerance(coarser);
    made.added = std::min(made.added, rounding * rounding * size);
    made.handed_on = leaving - made.added;
  }
  made.share_added = leaving > 0 ? made.added / leaving : 0;
  for (const std::size_t id : sources)
    if (tensors_[id].error > 0)
      made.sources.emplace_back(id, (1 - made.share_added) * tensors_[id].error * tensors_[id].error / arriving.error);
}

// What the module's code has at hand, the newest first: they are the likeliest.
template <class Sample>
CallBudget::Sources CallBudget::sources_of(const Frame& frame, Sample sample) const {
  Sources sources;
  for (auto it = frame.at_hand.rbegin(); it != frame.at_hand.rend() && sources.ids.size() < kMostSources; ++it) {
    if (std::ranges::find(sources.ids, *it) != sources.ids.end() || !tensors_[*it].is_known()) continue;
    RowSample one = sample(tensors_[*it]);
    if (one.rows == 0) continue;
    sources.samples.push_back(std::move(one));
    sources.ids.push_back(*it);
  }
  return sources;
}

bool CallBudget::by_replay(const Frame& frame, Computation& made) const {
  const Tensor& result = tensors_[made.result];
  if (!has_real_bytes(*result.a) || !has_real_bytes(*result.b)) return by_sketches(frame, made);
  const Shape shape = measures_.source_a->record(*result.a).shape;
  const std::int64_t count = count_of(shape);
  if (count == 0) return false;
  RowChoice choice{.all = count / (shape.empty() ? 1 : shape.back()), .cols = shape.empty() ? 1 : shape.back()};
  choice.rows = some_of(choice.all, std::max(thresholds::kReplayElements / choice.cols, 2 * thresholds::kReplayRows));
  const RowSample sample = sample_of(*result.a, result.b, choice);
  if (sample.rows == 0) return false;
  const auto [samples, ids] =
      sources_of(frame, [&](const Tensor& tensor) { return sample_of(*tensor.a, tensor.b, choice); });
  const std::vector<RowSample> constants = constants_of(frame, choice, sample);
  const auto of_sources = pointers(samples), of_constants = pointers(constants);
  const auto handed = replay(
      {.result = sample, .sources = of_sources, .constants = of_constants, .unit = unit_roundoff(result.a->dtype)});
  if (handed) return divide(sample, *handed, ids, made);
  return by_matrix(frame, std::move(choice), made) || (frame.has_calls && by_attention(frame, made));
}

// One of the module's matrices: some columns of the result, of as many rows as that allows.
bool CallBudget::by_matrix(const Frame& frame, RowChoice choice, Computation& made) const {
  choice.columns = some_of(choice.cols, thresholds::kReplayColumns);
  const std::vector<WeightMatrix> weights = matrices(frame.node, choice);
  if (weights.empty()) return false;
  std::int64_t products = 1;  // for each row
  for (const WeightMatrix& weight : weights) products = std::max(products, weight.in * weight.out);
  choice.rows = some_of(choice.all, std::max<std::int64_t>(2, thresholds::kReplayProducts / products));
  const Tensor& result = tensors_[made.result];
  const RowSample sample = sample_of(*result.a, result.b, choice);
  const std::vector<RowSample> constants = constants_of(frame, choice, sample);
  RowChoice whole = choice;  // of sources all columns are needed
  whole.columns.clear();
  const auto [samples, ids] =
      sources_of(frame, [&](const Tensor& tensor) { return sample_of(*tensor.a, tensor.b, whole); });
  const auto of_sources = pointers(samples), of_constants = pointers(constants);
  const auto handed = replay_matrix(
      {.result = sample, .sources = of_sources, .constants = of_constants, .unit = unit_roundoff(result.a->dtype)},
      weights);
  return handed && divide(sample, *handed, ids, made);
}

// Parameters of the module itself that may be terms of a sum.
std::vector<RowSample> CallBudget::constants_of(const Frame& frame, const RowChoice& choice,
                                                const RowSample& result) const {
  std::vector<RowSample> constants;
  for (const BudgetParameter& one : parameters_) {
    if (one.node != frame.node || constants.size() >= kMostSources) continue;
    const Shape shape = measures_.source_a->record(*one.item).shape;
    if (shape.empty() || shape.back() != choice.cols) continue;
    RowSample constant = sample_of(*one.item, nullptr, choice);
    if (constant.has_shape_of(result)) constants.push_back(std::move(constant));
  }
  return constants;
}

// Code between modules that is an attention, of queries, keys and values that nothing else has used.
bool CallBudget::by_attention(const Frame& frame, Computation& made) const {
  const Tensor& result = tensors_[made.result];
  Shape shape = measures_.source_a->record(*result.a).shape;
  if (shape.size() < 2) return false;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const std::int64_t length = shape[shape.size() - 2], cols = shape.back();
  const std::int64_t all = count_of(shape);
  if (all == 0 || shape.size() != 3 || length > thresholds::kReplayLength) return false;
  const std::int64_t sequences = std::min<std::int64_t>(shape[0], 4);
  const std::vector<std::int64_t> queries = some_of(length, thresholds::kReplayQueries);
  const auto read = [](const TensorData& data, std::int64_t count) {
    const Elements elements(data.view);
    std::vector<double> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = elements[i];
    return values;
  };
  const auto sample = [&](const Tensor& tensor, std::int64_t of) -> SequenceSample {
    if (!has_real_bytes(*tensor.a) || !has_real_bytes(*tensor.b)) return {};
    const std::int64_t count = count_of(measures_.source_a->record(*tensor.a).shape);
    if (count == 0 || count % (of * length) != 0) return {};
    if (count_of(measures_.source_b->record(*tensor.b).shape) != count) return {};
    const std::int64_t width = count / (of * length), taken = std::min(of, sequences) * length * width;
    return {.cols = width,
            .a = read(measures_.source_a->data(*tensor.a), taken),
            .b = read(measures_.source_b->data(*tensor.b), taken)};
  };
  std::vector<std::size_t> ids;
  std::vector<SequenceSample> samples, tables;
  for (const std::size_t id : frame.at_hand) {
    const Tensor& tensor = tensors_[id];
    const auto dimensions = measures_.source_a->record(*tensor.a).shape;
    if (!frame.used.contains(id) && dimensions.size() > 2 && dimensions[0] == shape[0] && dimensions[1] == length &&
        count_of(dimensions) / (shape[0] * length) * 3 >= cols / kMostShared) {
      if (SequenceSample one = sample(tensor, shape[0]); one.cols > 0) {
        samples.push_back(std::move(one));
        ids.push_back(id);
        continue;
      }
    }
    if (kind_of(tensor.a->dtype) == DTypeKind::Float && tables.size() < kMostSources)
      if (SequenceSample one = sample(tensor, 1); one.cols > 0 && one.cols <= cols) tables.push_back(std::move(one));
  }
  if (samples.size() != 1 && samples.size() != 3) return false;
  const SequenceSample rows = sample(result, shape[0]);
  if (rows.cols != cols) return false;
  RowSample of_result{.rows = sequences * static_cast<std::int64_t>(queries.size()), .cols = cols, .a = {}, .b = {}};
  for (std::int64_t s = 0; s < sequences; ++s)
    for (const std::int64_t query : queries) {
      const std::ptrdiff_t begin = (s * length + query) * cols;
      of_result.a.insert(of_result.a.end(), rows.a.begin() + begin, rows.a.begin() + begin + cols);
      of_result.b.insert(of_result.b.end(), rows.b.begin() + begin, rows.b.begin() + begin + cols);
    }
  std::vector<const SequenceSample*> of_sources, of_tables;
  for (const SequenceSample& one : samples) of_sources.push_back(&one);
  for (const SequenceSample& one : tables) of_tables.push_back(&one);
  const auto handed = replay_attention({.result = of_result,
                                        .sources = of_sources,
                                        .tables = of_tables,
                                        .sequences = sequences,
                                        .length = length,
                                        .queries = queries,
                                        .unit = unit_roundoff(result.a->dtype)});
  return handed && divide(of_result, *handed, ids, made);
}

// Sketches tell sums of tensors of one shape, and nothing else.
bool CallBudget::by_sketches(const Frame& frame, Computation& made) const {
  const Tensor& result = tensors_[made.result];
  const auto sample = [&](const Tensor& tensor) -> RowSample {
    if (tensor.a->shape != result.a->shape || tensor.b->shape != result.b->shape) return {};
    const auto a = measures_.source_a->sketch(*tensor.a), b = measures_.source_b->sketch(*tensor.b);
    if (!a || !b) return {};
    return {
        .rows = 1, .cols = Sketch::kSums, .a = {a->sums.begin(), a->sums.end()}, .b = {b->sums.begin(), b->sums.end()}};
  };
  const RowSample of_result = sample(result);
  if (of_result.rows == 0) return false;
  const auto [samples, ids] = sources_of(frame, sample);
  const auto of_sources = pointers(samples);
  const auto handed =
      replay_sum({.result = of_result, .sources = of_sources, .constants = {}, .unit = unit_roundoff(result.a->dtype)},
                 thresholds::kReplaySketch);
  return handed && divide(of_result, *handed, ids, made);
}

// The result's error is the sum of what its sources hand on and of what is added: each has a share of its square.
bool CallBudget::divide(const RowSample& sample, const HandedOn& handed, const std::vector<std::size_t>& ids,
                        Computation& made) const {
  const std::size_t count = sample.a.size();
  std::vector<double> error(count), inherited(count), added(count), shares(handed.size());
  for (std::size_t i = 0; i < count; ++i) error[i] = sample.b[i] - sample.a[i];
  for (std::size_t k = 0; k < handed.size(); ++k) {
    if (handed[k].empty()) continue;
    for (std::size_t i = 0; i < count; ++i) inherited[i] += handed[k][i];
    shares[k] = std::max(0.0, dot(handed[k], error));
  }
  for (std::size_t i = 0; i < count; ++i) added[i] = error[i] - inherited[i];
  const double squares = dot(sample.a, sample.a);
  if (!(squares > 0) || !std::isfinite(dot(error, error)) || !std::isfinite(dot(inherited, inherited))) return false;
  const double scale = tensors_[made.result].size * tensors_[made.result].size / squares;
  made.added = dot(added, added) * scale;
  made.handed_on = dot(inherited, inherited) * scale;
  made.share_added = std::max(0.0, dot(added, error));
  const double sum = std::accumulate(shares.begin(), shares.end(), made.share_added);
  if (sum > 0) made.share_added /= sum;
  for (std::size_t k = 0; k < handed.size(); ++k)
    if (!handed[k].empty()) made.sources.emplace_back(ids[k], sum > 0 ? shares[k] / sum : 0);
  return true;
}

// The chosen rows of a tensor that has as many as the result, or fewer that are repeated; nothing where it has not. NaN
// and infinity count as 0.
RowSample CallBudget::sample_of(const Item& a, const Item* b, const RowChoice& choice) const {
  if (!has_real_bytes(a) || (b != nullptr && !has_real_bytes(*b))) return {};
  const Shape shape = measures_.source_a->record(a).shape;
  const std::int64_t count = count_of(shape), cols = shape.empty() ? 1 : shape.back();
  if (count == 0 || choice.all % (count / cols) != 0) return {};
  if (b != nullptr && count_of(measures_.source_b->record(*b).shape) != count) return {};
  const std::int64_t own = count / cols;
  const std::vector<std::int64_t> columns = choice.columns.empty() ? some_of(cols, cols) : choice.columns;
  RowSample sample{.rows = static_cast<std::int64_t>(choice.rows.size()),
                   .cols = static_cast<std::int64_t>(columns.size()),
                   .a = {},
                   .b = {}};
  const auto read = [&](const TensorData& data) {
    const Elements elements(data.view);
    std::vector<double> values;
    values.reserve(choice.rows.size() * columns.size());
    for (const std::int64_t row : choice.rows)
      for (const std::int64_t column : columns) {
        const double value = elements[row % own * cols + column];
        values.push_back(std::isfinite(value) ? value : 0);
      }
    return values;
  };
  sample.a = read(measures_.source_a->data(a));
  if (b != nullptr) sample.b = read(measures_.source_b->data(*b));
  return sample;
}

// A module's own matrices that fit; where it has none, those of others: they may be tied. Either axis may be that of
// the result.
std::vector<WeightMatrix> CallBudget::matrices(int of, const RowChoice& choice) const {
  std::vector<WeightMatrix> found;
  for (const bool is_own : {true, false}) {
    if (!is_own && (!found.empty() || !node(of).children.empty())) break;
    for (const BudgetParameter& one : parameters_) {
      if ((one.node == of) != is_own || found.size() >= kMostMatrices || !has_real_bytes(*one.item)) continue;
      if (one.node < 0 || node(one.node).root != node(of).root) continue;
      const Shape shape = measures_.source_a->record(*one.item).shape;
      if (shape.size() != 2) continue;
      for (const std::size_t axis : {0, 1}) {
        if (shape[axis] != choice.cols) continue;
        const TensorData data = measures_.source_a->data(*one.item);
        const Elements elements(data.view);
        WeightMatrix matrix{
            .out = static_cast<std::int64_t>(choice.columns.size()), .in = shape[1 - axis], .values = {}};
        for (const std::int64_t column : choice.columns)
          for (std::int64_t i = 0; i < matrix.in; ++i)
            matrix.values.push_back(axis == 0 ? elements[column * shape[1] + i] : elements[i * shape[1] + column]);
        found.push_back(std::move(matrix));
      }
    }
  }
  return found;
}

// The module is of the same class in both runs, and of its own parameters none differs.
bool CallBudget::is_same_code(const Frame& frame) const {
  const auto index = static_cast<std::size_t>(frame.node);
  const ModuleNode& other = alignment_.tree_b.nodes[static_cast<std::size_t>(alignment_.module_to_b[index])];
  if (node(frame.node).cls != other.cls) return false;
  if (parameters_.empty()) return frame.has_calls;
  return std::ranges::all_of(parameters_,
                             [&](const BudgetParameter& one) { return one.node != frame.node || one.is_equal; });
}

void CallBudget::follow_back(double squares, BudgetSums::Root& into) {
  ++into.with_error;
  for (const std::size_t id : outputs_)
    if (tensors_[id].is_known()) tensors_[id].share += tensors_[id].error * tensors_[id].error / squares;
  for (std::size_t i = computations_.size(); i-- > 0;) {
    const Computation& one = computations_[i];
    const double share = std::exchange(tensors_[one.result].share, 0);
    if (!one.is_known) {
      into.not_traced += share;
      continue;
    }
    shares_[i] = share * one.share_added;
    for (const auto& [id, part] : one.sources) tensors_[id].share += share * part;
  }
  for (std::size_t id = 0; id < tensors_.size(); ++id)
    (given_.contains(id) ? into.from_inputs : into.not_traced) += tensors_[id].share;
}

void CallBudget::add_modules(const std::string& root) {
  struct OfFrame {
    Squares arriving, leaving;
    double added = 0, handed_on = 0, share = 0;
    bool is_assumed = false;
  };
  std::map<std::size_t, OfFrame> by_frame;
  for (std::size_t i = 0; i < computations_.size(); ++i) {
    const Computation& one = computations_[i];
    OfFrame& of = by_frame[one.frame];
    of.arriving.add(one.arriving);
    of.leaving.add(one.leaving);
    of.added += one.added;
    of.handed_on += one.handed_on;
    of.share += shares_[i];
    of.is_assumed |= one.is_assumed;
  }
  for (const auto& [frame, of] : by_frame) {
    const ModuleNode& module = node(frames_[frame].node);
    BudgetSums::Module& into = sums_.modules
                                   .try_emplace({root, module.path, frames_[frame].has_calls},
                                                BudgetSums::Module{.order = sums_.modules.size()})
                                   .first->second;
    into.cls = interner_.text(module.cls);
    into.share += of.share;
    if (of.leaving.size == 0) {
      ++into.unknown;
      continue;
    }
    ++into.calls;
    into.assumed += of.is_assumed ? 1 : 0;
    into.arriving += of.arriving.relative();
    into.leaving += of.leaving.relative();
    into.adds += of.added / of.leaving.size;
    into.handed_on += of.handed_on / of.leaving.size;
  }
}

}  // namespace tenscope::compare
