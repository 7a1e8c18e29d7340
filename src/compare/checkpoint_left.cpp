// What names and content leave over. Overview in checkpoint_match.cpp.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "compare/checkpoint_pairing.hpp"

namespace tenscope::compare {
namespace {

std::string_view parent_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

std::string_view leaf_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

// What models share by design: the embedding of tokens (an encoder's and a decoder's, too) and the output.
bool is_embedding_or_output(std::string_view name) {
  constexpr std::array<std::string_view, 8> kWords = {"embed",   "embd",     "wte",       "word_emb",
                                                      "lm_head", "proj_out", "embed_out", "predictions.decoder"};
  constexpr std::array<std::string_view, 4> kNames = {"shared.weight", "output.weight", "head.weight",
                                                      "cls.predictions.bias"};
  const auto ends = [&](std::string_view text) {
    return name.ends_with(text) && (name.size() == text.size() || name[name.size() - text.size() - 1] == '.');
  };
  return std::ranges::any_of(kWords, [&](std::string_view word) { return name.find(word) != name.npos; }) ||
         std::ranges::any_of(kNames, ends);
}

// The words of a name that say what it is: "output_norm.weight" is an output and a norm. Numbers are words.
std::set<std::string> words_of(std::string_view name) {
  std::set<std::string> words;
  std::string word;
  for (const char c : std::string(name) + ".") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (!word.empty() && word != "weight" && word != "bias" && word != "model") words.insert(word);
    word.clear();
  }
  return words;
}

std::size_t common_words(std::string_view a, std::string_view b) {
  const std::set<std::string> words = words_of(a), others = words_of(b);
  return static_cast<std::size_t>(
      std::ranges::count_if(words, [&](const std::string& word) { return others.contains(word); }));
}

}  // namespace

// ---- what is stored several times

std::vector<std::size_t> Pairing::set_repeated_aside(const Weights& side, std::vector<bool>& is_free,
                                                     std::map<std::size_t, std::size_t>& first) {
  std::map<std::tuple<std::uint64_t, std::uint64_t, DType, Shape>, std::size_t> seen;
  std::vector<std::size_t> repeated;
  for (std::size_t i = 0; i < side.records.size(); ++i) {
    const TensorRecord& record = side.records[i];
    if (!is_free[i] || record.stats.count < 2 || is_one_number(record)) continue;
    const auto [place, is_new] =
        seen.try_emplace({record.fingerprint.low, record.fingerprint.high, record.dtype, record.shape}, i);
    if (is_new) continue;
    first[i] = place->second;
    is_free[i] = false;
    repeated.push_back(i);
  }
  return repeated;
}

std::vector<std::size_t> Pairing::all_of(std::size_t first, const std::map<std::size_t, std::size_t>& repeated) {
  std::vector<std::size_t> members = {first};
  for (const auto& [i, of] : repeated)
    if (of == first) members.push_back(i);
  return members;
}

bool Pairing::are_tied(const AlikeWeights& alike) const {
  return std::ranges::all_of(alike.a, [&](std::size_t i) { return is_embedding_or_output(name(a_, i)); }) &&
         std::ranges::all_of(alike.b, [&](std::size_t j) { return is_embedding_or_output(name(b_, j)); });
}

// An embedding that is the output, too, may be stored as often as one likes. Of other tensors that are stored several
// times, as many are paired as both sides have: those that names speak for, and the others cannot be told apart. A copy
// beyond that is one side's alone.
void Pairing::match_repeated() {
  std::vector<WeightMatch> pairs;
  for (WeightMatch& pair : result_.pairs) {
    AlikeWeights alike{all_of(pair.a, first_a_), all_of(pair.b, first_b_)};
    if (alike.a.size() * alike.b.size() == 1 || pair.how == WeightHow::Part) {
      pairs.push_back(std::move(pair));
      continue;
    }
    if (are_tied(alike)) {
      for (const std::size_t i : alike.a) free_a_[i] = false;
      for (const std::size_t j : alike.b) free_b_[j] = false;
      if (std::min(alike.a.size(), alike.b.size()) == 1) {
        pair.how = WeightHow::Tied;
        for (const std::size_t i : alike.a)
          for (const std::size_t j : alike.b) {
            pair.a = i;
            pair.b = j;
            pairs.push_back(pair);
          }
      }
      result_.alike.push_back(std::move(alike));
      continue;
    }
    free_a_[pair.a] = free_b_[pair.b] = true;
    AlikeWeights rest;
    for (const auto& [votes, i, j] : likely_pairs(alike)) {
      free_a_[i] = free_b_[j] = false;
      if (votes > 0 || std::min(alike.a.size(), alike.b.size()) == 1) {
        pair.a = i;
        pair.b = j;
        pairs.push_back(pair);
      } else {
        rest.a.push_back(i);
        rest.b.push_back(j);
      }
    }
    const auto is_copy = [](std::size_t i, const std::vector<std::size_t>& all) {
      return all.front() == i ? all[1] : all.front();
    };
    for (const std::size_t i : alike.a)
      if (free_a_[i]) result_.copies.push_back({.is_in_a = true, .tensor = i, .of = is_copy(i, alike.a)});
    for (const std::size_t j : alike.b)
      if (free_b_[j]) result_.copies.push_back({.is_in_a = false, .tensor = j, .of = is_copy(j, alike.b)});
    if (!rest.a.empty()) result_.alike.push_back(std::move(rest));
  }
  result_.pairs = std::move(pairs);
}

