#include "compare/checkpoint_diff.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "compare/checkpoint_match.hpp"
#include "compare/measure.hpp"
#include "compare/name_rules.hpp"
#include "compare/run_diff.hpp"
#include "compare/shape.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostExplained = 10;
constexpr std::size_t kMostNamed = 3;

// Whether each head's two halves of a rotary embedding became neighbours, or neighbours halves.
bool is_rotary(const Layout& layout, std::int64_t rows) {
  const auto& [sizes, order, of_a, of_b] = layout;
  const std::size_t at = order.size() > 2 && order[0] == 0 ? 1 : 0;
  if (order.size() < at + 2) return false;
  std::vector<int> expected(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) expected[i] = static_cast<int>(i);
  std::swap(expected[at], expected[at + 1]);
  const std::int64_t heads = at == 1 ? sizes[0] : 1;
  return order == expected && (sizes[at] == 2 || sizes[at + 1] == 2) && heads * sizes[at] * sizes[at + 1] == rows;
}

std::string range_in_words(const Layout::Range& range, std::string_view side) {
  const std::string axis = range.axis == 0 ? "rows" : fmt::format("axis {}", range.axis);
  const std::string every = range.period > 0 ? fmt::format(" of every {}", range.period) : "";
  return fmt::format("{} [{}, {}){} of {}", axis, range.begin, range.end, every, side);
}

