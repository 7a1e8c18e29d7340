// Overview. An error that leaves a module is in part what it was given. With one pair of runs that part is known only
// where the computation is: so the usual ones are tried, by the first run's numbers alone. One that gives the first
// run's result from the first run's sources is the computation, and then the second run's sources tell what would have
// come of them without any error of the module itself.
#include "compare/replay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

using Values = std::vector<double>;

double dot(const Values& x, const Values& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); }

double norm(const Values& x) { return std::sqrt(dot(x, x)); }

Values difference(const Values& x, const Values& y) {
  Values result(x.size());
  std::ranges::transform(x, y, result.begin(), std::minus<>());
  return result;
}

bool is_fit(const Values& made, const Values& result, double tolerance) {
  return norm(difference(made, result)) <= tolerance * norm(result);
}

// How near a sum of recorded tensors, rounded once or twice, is to the recorded result; and any other computation.
double tight(double unit) { return unit * (unit < 0x1p-20 ? thresholds::kReplayUnits : thresholds::kReplayUnitsHalf); }
double loose(double unit) { return std::max(thresholds::kReplayFit, thresholds::kReplayUnitsHalf * unit); }

// Solves a small symmetric system; false where it is singular.
bool solve(std::vector<Values> matrix, Values right, Values& result) {
  const std::size_t n = right.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::abs(matrix[i][k]) > std::abs(matrix[best][k])) best = i;
    std::swap(matrix[k], matrix[best]);
    std::swap(right[k], right[best]);
    if (!(std::abs(matrix[k][k]) > 0)) return false;
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = matrix[i][k] / matrix[k][k];
      for (std::size_t j = k; j < n; ++j) matrix[i][j] -= factor * matrix[k][j];
      right[i] -= factor * right[k];
    }
  }
  result.assign(n, 0);
  for (std::size_t k = n; k-- > 0;) {
    double sum = right[k];
    for (std::size_t j = k + 1; j < n; ++j) sum -= matrix[k][j] * result[j];
    result[k] = sum / matrix[k][k];
  }
  return std::ranges::all_of(result, [](double x) { return std::isfinite(x); });
}

// A sum of up to three terms, each with a factor of its own.
class SumSearch {
 public:
  SumSearch(const Replay& what, double tolerance) : what_(what), tolerance_(tolerance) {
    for (std::size_t i = 0; i < what.sources.size(); ++i)
      if (what.sources[i]->has_shape_of(what.result)) terms_.push_back({what.sources[i], static_cast<int>(i)});
    for (const RowSample* one : what.constants)
      if (one->has_shape_of(what.result)) terms_.push_back({one, -1});
    for (const Term& x : terms_) {
      right_.push_back(dot(x.sample->a, what.result.a));
      gram_.emplace_back();
      for (const Term& y : terms_) gram_.back().push_back(dot(x.sample->a, y.sample->a));
    }
  }

  std::optional<HandedOn> find() {
    std::vector<std::size_t> chosen;
    for (std::size_t count = 1; count <= 3; ++count)
      if (auto found = choose(chosen, 0, count)) return found;
    return std::nullopt;
  }

 private:
  struct Term {
    const RowSample* sample;
    int source;  // -1: none
  };

  std::optional<HandedOn> choose(std::vector<std::size_t>& chosen, std::size_t from, std::size_t left) {
    if (left == 0) return fit(chosen);
    for (std::size_t i = from; i + left <= terms_.size(); ++i) {
      chosen.push_back(i);
      auto found = choose(chosen, i + 1, left - 1);
      chosen.pop_back();
      if (found) return found;
    }
    return std::nullopt;
  }