// As many pairs of tensors of equal numbers as there can be, those first that most names speak for.
std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> Pairing::likely_pairs(const AlikeWeights& alike) const {
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> all, chosen;
  for (const std::size_t i : alike.a) {
    const NameTemplate own = numbered(name(a_, i), 0);
    const std::vector<RuleAnswer> answers = rules_.ask(own);
    for (const std::size_t j : alike.b) {
      const NameTemplate other = numbered(name(b_, j), 0);
      std::size_t votes = own.numbers.size() > 1 && own.numbers == other.numbers ? 1 : 0;
      for (const RuleAnswer& answer : answers)
        if (answer.name == other) votes += 2 * answer.votes;
      all.emplace_back(votes, i, j);
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), [](const auto& one) { return std::get<0>(one); });
  std::set<std::size_t> used_a, used_b;
  for (const auto& one : all)
    if (!used_a.contains(std::get<1>(one)) && !used_b.contains(std::get<2>(one))) {
      used_a.insert(std::get<1>(one));
      used_b.insert(std::get<2>(one));
      chosen.push_back(one);
    }
  return chosen;
}

// To those that one of them is known to be like.
void Pairing::add_alike(AlikeWeights alike) {
  const auto has = [](const std::vector<std::size_t>& all, std::size_t one) {
    return std::ranges::find(all, one) != all.end();
  };
  for (AlikeWeights& known : result_.alike) {
    if (std::ranges::none_of(alike.a, [&](std::size_t i) { return has(known.a, i); }) &&
        std::ranges::none_of(alike.b, [&](std::size_t j) { return has(known.b, j); }))
      continue;
    for (const std::size_t i : alike.a)
      if (!has(known.a, i)) known.a.push_back(i);
    for (const std::size_t j : alike.b)
      if (!has(known.b, j)) known.b.push_back(j);
    return;
  }
  result_.alike.push_back(std::move(alike));
}

// Tensors that are left and have the numbers of one that is paired, perhaps in another order or type: statistics do not
// tell which of them is meant.
void Pairing::match_copies() {
  for (const bool is_copy_in_a : {true, false}) {
    const Weights &copies = is_copy_in_a ? a_ : b_, &others = is_copy_in_a ? b_ : a_;
    const std::vector<bool> is_free = is_copy_in_a ? free_a_ : free_b_;
    for (std::size_t copy = 0; copy < is_free.size(); ++copy) {
      const bool is_known = std::ranges::any_of(
          result_.copies, [&](const WeightCopy& one) { return one.is_in_a == is_copy_in_a && one.tensor == copy; });
      const Stats& stats = copies.records[copy].stats;
      if (!is_free[copy] || is_known || is_one_number(copies.records[copy]) || stats.count < kFewestOfCopy) continue;
      std::size_t tried = 0;
      for (std::size_t other = 0; other < others.records.size() && tried < kMostTried; ++other) {
        const std::size_t i = is_copy_in_a ? copy : other, j = is_copy_in_a ? other : copy;
        const Stats& theirs = others.records[other].stats;
        const bool is_free_too = (is_copy_in_a ? free_b_ : free_a_)[other];
        if ((is_free_too && !are_tied({{i}, {j}})) || is_unreadable(others, other) || theirs.count != stats.count ||
            std::abs(theirs.l2 - stats.l2) > std::max(limit(i, j), 1e-5) * stats.l2)
          continue;
        ++tried;
        WeightMatch pair = compare(i, j, WeightHow::Tied);
        if (!agrees(pair)) continue;
        AlikeWeights alike{{i}, {j}};
        std::size_t of = copy;
        for (const WeightMatch& known : result_.pairs)
          if ((is_copy_in_a ? known.b : known.a) == other && known.how != WeightHow::Part) {
            of = is_copy_in_a ? known.a : known.b;
            (is_copy_in_a ? alike.a : alike.b).push_back(of);
          }
        if (are_tied(alike)) {
          take(std::move(pair));
          add_alike(std::move(alike));
        } else if (of != copy) {
          result_.copies.push_back({.is_in_a = is_copy_in_a, .tensor = copy, .of = of});
        }
        break;
      }
    }
  }
}