std::string in_words(const Layout& layout, const Shape& shape_a, const Shape& shape_b) {
  std::vector<std::string> words;
  for (const Layout::Range& range : layout.of_a) words.push_back(range_in_words(range, "a"));
  for (const Layout::Range& range : layout.of_b) words.push_back(range_in_words(range, "b"));
  Shape first = without_ones(shape_a);
  for (const Layout::Range& range : layout.of_a) first[range.axis] = range.end - range.begin;
  first = without_ones(first);
  const bool is_part = !words.empty();
  if (layout.is_same_order()) {
    if (!is_part && first != without_ones(shape_b)) words.emplace_back("reshaped");
  } else if (layout.order == std::vector<int>{1, 0} && first.size() == 2) {
    words.emplace_back("transposed");
  } else if (!first.empty() && is_rotary(layout, first[0])) {
    words.emplace_back(first.size() == 1 ? "permuted in heads (rotary)" : "rows permuted in heads (rotary)");
  } else {
    words.push_back(Layout{.sizes = layout.sizes, .order = layout.order}.in_words());
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

// "blk.{i}.ffn_up.weight"; of several numbers "{i}", "{j}", "{k}".
std::string template_in_words(const NameTemplate& name) {
  std::string text;
  char letter = 'i';
  for (std::size_t at = 0; at < name.text.size(); ++at) {
    text += name.text[at];
    if (name.text.compare(at, 2, "{}") == 0 && letter <= 'z') text += letter++;
  }
  return text;
}

class Judge {
 public:
  Judge(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff)
      : a_(a), b_(b), match_(match), diff_(diff) {}

  void judge() {
    for (const WeightMatch& one : match_.pairs) diff_.pairs.push_back(make_pair(one));
    find_odd_layouts();
    find_unpermuted();
    find_contradictions();
    explain_changed();
    list_rules();
    list_alone();
    list_notes();
    const bool is_different = std::ranges::any_of(diff_.pairs, &WeightPair::is_changed) ||
                              !diff_.contradictions.empty() || !diff_.only_a.empty() || !diff_.only_b.empty();
    const bool is_exact = std::ranges::all_of(diff_.pairs, [](const WeightPair& pair) { return pair.error == 0; });
    if (diff_.paired_a == 0)
      diff_.verdict = DiffVerdict::Nothing;
    else
      diff_.verdict = is_different ? DiffVerdict::Differs : is_exact ? DiffVerdict::Equal : DiffVerdict::Noise;
  }

 private:
  static WeightTensor tensor(const Weights& side, std::size_t i) {
    const StoredTensor& stored = side.checkpoint.tensors()[i];
    return {stored.name, stored.type, stored.shape};
  }

  WeightPair make_pair(const WeightMatch& one) const {
    const StoredTensor &a = a_.checkpoint.tensors()[one.a], &b = b_.checkpoint.tensors()[one.b];
    WeightPair pair{.a = tensor(a_, one.a), .b = tensor(b_, one.b), .how = std::string(to_string(one.how))};
    pair.rounding = rounding_of(a, b);
    if (pair.rounding > 0) pair.coarser = rounding_of(a) > rounding_of(b) ? a.type : b.type;
    if (!one.has_layout) {
      pair.error = std::numeric_limits<double>::quiet_NaN();
      pair.is_changed = true;
      pair.finding =
          fmt::format("its shape is [{}] in a and [{}] in b", fmt::join(a.shape, ", "), fmt::join(b.shape, ", "));
      return pair;
    }
    pair.layout = in_words(one.layout, a.shape, b.shape);
    pair.error = one.distance.error;
    if (one.distance.has_other_finite) {
      pair.is_changed = true;
      pair.finding = "NaN or infinities are on one side only";
    } else if (pair.error > rounding_limit(a, b)) {
      pair.is_changed = true;
      pair.finding =
          pair.rounding == 0
              ? fmt::format("the values differ by {:.2g} (Euclidean, relative)", pair.error)
              : fmt::format("the values differ by {:.2g} (Euclidean, relative), where {:.2g} is normal for {}",
                            pair.error, pair.rounding, pair.coarser);
    }
    return pair;
  }

  static std::pair<std::string, std::string> texts(const WeightPair& pair) {
    return {numbered(pair.a.name, 0).text, numbered(pair.b.name, 0).text};
  }

  // Of tensors that one rule pairs, those that lie in another order than most.
  void find_odd_layouts() {
    std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<WeightPair*>>> groups;
    for (WeightPair& pair : diff_.pairs)
      if (!pair.is_changed && pair.how != "tied") groups[texts(pair)][pair.layout].push_back(&pair);
    for (auto& [names, by_layout] : groups) {
      if (by_layout.size() < 2) continue;
      const bool is_in_parts = std::ranges::any_of(by_layout, [](const auto& one) {
        return one.first.find(" of a") != one.first.npos || one.first.find(" of b") != one.first.npos;
      });
      if (is_in_parts) continue;
      const auto most = std::ranges::max_element(by_layout, {}, [](const auto& one) { return one.second.size(); });
      for (auto& [layout, members] : by_layout) {
        if (members.size() * 2 > most->second.size()) continue;
        for (WeightPair* pair : members) {
          pair->is_changed = true;
          pair->finding = fmt::format("it is {}, where the other {} of its kind are {}", order_words(layout),
                                      most->second.size(), order_words(most->first));
        }
      }
    }
  }

  // transformers has the two halves of a head behind each other, llama.cpp's architecture `llama` pairs neighbours: the
  // rows of q and k must be permuted on the way from one to the other, or the model talks nonsense.
  void find_unpermuted() {
    const bool is_to_llama = b_.checkpoint.gguf_architecture() == "llama",
               is_from_llama = a_.checkpoint.gguf_architecture() == "llama";
    if (is_to_llama == is_from_llama) return;
    for (WeightPair& pair : diff_.pairs) {
      const std::string &other = is_to_llama ? pair.a.name : pair.b.name,
                        &own = is_to_llama ? pair.b.name : pair.a.name;
      for (const auto& [theirs, ours] :
           {std::pair{".self_attn.q_proj.", ".attn_q."}, {".self_attn.k_proj.", ".attn_k."}})
        if (!pair.is_changed && pair.layout.empty() && other.find(theirs) != other.npos && own.find(ours) != own.npos) {
          pair.is_changed = true;
          pair.finding =
              "its rows are in the order that transformers has; llama.cpp's architecture llama needs those of each "
              "head "
              "permuted (rotary)";
        }
    }
  }

  static std::string order_words(const std::string& layout) { return layout.empty() ? "in the order of a" : layout; }

  // A tensor lies under a name that by most others of its kind belongs to another tensor.
  void find_contradictions() {
    std::map<std::string, std::map<std::string, std::size_t>> votes;
    for (const WeightPair& pair : diff_.pairs) ++votes[texts(pair).first][texts(pair).second];
    std::set<std::string_view> names_b;
    for (const StoredTensor& stored : b_.checkpoint.tensors()) names_b.insert(stored.name);
    for (WeightPair& pair : diff_.pairs) {
      if (pair.how != "content") continue;
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      const auto& answers = votes[a.text];
      const auto most = std::ranges::max_element(answers, {}, [](const auto& one) { return one.second; });
      std::string expected;
      if (most->first != b.text && most->second > 2 * answers.at(b.text) - 1)
        expected = with_numbers(most->first, a.numbers);
      else if (most->first == b.text && has_equal_numbers(a.text, b.text) && a.numbers != b.numbers)
        expected = with_numbers(b.text, a.numbers);
      if (expected.empty() || expected == pair.b.name || !names_b.contains(expected)) continue;
      pair.finding =
          fmt::format("{} holds {}; by the others of its kind {} should", pair.b.name, pair.a.name, expected);
      diff_.contradictions.push_back(pair.finding);
    }
  }

  // Whether the numbers of these names should be the same: some pairs have the same, and no other rule (one layer more
  // in front of all) holds for every pair.
  bool has_equal_numbers(const std::string& text_a, const std::string& text_b) const {
    NameRules rules;
    std::optional<NameTemplate> equal;
    for (const WeightPair& pair : diff_.pairs) {
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      if (a.text != text_a || b.text != text_b) continue;
      rules.learn(a, b);
      if (a.numbers == b.numbers) equal = a;
    }
    if (!equal) return false;
    return std::ranges::none_of(rules.ask(*equal), [](const RuleAnswer& answer) { return answer.is_exact; });
  }

  // Empty where the name has another number of unknowns.
  static std::string with_numbers(const std::string& text, const std::vector<std::int64_t>& numbers) {
    std::string name;
    std::size_t next = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text.compare(at, 2, "{}") != 0) {
        name += text[at];
        continue;
      }
      if (next + 1 >= numbers.size()) return {};
      name += std::to_string(numbers[next++]);
      ++at;
    }
    return next + 1 == numbers.size() ? name : std::string();
  }

  void explain_changed() {
    std::size_t explained = 0;
    for (std::size_t i = 0; i < diff_.pairs.size() && explained < kMostExplained; ++i) {
      WeightPair& pair = diff_.pairs[i];
      const WeightMatch& match = match_.pairs[i];
      const double limit = rounding_limit(a_.checkpoint.tensors()[match.a], b_.checkpoint.tensors()[match.b]);
      if (!pair.is_changed || !(pair.error > limit) || match.how == WeightHow::Part) continue;
      ++explained;
      if (match.distance.rest <= limit && pair.rounding > 0) {
        pair.finding += fmt::format("; b = {:.4g} a but for rounding", match.distance.factor);
        continue;
      }
      const TensorData x = a_.checkpoint.data(match.a), y = b_.checkpoint.data(match.b);
      if (const std::string words = find_relation(x.view, y.view); !words.empty()) pair.finding += "; " + words;
    }
  }

  void list_rules() {
    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
    for (const WeightPair& pair : diff_.pairs) {
      if (!pair.finding.empty()) continue;
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      const auto [place, is_new] = places.try_emplace({a.text, b.text, pair.layout}, diff_.rules.size());
      if (is_new)
        diff_.rules.push_back({.a = template_in_words(a),
                               .b = template_in_words(b),
                               .layout = pair.layout,
                               .type_a = pair.a.type,
                               .type_b = pair.b.type});
      WeightRule& rule = diff_.rules[place->second];
      ++rule.count;
      if (rule.type_a != pair.a.type) rule.type_a = "several types";
      if (rule.type_b != pair.b.type) rule.type_b = "several types";
      rule.error = std::max(rule.error, pair.error);
      rule.rounding = std::max(rule.rounding, pair.rounding);
    }
    for (WeightRule& rule : diff_.rules)
      if (rule.count == 1) name_singly(rule);
  }

  // A rule of one tensor has that tensor's names.
  void name_singly(WeightRule& rule) const {
    for (const WeightPair& pair : diff_.pairs)
      if (pair.finding.empty() && pair.layout == rule.layout && template_in_words(numbered(pair.a.name, 0)) == rule.a &&
          template_in_words(numbered(pair.b.name, 0)) == rule.b) {
        rule.a = pair.a.name;
        rule.b = pair.b.name;
        return;
      }
  }

  void list_alone() {
    std::set<std::size_t> unread_a, unread_b;
    for (const std::size_t i : match_.alone_a) diff_.only_a.push_back(tensor(a_, i));
    for (const std::size_t j : match_.alone_b) diff_.only_b.push_back(tensor(b_, j));
    diff_.total_a = a_.records.size();
    diff_.total_b = b_.records.size();
    diff_.paired_a = diff_.total_a - diff_.only_a.size();
    diff_.paired_b = diff_.total_b - diff_.only_b.size();
  }

  static std::string names(const Weights& side, const std::vector<std::size_t>& tensors) {
    std::vector<std::string> all;
    for (const std::size_t i : tensors) all.push_back(tensor(side, i).name);
    return fmt::format("{}", fmt::join(all, ", "));
  }

  void list_notes() {
    for (const AlikeWeights& alike : match_.alike) {
      const Stats& stats = a_.records[alike.a.front()].stats;
      if (stats.min == stats.max)
        diff_.notes.push_back(fmt::format(
            "{} tensors of {} elements hold nothing but {} on both sides: equal, but not told apart ({} and {}, ...)",
            alike.a.size(), stats.count, stats.min, tensor(a_, alike.a.front()).name,
            tensor(b_, alike.b.front()).name));
      else
        diff_.notes.push_back(
            fmt::format("tied: {} of a and {} of b all hold the same numbers", names(a_, alike.a), names(b_, alike.b)));
    }
    for (const Weights* side : {&a_, &b_}) {
      std::map<std::string, std::vector<std::string>> by_type;
      for (const StoredTensor& stored : side->checkpoint.tensors())
        if (!stored.is_readable) by_type[stored.type].push_back(stored.name);
      for (const auto& [type, names] : by_type)
        diff_.notes.push_back(fmt::format(
            "cannot read the type {} yet, of {} {} in {}: {}{}", type, names.size(),
            names.size() == 1 ? "tensor" : "tensors", side == &a_ ? "a" : "b",
            fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNamed)),
                      ", "),
            names.size() > kMostNamed ? ", ..." : ""));
    }
  }

  const Weights& a_;
  const Weights& b_;
  const CheckpointMatch& match_;
  CheckpointDiff& diff_;
};

}  // namespace