  std::optional<HandedOn> fit(const std::vector<std::size_t>& chosen) const {
    std::vector<Values> matrix;
    Values right, factors;
    for (const std::size_t i : chosen) {
      right.push_back(right_[i]);
      matrix.emplace_back();
      for (const std::size_t j : chosen) matrix.back().push_back(gram_[i][j]);
    }
    if (!solve(matrix, right, factors)) return std::nullopt;
    // The Gram matrix tells the residual only to the square root of its precision: a first sieve.
    double explained = 0;
    for (std::size_t k = 0; k < chosen.size(); ++k) explained += factors[k] * right[k];
    const double squares = dot(what_.result.a, what_.result.a);
    if (squares - explained > 1e-6 * squares) return std::nullopt;
    Values made(what_.result.a.size());
    for (std::size_t k = 0; k < chosen.size(); ++k)
      for (std::size_t i = 0; i < made.size(); ++i) made[i] += factors[k] * terms_[chosen[k]].sample->a[i];
    if (!is_fit(made, what_.result.a, tolerance_)) return std::nullopt;
    HandedOn handed(what_.sources.size());
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const Term& term = terms_[chosen[k]];
      if (term.source < 0) continue;
      Values& of = handed[static_cast<std::size_t>(term.source)];
      of = difference(term.sample->b, term.sample->a);
      for (double& x : of) x *= factors[k];
    }
    return handed;
  }

  const Replay& what_;
  double tolerance_;
  std::vector<Term> terms_;
  Values right_;
  std::vector<Values> gram_;
};

std::optional<HandedOn> replay_product(const Replay& what) {
  for (std::size_t i = 0; i < what.sources.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const RowSample &x = *what.sources[i], &y = *what.sources[j];
      if (!x.has_shape_of(what.result) || !y.has_shape_of(what.result)) continue;
      Values made(x.a.size());
      std::ranges::transform(x.a, y.a, made.begin(), std::multiplies<>());
      if (!is_fit(made, what.result.a, tight(what.unit))) continue;
      HandedOn handed(what.sources.size());
      handed[i].resize(made.size());
      handed[j].resize(made.size());
      for (std::size_t k = 0; k < made.size(); ++k) {  // the error of both together is divided between them
        handed[i][k] = (x.b[k] - x.a[k]) * (y.a[k] + y.b[k]) / 2;
        handed[j][k] = (y.b[k] - y.a[k]) * (x.a[k] + x.b[k]) / 2;
      }
      return handed;
    }
  return std::nullopt;
}

Values times(const Values& x, std::int64_t rows, const WeightMatrix& weight) {
  Values result;
  result.reserve(static_cast<std::size_t>(rows * weight.out));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < weight.out; ++o) {
      const double* row = x.data() + r * weight.in;
      result.push_back(std::inner_product(row, row + weight.in, weight.values.data() + o * weight.in, 0.0));
    }
  return result;
}

// With or without one of the constants.
bool is_matrix_product(const Values& made, const Replay& what) {
  if (is_fit(made, what.result.a, loose(what.unit))) return true;
  return std::ranges::any_of(what.constants, [&](const RowSample* bias) {
    if (!bias->has_shape_of(what.result)) return false;
    Values with_bias(made.size());
    std::ranges::transform(made, bias->a, with_bias.begin(), std::plus<>());
    return is_fit(with_bias, what.result.a, loose(what.unit));
  });
}

// What a normalisation makes of rows before it scales their columns.
enum class RowForm : std::uint8_t { AsItIs, Centred, ByRms };

Values formed(const Values& x, std::int64_t rows, std::int64_t cols, RowForm form) {
  Values result = x;
  if (form == RowForm::AsItIs) return result;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::span row(result.data() + r * cols, static_cast<std::size_t>(cols));
    const double mean =
        form == RowForm::Centred ? std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(cols) : 0;
    double squares = 0;
    for (double& value : row) {
      value -= mean;
      squares += value * value;
    }
    const double scale = std::sqrt(squares / static_cast<double>(cols));
    for (double& value : row) value = scale > 0 ? value / scale : 0;
  }
  return result;
}