// ---- by the names around them

// What is left of modules whose other tensors are paired: the bias belongs to its weight.
void Pairing::match_siblings() {
  match_part_siblings();
  std::map<std::string_view, std::set<std::string_view>> parents_of_a, parents_of_b;
  for (const WeightMatch& pair : result_.pairs) {
    if (!agrees(pair) || pair.how == WeightHow::Tied || !pair.layout.of_a.empty() || !pair.layout.of_b.empty())
      continue;
    const std::string_view parent_a = parent_of(name(a_, pair.a)), parent_b = parent_of(name(b_, pair.b));
    parents_of_a[parent_a].insert(parent_b);
    parents_of_b[parent_b].insert(parent_a);
  }
  std::map<std::string_view, std::vector<std::size_t>> children_b;
  for (std::size_t j = 0; j < free_b_.size(); ++j)
    if (free_b_[j]) children_b[parent_of(name(b_, j))].push_back(j);
  std::map<std::string_view, std::vector<std::size_t>> children_a;
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i]) children_a[parent_of(name(a_, i))].push_back(i);
  for (const auto& [parent, children] : children_a) {
    const auto known = parents_of_a.find(parent);
    if (parent.empty() || known == parents_of_a.end() || known->second.size() != 1) continue;
    const std::string_view other = *known->second.begin();
    const auto theirs = children_b.find(other);
    if (other.empty() || parents_of_b[other].size() != 1 || theirs == children_b.end()) continue;
    for (const std::size_t i : children)
      for (const std::size_t j : theirs->second)
        if (free_a_[i] && free_b_[j] && leaf_of(name(a_, i)) == leaf_of(name(b_, j)))
          take(compare(i, j, WeightHow::Rule));
    const auto left_a = std::ranges::count_if(children, [&](std::size_t i) { return free_a_[i]; });
    const auto left_b = std::ranges::count_if(theirs->second, [&](std::size_t j) { return free_b_[j]; });
    if (left_a != 1 || left_b != 1) continue;
    const std::size_t i = *std::ranges::find_if(children, [&](std::size_t k) { return free_a_[k]; });
    const std::size_t j = *std::ranges::find_if(theirs->second, [&](std::size_t k) { return free_b_[k]; });
    if (a_.records[i].stats.count == b_.records[j].stats.count) take(compare(i, j, WeightHow::Rule));
  }
}

// The biases of joined weights are joined as the weights are. Their own values may not tell, such as zeros.
void Pairing::match_part_siblings() {
  const std::vector<WeightMatch> known = result_.pairs;
  std::map<std::string_view, std::vector<std::size_t>> children_a;
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i] || is_whole(true, i)) children_a[parent_of(name(a_, i))].push_back(i);
  for (const WeightMatch& pair : known) {
    const bool is_whole_in_a = !pair.layout.of_a.empty();
    const auto& ranges = is_whole_in_a ? pair.layout.of_a : pair.layout.of_b;
    if (ranges.size() != 1 || !agrees(pair)) continue;
    const Layout::Range& range = ranges.front();
    const Shape of_weight = without_ones((is_whole_in_a ? a_.records[pair.a] : b_.records[pair.b]).shape);
    const std::string_view parent_b = parent_of(name(b_, pair.b));
    for (const std::size_t i : children_a[parent_of(name(a_, pair.a))]) {
      if (!free_a_[i] && !(is_whole_in_a && is_whole(true, i))) continue;
      const auto found = names_b_.find(std::string(parent_b) + "." + std::string(leaf_of(name(a_, i))));
      if (found == names_b_.end()) continue;
      const std::size_t j = found->second;
      if (!free_b_[j] && (is_whole_in_a || !is_whole(false, j))) continue;
      const Shape whole = without_ones((is_whole_in_a ? a_.records[i] : b_.records[j]).shape);
      const Shape part = without_ones((is_whole_in_a ? b_.records[j] : a_.records[i]).shape);
      if (whole.size() != 1 || part.size() != 1 || whole[0] != of_weight[range.axis]) continue;
      Shape sizes = part;
      if (is_whole_in_a && range.period > 0) sizes = {whole[0] / range.period, range.end - range.begin};
      Layout layout = same_order(sizes);
      (is_whole_in_a ? layout.of_a
                     : layout.of_b) = {{.axis = 0, .begin = range.begin, .end = range.end, .period = range.period}};
      if (part_places_.contains(place_of(i, j, layout))) continue;
      const TensorData x = a_.checkpoint.data(i), y = b_.checkpoint.data(j);
      if (const auto distance = distance_in(x.view, y.view, layout))
        take({.a = i, .b = j, .layout = std::move(layout), .distance = *distance, .how = WeightHow::Part});
    }
  }
}

// ---- tensors of one number

