#include "compare/replay_attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

using Values = std::vector<double>;

// Queries, keys and values of all sequences: rows of heads.
struct Operands {
  Values q, k, v;
};

struct Form {
  std::int64_t heads = 1, shared = 1;  // of the queries; of keys and values
  std::int64_t width = 1, value_width = 1;
  bool is_causal = false;
};

class Attention {
 public:
  Attention(const AttentionReplay& what, const Form& form) : what_(what), form_(form) {}

  // The results of the first `count` queries of each sequence that is looked at.
  Values of(const Operands& operands, std::int64_t sequences, std::size_t count) const {
    Values result;
    result.reserve(static_cast<std::size_t>(sequences * form_.heads * form_.value_width) * count);
    for (std::int64_t s = 0; s < sequences; ++s)
      for (std::size_t i = 0; i < count; ++i)
        for (std::int64_t h = 0; h < form_.heads; ++h) add(operands, s, what_.queries[i], h, result);
    return result;
  }

 private:
  void add(const Operands& operands, std::int64_t s, std::int64_t query, std::int64_t h, Values& result) const {
    const std::int64_t shared = h * form_.shared / form_.heads;
    const auto at = [&](const Values& of, std::int64_t row, std::int64_t heads, std::int64_t head, std::int64_t width) {
      return of.data() + ((s * what_.length + row) * heads + head) * width;
    };
    const std::int64_t last = form_.is_causal ? query + 1 : what_.length;
    const double* q = at(operands.q, query, form_.heads, h, form_.width);
    Values weights(static_cast<std::size_t>(last));
    for (std::int64_t t = 0; t < last; ++t) {
      const double* k = at(operands.k, t, form_.shared, shared, form_.width);
      weights[static_cast<std::size_t>(t)] =
          std::inner_product(q, q + form_.width, k, 0.0) / std::sqrt(static_cast<double>(form_.width));
    }
    const double highest = *std::ranges::max_element(weights);
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - highest);
    const auto begin = static_cast<std::ptrdiff_t>(result.size());
    result.resize(result.size() + static_cast<std::size_t>(form_.value_width));
    for (std::int64_t t = 0; t < last; ++t) {
      const double* v = at(operands.v, t, form_.shared, shared, form_.value_width);
      const double weight = weights[static_cast<std::size_t>(t)] / sum;
      for (std::int64_t c = 0; c < form_.value_width; ++c) result[static_cast<std::size_t>(begin + c)] += weight * v[c];
    }
  }

  const AttentionReplay& what_;
  const Form& form_;
};

// One source that holds all three, as three blocks of heads or head by head.
Operands split(const Values& fused, std::int64_t cols, std::int64_t heads, bool is_by_head) {
  Operands result;
  const std::int64_t third = cols / 3, width = third / heads;
  for (std::size_t row = 0; row < fused.size(); row += static_cast<std::size_t>(cols))
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t part = 0; part < 3; ++part) {
        const std::int64_t offset = is_by_head ? (h * 3 + part) * width : part * third + h * width;
        const auto from = fused.begin() + static_cast<std::ptrdiff_t>(row) + offset;
        Values& into = part == 0 ? result.q : part == 1 ? result.k : result.v;
        into.insert(into.end(), from, from + width);
      }
  return result;
}

// Turns each head's halves by the angles of its position.
void rotate(Values& x, std::int64_t length, std::int64_t heads, std::int64_t width, const Values& cosines,
            const Values& sines) {
  const std::int64_t half = width / 2, rows = static_cast<std::int64_t>(x.size()) / (heads * width);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t h = 0; h < heads; ++h) {
      double* head = x.data() + (row * heads + h) * width;
      const double* c = cosines.data() + row % length * width;
      const double* s = sines.data() + row % length * width;
      for (std::int64_t i = 0; i < half; ++i) {
        const double low = head[i], high = head[i + half];
        head[i] = low * c[i] - high * s[i];
        head[i + half] = high * c[i + half] + low * s[i + half];
      }
    }
}

class AttentionSearch {
 public:
  explicit AttentionSearch(const AttentionReplay& what) : what_(what) {}