bool are_checkpoints(const fs::path& path_a, const fs::path& path_b) {
  if (!is_checkpoint(path_a) || !is_checkpoint(path_b)) return false;
  if (is_run_folder(path_a) && is_run_folder(path_b)) return false;
  const Checkpoint a(path_a), b(path_b);
  constexpr std::size_t kFewest = 2;
  if (a.tensors().size() < kFewest || b.tensors().size() < kFewest) return false;
  if (fs::is_directory(path_a) != fs::is_directory(path_b)) return true;
  const auto is_quantised = [](const StoredTensor& tensor) { return tensor.is_quantised; };
  if (std::ranges::any_of(a.tensors(), is_quantised) || std::ranges::any_of(b.tensors(), is_quantised)) return true;
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : a.tensors()) names.insert(tensor.name);
  const auto common = static_cast<std::size_t>(
      std::ranges::count_if(b.tensors(), [&](const StoredTensor& tensor) { return names.contains(tensor.name); }));
  return 2 * common < std::min(a.tensors().size(), b.tensors().size());
}

CheckpointDiff diff_checkpoints(const fs::path& path_a, const fs::path& path_b, const CheckpointDiffOptions& options) {
  const Checkpoint checkpoint_a(path_a), checkpoint_b(path_b);
  Interner interner;
  Weights a{checkpoint_a, {}, {}}, b{checkpoint_b, {}, {}};
  const double total = static_cast<double>(checkpoint_a.size_bytes() + checkpoint_b.size_bytes());
  constexpr double kReading = 0.5;  // of the time
  const auto progress = [&](std::uint64_t before) {
    return [&, before](std::uint64_t done) {
      if (options.on_progress)
        options.on_progress(kReading * static_cast<double>(before + done) / std::max(total, 1.0));
    };
  };
  a.lane = checkpoint_a.lane(interner, a.records, progress(0));
  b.lane = checkpoint_b.lane(interner, b.records, progress(checkpoint_a.size_bytes()));
  const CheckpointMatch match = match_checkpoints(a, b, interner, options.map);
  CheckpointDiff diff{.a = path_a.string(), .b = path_b.string()};
  Judge(a, b, match, diff).judge();
  if (options.on_progress) options.on_progress(1);
  return diff;
}

}  // namespace tenscope::compare
