#include "compare/row_moves.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

class MovedRows {
 public:
  MovedRows(const RowMatch& match, RowTensorId a, RowTensorId b, const std::vector<std::string>& names)
      : keys_(match.plan(a.side, a.index).pairs->keys),
        names_(names),
        elements_(element_count(way_of(match, a).rest)),
        a_(sums_of(match, a)),
        b_(sums_of(match, b)) {
    for (std::size_t row = 0; row < a_.size(); ++row)
      if (!is_same(row, row)) differing_.push_back(row);
  }

  std::string in_words() const {
    if (differing_.size() < pairing::kFewestRows) return {};
    std::string text = shift_in_words();
    return text.empty() && elements_ >= pairing::kElementsThatTell ? exchange_in_words() : text;
  }

 private:
  static const RowAxes& way_of(const RowMatch& match, RowTensorId id) {
    return match.tensors(id.side)[id.index].ways[match.plan(id.side, id.index).way];
  }
  static std::vector<RowSum> sums_of(const RowMatch& match, RowTensorId id) {
    return row_sums(match.table(id.side), match.tensors(id.side)[id.index], way_of(match, id),
                    match.plan(id.side, id.index).pairs->places[static_cast<std::size_t>(id.side)]);
  }
  bool is_same(std::size_t row_a, std::size_t row_b) const {
    return are_alike(a_[row_a], b_[row_b], elements_, pairing::kSameNumbers);
  }
  bool is_most(std::size_t rows) const {
    return static_cast<double>(rows) >= pairing::kRowsExplained * static_cast<double>(differing_.size());
  }

  // The row of the key before or after, in one of the key's numbers.
  std::string shift_in_words() const {
    std::map<RowKey, std::size_t> rows;
    for (std::size_t row = 0; row < keys_.size(); ++row) rows.emplace(*keys_[row], row);
    for (std::size_t k = 0; k < names_.size(); ++k) {
      for (const bool is_next : {true, false}) {
        std::size_t found = 0, same = 0;
        for (const std::size_t row : differing_) {
          RowKey key = *keys_[row];
          is_next ? ++key[k] : --key[k];
          const auto other = rows.find(key);
          if (other == rows.end()) continue;
          ++found;
          same += is_same(other->second, row) ? 1 : 0;
        }
        // The first or last row of each sequence has no such neighbour.
        if (found >= pairing::kFewestRows && 2 * found >= differing_.size() &&
            static_cast<double>(same) >= pairing::kRowsExplained * static_cast<double>(found))
          return fmt::format("b at {0} n is a at {0} n {1} 1, in {2} of {3} rows that differ", names_[k],
                             is_next ? '+' : '-', same, differing_.size());
      }
    }
    return {};
  }

  // The one row of a that has the numbers of a row of b.
  std::optional<std::size_t> source_of(std::size_t row, const std::vector<std::size_t>& by_norm) const {
    const double near = 2 * pairing::kSameNumbers * b_[row].squares;
    const auto squares = [&](std::size_t other) { return a_[other].squares; };
    std::optional<std::size_t> source;
    for (auto at = std::ranges::lower_bound(by_norm, b_[row].squares - near, {}, squares);
         at != by_norm.end() && squares(*at) <= b_[row].squares + near; ++at) {
      if (!is_same(*at, row)) continue;
      if (source) return std::nullopt;
      source = *at;
    }
    return source;
  }

  std::string exchange_in_words() const {
    std::vector<std::size_t> by_norm(a_.size());
    for (std::size_t row = 0; row < by_norm.size(); ++row) by_norm[row] = row;
    std::ranges::sort(by_norm, {}, [&](std::size_t row) { return a_[row].squares; });
    std::vector<std::pair<std::size_t, std::size_t>> moves;  // row of b, of a
    for (const std::size_t row : differing_)
      if (const auto source = source_of(row, by_norm)) moves.emplace_back(row, *source);
    if (!is_most(moves.size()) || moves.empty()) return {};
    for (std::size_t k = 0; k < names_.size(); ++k) {
      std::set<std::pair<std::uint64_t, std::uint64_t>> values;
      const bool is_only_k = std::ranges::all_of(moves, [&](const auto& move) {
        RowKey of_b = *keys_[move.first];
        const RowKey& of_a = *keys_[move.second];
        values.emplace(of_b[k], of_a[k]);
        of_b[k] = of_a[k];
        return of_b == of_a;
      });
      if (is_only_k && values.size() == 2 && values.begin()->first == values.rbegin()->second &&
          values.begin()->second == values.rbegin()->first)
        return fmt::format("the rows of {0} {1} and {0} {2} are exchanged", names_[k], values.begin()->first,
                           values.begin()->second);
    }
    return fmt::format("{} of {} rows that differ are other rows of a: b at {} is a at {}", moves.size(),
                       differing_.size(), row_in_words(*keys_[moves[0].first], names_),
                       row_in_words(*keys_[moves[0].second], names_));
  }

  const std::vector<const RowKey*>& keys_;
  const std::vector<std::string>& names_;
  std::int64_t elements_;
  std::vector<RowSum> a_, b_;
  std::vector<std::size_t> differing_;
};

}  // namespace

std::string row_in_words(const RowKey& key, const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (std::size_t k = 0; k < key.size(); ++k) words.push_back(fmt::format("{} {}", names[k], key[k]));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string moved_rows(const RowMatch& match, RowTensorId a, RowTensorId b, const std::vector<std::string>& names) {
  const RowPlan &plan_a = match.plan(a.side, a.index), &plan_b = match.plan(b.side, b.index);
  const Shape shape_a = written_shape(match, a), shape_b = written_shape(match, b);
  if (element_count(shape_a) != element_count(shape_b) || plan_a.pairs->keys != plan_b.pairs->keys) return {};
  return MovedRows(match, a, b, names).in_words();
}

}  // namespace tenscope::compare