  std::optional<HandedOn> find() {
    const std::int64_t cols = what_.result.cols;
    const bool is_fused = what_.sources.size() == 1 && what_.sources[0]->cols == 3 * cols;
    if (!is_fused && what_.sources.size() != 3) return std::nullopt;
    for (std::int64_t heads = 1; heads <= std::min<std::int64_t>(cols, kMostHeads); ++heads) {
      if (cols % heads != 0) continue;
      Form form{.heads = heads, .shared = heads, .width = cols / heads, .value_width = cols / heads};
      if (!is_fused && !has_heads(form)) continue;
      for (const bool is_by_head : {false, true}) {
        if (is_by_head && (!is_fused || heads == 1)) break;
        for (const bool is_causal : {true, false}) {
          form.is_causal = is_causal;
          for (std::size_t table = 0; table <= (is_fused ? 0 : what_.tables.size()); ++table)
            if (auto found = attempt(form, is_by_head, is_fused, table)) return found;
        }
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::int64_t kMostHeads = 128;

  // Separate queries, keys and values: keys and values may have fewer heads.
  bool has_heads(Form& form) const {
    const std::int64_t q = what_.sources[0]->cols, k = what_.sources[1]->cols, v = what_.sources[2]->cols;
    if (q % form.heads != 0) return false;
    form.width = q / form.heads;
    form.shared = k / form.width;
    return form.shared > 0 && k % form.width == 0 && form.heads % form.shared == 0 &&
           v == form.shared * form.value_width;
  }

  Operands operands(const Form& form, bool is_by_head, bool is_fused, std::size_t table, bool of_b) const {
    const auto values = [of_b](const SequenceSample& one) -> const Values& { return of_b ? one.b : one.a; };
    if (is_fused) return split(values(*what_.sources[0]), what_.sources[0]->cols, form.heads, is_by_head);
    Operands result{values(*what_.sources[0]), values(*what_.sources[1]), values(*what_.sources[2])};
    if (table > 0) {
      const SequenceSample &cosines = *what_.tables[table - 1], &sines = *what_.tables[table];
      rotate(result.q, what_.length, form.heads, form.width, cosines.a, sines.a);
      rotate(result.k, what_.length, form.shared, form.width, cosines.a, sines.a);
    }
    return result;
  }

  std::optional<HandedOn> attempt(const Form& form, bool is_by_head, bool is_fused, std::size_t table) const {
    if (table > 0) {
      if (table >= what_.tables.size()) return std::nullopt;
      if (what_.tables[table - 1]->cols != form.width || what_.tables[table]->cols != form.width) return std::nullopt;
      if (form.width % 2 != 0) return std::nullopt;
    }
    const Attention attention(what_, form);
    const Operands of_a = operands(form, is_by_head, is_fused, table, false);
    const std::size_t few = std::min<std::size_t>(2, what_.queries.size());
    if (!is_result(attention.of(of_a, 1, few))) return std::nullopt;
    const Values made = attention.of(of_a, what_.sequences, what_.queries.size());
    if (!is_result(made)) return std::nullopt;
    const Operands of_b = operands(form, is_by_head, is_fused, table, true);
    HandedOn handed(what_.sources.size());
    // What each hands on, one after the other, so that they add up.
    Values before = made;
    Operands mixed = of_a;
    for (std::size_t i = 0; i < handed.size(); ++i) {
      if (is_fused) {
        mixed = of_b;
      } else {
        Values Operands::* const one = i == 0 ? &Operands::q : i == 1 ? &Operands::k : &Operands::v;
        mixed.*one = of_b.*one;
      }
      Values after = attention.of(mixed, what_.sequences, what_.queries.size());
      handed[i].resize(after.size());
      std::ranges::transform(after, before, handed[i].begin(), std::minus<>());
      before = std::move(after);
    }
    return handed;
  }

  // The first rows of the result.
  bool is_result(const Values& made) const {
    double squares = 0, difference = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      squares += what_.result.a[i] * what_.result.a[i];
      difference += (made[i] - what_.result.a[i]) * (made[i] - what_.result.a[i]);
    }
    const double tolerance = std::max(thresholds::kReplayFit, 2 * thresholds::kReplayUnitsHalf * what_.unit);
    return difference <= tolerance * tolerance * squares;
  }

  const AttentionReplay& what_;
};

}  // namespace

std::optional<HandedOn> replay_attention(const AttentionReplay& what) {
  if (what.queries.empty() || what.sequences == 0) return std::nullopt;
  return AttentionSearch(what).find();
}

}  // namespace tenscope::compare