// A scale of each layer says nothing by its value alone: it goes with the one at the same numbers, where one name only
// has as many of them.
void Pairing::match_numbers() {
  const auto groups_of = [](const Weights& side, const std::vector<bool>& is_free) {
    std::map<std::string, std::map<std::vector<std::int64_t>, std::size_t>> groups;
    for (std::size_t i = 0; i < is_free.size(); ++i)
      if (is_free[i] && is_one_number(side.records[i])) {
        const NameTemplate own = numbered(name(side, i), 0);
        groups[own.text][own.numbers] = i;
      }
    return groups;
  };
  const auto values_of = [](const Weights& side, const auto& group) {
    std::vector<std::pair<std::int64_t, double>> values;
    for (const auto& [numbers, i] : group) values.emplace_back(side.records[i].stats.count, side.records[i].stats.min);
    return values;
  };
  const auto groups_a = groups_of(a_, free_a_), groups_b = groups_of(b_, free_b_);
  for (const auto& [text_a, group_a] : groups_a) {
    const auto values_a = values_of(a_, group_a);
    const bool is_uniform = std::ranges::all_of(values_a, [&](const auto& one) { return one == values_a.front(); });
    if (is_uniform) continue;
    std::vector<std::string> fitting, of_same_values, equal;
    for (const auto& [text_b, group_b] : groups_b) {
      auto values_b = values_of(b_, group_b), sorted_a = values_a;
      const auto has_same_key = [](const auto& x, const auto& y) { return x.first == y.first; };
      if (!std::ranges::equal(group_a, group_b, has_same_key) || !std::ranges::equal(values_a, values_b, has_same_key))
        continue;
      fitting.push_back(text_b);
      if (values_a == values_b) equal.push_back(text_b);
      std::ranges::sort(sorted_a);
      std::ranges::sort(values_b);
      if (sorted_a == values_b) of_same_values.push_back(text_b);
    }
    const std::vector<std::string>& best = !equal.empty() ? equal : !of_same_values.empty() ? of_same_values : fitting;
    if (best.size() != 1) continue;
    for (const auto& [numbers, j] : groups_b.at(best.front()))
      if (const std::size_t i = group_a.at(numbers); free_a_[i] && free_b_[j]) take(compare(i, j, WeightHow::Rule));
  }
}

// As many as there are on both sides; those beyond are alone.
void Pairing::match_alike() {
  std::map<std::pair<double, std::int64_t>, AlikeWeights> by_number;
  const auto key = [](const Stats& stats) { return std::pair(stats.count == 0 ? 0 : stats.min, stats.count); };
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i] && is_one_number(a_.records[i])) by_number[key(a_.records[i].stats)].a.push_back(i);
  for (std::size_t j = 0; j < free_b_.size(); ++j)
    if (free_b_[j] && is_one_number(b_.records[j])) by_number[key(b_.records[j].stats)].b.push_back(j);
  for (auto& [number, alike] : by_number) {
    if (alike.a.size() != alike.b.size()) continue;
    for (const std::size_t i : alike.a) free_a_[i] = false;
    for (const std::size_t j : alike.b) free_b_[j] = false;
    result_.alike.push_back(std::move(alike));
  }
}

// ---- the rest

// Where most tensors are paired, what is left over on both sides and has as many elements is most likely the same one,
// changed: the only one of its size, or the one whose name has most words in common. That is less sure.
void Pairing::match_left() {
  const auto left = std::ranges::count(free_a_, true) + std::ranges::count(free_b_, true);
  if (std::ssize(result_.pairs) <= left) return;
  std::map<std::int64_t, AlikeWeights> by_count;
  for (std::size_t i = 0; i < free_a_.size(); ++i)
    if (free_a_[i]) by_count[a_.records[i].stats.count].a.push_back(i);
  for (std::size_t j = 0; j < free_b_.size(); ++j)
    if (free_b_[j]) by_count[b_.records[j].stats.count].b.push_back(j);
  for (const auto& [count, same] : by_count) {
    if (same.a.size() == 1 && same.b.size() == 1) {
      take(compare(same.a.front(), same.b.front(), WeightHow::Left));
      continue;
    }
    const auto words = [&](std::size_t i, std::size_t j) { return common_words(name(a_, i), name(b_, j)); };
    const auto is_best = [&](std::size_t i, std::size_t j) {
      const std::size_t own = words(i, j);
      return own > 0 && std::ranges::all_of(same.a, [&](std::size_t k) { return k == i || words(k, j) < own; }) &&
             std::ranges::all_of(same.b, [&](std::size_t k) { return k == j || words(i, k) < own; });
    };
    for (const std::size_t i : same.a)
      for (const std::size_t j : same.b)
        if (free_a_[i] && free_b_[j] && is_best(i, j)) take(compare(i, j, WeightHow::Left));
  }
}

}  // namespace tenscope::compare