// Each column has a factor and a summand of its own, which the rows tell.
std::optional<HandedOn> replay_columns(const Replay& what, std::size_t source, RowForm form) {
  const RowSample& x = *what.sources[source];
  const std::int64_t rows = x.rows, cols = x.cols;
  if (!x.has_shape_of(what.result) || rows < thresholds::kReplayRows) return std::nullopt;
  const Values of_a = formed(x.a, rows, cols, form), of_b = formed(x.b, rows, cols, form);
  const auto at = [cols](std::int64_t r, std::int64_t c) { return static_cast<std::size_t>(r * cols + c); };
  Values made(of_a.size()), handed(of_a.size());
  for (std::int64_t c = 0; c < cols; ++c) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (std::int64_t r = 0; r < rows; ++r) sx += of_a[at(r, c)], sy += what.result.a[at(r, c)];
    const double mx = sx / static_cast<double>(rows), my = sy / static_cast<double>(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double dx = of_a[at(r, c)] - mx;
      sxx += dx * dx;
      sxy += dx * (what.result.a[at(r, c)] - my);
    }
    const double factor = sxx > 0 ? sxy / sxx : 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      made[at(r, c)] = my + factor * (of_a[at(r, c)] - mx);
      handed[at(r, c)] = factor * (of_b[at(r, c)] - of_a[at(r, c)]);
    }
  }
  if (!is_fit(made, what.result.a, form == RowForm::AsItIs ? tight(what.unit) : loose(what.unit))) return std::nullopt;
  HandedOn result(what.sources.size());
  result[source] = std::move(handed);
  return result;
}

// A function of each element: its curve is the means of elements that are neighbours by the source's values.
std::optional<HandedOn> replay_curve(const Replay& what, std::size_t source) {
  const RowSample& x = *what.sources[source];
  const std::size_t count = x.a.size();
  if (!x.has_shape_of(what.result) || count < thresholds::kReplayCurveElements) return std::nullopt;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return x.a[i]; });
  Values knots, heights;
  constexpr std::size_t kTogether = 8;
  for (std::size_t begin = 0; begin + kTogether <= count; begin += kTogether) {
    double sum_x = 0, sum_y = 0;
    for (std::size_t k = begin; k < begin + kTogether; ++k) sum_x += x.a[order[k]], sum_y += what.result.a[order[k]];
    if (!knots.empty() && sum_x / kTogether <= knots.back()) continue;
    knots.push_back(sum_x / kTogether);
    heights.push_back(sum_y / kTogether);
  }
  if (knots.size() < 2) return std::nullopt;
  const auto height = [&](double at) {
    const auto above = std::ranges::upper_bound(knots.begin() + 1, knots.end() - 1, at) - knots.begin();
    const auto i = static_cast<std::size_t>(above);
    return heights[i - 1] + (heights[i] - heights[i - 1]) * (at - knots[i - 1]) / (knots[i] - knots[i - 1]);
  };
  Values made(count), handed(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i] = height(x.a[i]);
    handed[i] = height(x.b[i]) - made[i];
  }
  if (!is_fit(made, what.result.a, thresholds::kReplayCurve)) return std::nullopt;
  HandedOn result(what.sources.size());
  result[source] = std::move(handed);
  return result;
}

}  // namespace

std::optional<HandedOn> replay_sum(const Replay& what, double tolerance) { return SumSearch(what, tolerance).find(); }

std::optional<HandedOn> replay_matrix(const Replay& what, std::span<const WeightMatrix> weights) {
  for (std::size_t i = 0; i < what.sources.size(); ++i)
    for (const WeightMatrix& weight : weights) {
      const RowSample& x = *what.sources[i];
      if (x.cols != weight.in || what.result.cols != weight.out) continue;
      if (!is_matrix_product(times(x.a, x.rows, weight), what)) continue;
      HandedOn handed(what.sources.size());
      handed[i] = times(difference(x.b, x.a), x.rows, weight);
      return handed;
    }
  return std::nullopt;
}

std::optional<HandedOn> replay(const Replay& what) {
  if (auto found = replay_sum(what, tight(what.unit))) return found;
  if (auto found = replay_product(what)) return found;
  for (const RowForm form : {RowForm::AsItIs, RowForm::Centred, RowForm::ByRms})
    for (std::size_t i = 0; i < what.sources.size(); ++i)
      if (auto found = replay_columns(what, i, form)) return found;
  for (std::size_t i = 0; i < what.sources.size(); ++i)
    if (auto found = replay_curve(what, i)) return found;
  return std::nullopt;
}

}  // namespace tenscope::compare
