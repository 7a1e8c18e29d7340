#include "compare/checkpoint_diff.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "compare/checkpoint_joined.hpp"
#include "compare/checkpoint_match.hpp"
#include "compare/checkpoint_words.hpp"
#include "compare/name_rules.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/rounding_check.hpp"
#include "compare/run_diff.hpp"
#include "compare/shape.hpp"
#include "tenscope/explain.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostExplained = 10;
constexpr std::size_t kMostNamed = 3;

class Judge {
 public:
  Judge(const Weights& a, const Weights& b, const CheckpointMatch& match, CheckpointDiff& diff)
      : a_(a), b_(b), match_(match), diff_(diff) {}

  void judge() {
    for (const WeightMatch& one : match_.pairs) diff_.pairs.push_back(make_pair(one));
    check_roundings();
    find_odd_layouts();
    judge_parts(a_, b_, match_, diff_);
    find_unpermuted();
    find_odd_heads();
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
    pair.layout = layout_in_words(one.layout, a.shape, b.shape);
    pair.error = one.distance.error;
    if (one.distance.has_other_finite) {
      pair.is_changed = true;
      pair.finding = "NaN or infinities are on one side only";
    } else if (pair.error > rounding_limit(a, b)) {
      pair.is_changed = true;
      const bool is_part = !one.layout.of_a.empty() || !one.layout.of_b.empty();
      const std::string of_part = is_part ? "in " + pair.layout + " " : "";
      if (one.distance.scale == 0)
        pair.finding = fmt::format("{}it is nothing but zeros in a, and not in b", of_part);
      else
        pair.finding = fmt::format("{}the values differ by {:.2g} (Euclidean, relative)", of_part, pair.error);
      if (pair.rounding > 0)
        pair.finding += fmt::format(", where {:.2g} is normal for {}", pair.rounding, pair.coarser);
    }
    return pair;
  }

  // What is near enough over all may still be no rounding: row by row, and against others of these types.
  void check_roundings() {
    std::map<std::string, std::vector<std::pair<double, WeightPair*>>> by_type;
    for (std::size_t i = 0; i < diff_.pairs.size(); ++i) {
      WeightPair& pair = diff_.pairs[i];
      const WeightMatch& match = match_.pairs[i];
      if (!match.has_layout || pair.rounding == 0) continue;
      const TensorData x = a_.checkpoint.data(match.a), y = b_.checkpoint.data(match.b);
      const RoundingCheck check = check_rounding(a_.checkpoint.tensors()[match.a], x.view,
                                                 b_.checkpoint.tensors()[match.b], y.view, match.layout);
      if (pair.is_changed) {
        if (!check.words.empty() && !check.is_all) pair.finding += "; " + check.words;
        continue;
      }
      if (check.is_known) by_type[pair.coarser].emplace_back(check.systematic, &pair);
      pair.is_changed = !check.words.empty();
      pair.finding = check.words;
    }
    for (auto& [type, members] : by_type) {
      if (members.size() < pairing::kFewestOfType) continue;
      const auto middle = members.begin() + static_cast<std::ptrdiff_t>(members.size() / 2);
      std::ranges::nth_element(members, middle, {}, [](const auto& member) { return member.first; });
      const double usual = middle->first;
      for (auto& [systematic, pair] : members) {
        if (pair->is_changed || std::abs(systematic - usual) <= pairing::kLeansOtherwise * pair->rounding) continue;
        pair->is_changed = true;
        pair->finding = fmt::format("the {} tensor is {:.4g} times the other but for rounding, where {:.4g} is usual",
                                    type, 1 + systematic, 1 + usual);
      }
    }
  }

  static std::pair<std::string, std::string> texts(const WeightPair& pair) {
    return {numbered(pair.a.name, 0).text, numbered(pair.b.name, 0).text};
  }

  // Of tensors that one rule pairs, those that lie in another order than most.
  void find_odd_layouts() {
    std::map<std::tuple<std::string, std::string, Shape>, std::map<std::string, std::vector<WeightPair*>>> groups;
    for (std::size_t i = 0; i < diff_.pairs.size(); ++i) {
      WeightPair& pair = diff_.pairs[i];
      const Layout& layout = match_.pairs[i].layout;
      const bool is_part = !layout.of_a.empty() || !layout.of_b.empty();  // judge_parts
      const auto [text_a, text_b] = texts(pair);
      if (!pair.is_changed && pair.how != "tied" && !is_part)
        groups[{text_a, text_b, without_ones(pair.a.shape)}][pair.layout].push_back(&pair);
    }
    for (auto& [kind, by_layout] : groups) {
      if (by_layout.size() < 2) continue;
      const auto most = std::ranges::max_element(by_layout, {}, [](const auto& one) { return one.second.size(); });
      for (auto& [layout, members] : by_layout) {
        if (&layout == &most->first) continue;
        const std::size_t usual = most->second.size();
        for (WeightPair* pair : members) {
          pair->is_changed = true;
          pair->finding =
              fmt::format("it is {}, where {}{} of its kind {} {}{}", order_words(layout),
                          by_layout.size() == 2 ? "the other " : "", usual, usual == 1 ? "is" : "are",
                          order_words(most->first), members.size() == usual ? ": which is right is not known" : "");
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

  // The heads of q and k are of one size, though k may have fewer.
  void find_odd_heads() {
    std::map<std::vector<std::int64_t>, std::int64_t> heads_of_q;  // by the numbers in the name
    const auto head_of = [&](std::size_t i, char role) {
      const WeightPair& pair = diff_.pairs[i];
      const Layout& layout = match_.pairs[i].layout;
      const bool is_known = role_of(owner_word(pair.a.name)) == role && !pair.is_changed && !pair.a.shape.empty() &&
                            layout.of_a.empty() && layout.of_b.empty();
      return is_known ? rotary_head(layout, pair.a.shape[0]) : 0;
    };
    for (std::size_t i = 0; i < diff_.pairs.size(); ++i)
      if (const std::int64_t head = head_of(i, 'q'); head > 0)
        heads_of_q.emplace(numbered(diff_.pairs[i].a.name, 0).numbers, head);
    for (std::size_t i = 0; i < diff_.pairs.size(); ++i) {
      const std::int64_t head = head_of(i, 'k');
      const auto of_q = heads_of_q.find(numbered(diff_.pairs[i].a.name, 0).numbers);
      if (head == 0 || of_q == heads_of_q.end() || of_q->second == head) continue;
      diff_.pairs[i].is_changed = true;
      diff_.pairs[i].finding =
          fmt::format("its rows are permuted in heads of {} (rotary), those of q in heads of {}", head, of_q->second);
    }
  }

  static std::string order_words(const std::string& layout) { return layout.empty() ? "in the order of a" : layout; }

  // A tensor lies under a name that by most others of its kind, or of its layer, belongs to another tensor.
  void find_contradictions() {
    std::map<std::string, std::map<std::string, std::size_t>> votes;
    std::map<std::tuple<std::string, std::string, std::int64_t>, std::map<std::int64_t, std::size_t>> layer_votes;
    const auto layer_of = [](const NameTemplate& a, const NameTemplate& b) {
      return std::tuple(a.text.substr(0, a.text.find("{}")), b.text.substr(0, b.text.find("{}")), a.numbers.front());
    };
    for (const WeightPair& pair : diff_.pairs) {
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      ++votes[a.text][b.text];
      if (a.numbers.size() > 1 && b.numbers.size() > 1) ++layer_votes[layer_of(a, b)][b.numbers.front()];
    }
    std::set<std::string_view> names_b;
    for (const StoredTensor& stored : b_.checkpoint.tensors()) names_b.insert(stored.name);
    const auto most_of = [](const auto& answers) {
      return std::ranges::max_element(answers, {}, [](const auto& one) { return one.second; });
    };
    for (WeightPair& pair : diff_.pairs) {
      if (pair.how != "content" && pair.how != "part") continue;
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      const auto& answers = votes[a.text];
      const auto most = most_of(answers);
      std::string expected;
      std::string_view others = "kind";
      if (most->first != b.text && most->second > 2 * answers.at(b.text) - 1)
        expected = expected_under(most->first, a);
      else if (most->first == b.text && has_equal_numbers(a.text, b.text) && a.numbers != b.numbers)
        expected = with_numbers(b.text, a.numbers);
      if (expected.empty() && a.numbers.size() > 1 && b.numbers.size() > 1) {
        const auto& layers = layer_votes[layer_of(a, b)];
        const auto layer = most_of(layers);
        std::vector<std::int64_t> numbers = b.numbers;
        numbers.front() = layer->first;
        others = "layer";
        if (layer->second > 2 * layers.at(b.numbers.front())) expected = with_numbers(b.text, numbers);
      }
      const char role_a = role_of(owner_word(pair.a.name)), role_b = role_of(owner_word(pair.b.name));
      if (expected.empty() && pair.how == "content" && role_a != 0 && role_b != 0 && role_a != role_b) {
        pair.finding = fmt::format("{} holds {}: by their names these are different weights", pair.b.name, pair.a.name);
        diff_.contradictions.push_back(pair.finding);
        continue;
      }
      if (expected.empty() || expected == pair.b.name || !names_b.contains(expected)) continue;
      pair.finding =
          fmt::format("{} holds {}; by the others of its {} {} should", pair.b.name, pair.a.name, others, expected);
      diff_.contradictions.push_back(pair.finding);
    }
  }

  // The name of this form that by all pairs belongs to a name of a. Empty where they do not tell.
  std::string expected_under(const std::string& text_b, const NameTemplate& name_a) const {
    NameRules rules;
    for (const WeightPair& pair : diff_.pairs) {
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      if (a.text == name_a.text && b.text == text_b) rules.learn(a, b);
    }
    const std::vector<RuleAnswer> answers = rules.ask(name_a);
    return answers.empty() ? std::string() : with_numbers(text_b, answers.front().name.numbers);
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
      if (const Explanation found = explain(x.view, y.view); found.found()) pair.finding += "; " + found.words;
    }
    for (const WeightCopy& copy : match_.copies)
      for (std::size_t i = 0; i < diff_.pairs.size(); ++i)
        if ((copy.is_in_a ? match_.pairs[i].a : match_.pairs[i].b) == copy.tensor && diff_.pairs[i].is_changed)
          diff_.pairs[i].finding +=
              fmt::format("; it holds the numbers of {}", tensor(copy.is_in_a ? a_ : b_, copy.of).name);
  }

  void list_rules() {
    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
    for (std::size_t i = 0; i < diff_.pairs.size(); ++i) {
      const WeightPair& pair = diff_.pairs[i];
      if (!pair.finding.empty()) continue;
      const NameTemplate a = numbered(pair.a.name, 0), b = numbered(pair.b.name, 0);
      const Layout& layout = match_.pairs[i].layout;
      const std::string order = !layout.of_a.empty() && b.numbers.size() > a.numbers.size()   ? "parts of a by number"
                                : !layout.of_b.empty() && a.numbers.size() > b.numbers.size() ? "parts of b by number"
                                                                                              : pair.layout;
      const auto [place, is_new] = places.try_emplace({a.text, b.text, order}, diff_.rules.size());
      if (is_new)
        diff_.rules.push_back({.a = pattern_in_words(a),
                               .b = pattern_in_words(b),
                               .layout = order,
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
      if (pair.finding.empty() && pair.layout == rule.layout && pattern_in_words(numbered(pair.a.name, 0)) == rule.a &&
          pattern_in_words(numbered(pair.b.name, 0)) == rule.b) {
        rule.a = pair.a.name;
        rule.b = pair.b.name;
        return;
      }
  }

  void list_alone() {
    const auto list = [&](const Weights& side, const std::vector<std::size_t>& alone, std::vector<WeightTensor>& only) {
      std::vector<std::size_t> buffers;
      for (const std::size_t i : alone)
        is_needless(side.checkpoint.tensors()[i]) ? buffers.push_back(i) : only.push_back(tensor(side, i));
      if (!buffers.empty())
        diff_.notes.push_back(
            fmt::format("only in {}, and no weights: {}", &side == &a_ ? "a" : "b", some_names(side, buffers)));
      return buffers.size();
    };
    const std::size_t buffers_a = list(a_, match_.alone_a, diff_.only_a),
                      buffers_b = list(b_, match_.alone_b, diff_.only_b);
    diff_.total_a = a_.records.size();
    diff_.total_b = b_.records.size();
    diff_.paired_a = diff_.total_a - diff_.only_a.size() - buffers_a;
    diff_.paired_b = diff_.total_b - diff_.only_b.size() - buffers_b;
  }

  // Buffers that count steps, or that a model makes anew when it is built: a format may leave them out.
  static bool is_needless(const StoredTensor& stored) {
    constexpr std::array<std::string_view, 5> kLeaves = {"num_batches_tracked", "position_ids", "rotary_emb.inv_freq",
                                                         "attn.masked_bias", "relative_position_index"};
    const bool is_causal_mask = stored.name.ends_with("attn.bias") && stored.shape.size() == 4;
    return is_causal_mask ||
           std::ranges::any_of(kLeaves, [&](std::string_view leaf) { return stored.name.ends_with(leaf); });
  }

  static std::string some_names(const Weights& side, const std::vector<std::size_t>& tensors) {
    const std::vector<std::size_t> first(
        tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(std::min(tensors.size(), kMostNamed)));
    return names(side, first) +
           (tensors.size() > kMostNamed ? fmt::format(" and {} more", tensors.size() - kMostNamed) : "");
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
    for (const WeightCopy& copy : match_.copies) {
      const std::vector<std::size_t>& alone = copy.is_in_a ? match_.alone_a : match_.alone_b;
      const Weights& side = copy.is_in_a ? a_ : b_;
      if (std::ranges::find(alone, copy.tensor) != alone.end())
        diff_.notes.push_back(fmt::format("{}, which is only in {}, holds the same numbers as {}",
                                          tensor(side, copy.tensor).name, copy.is_in_a ? "a" : "b",
                                          tensor(side, copy.of).name));
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
  const int runs = (is_run_folder(path_a) ? 1 : 0) + (is_run_folder(path_b) ? 1 : 0);
  if (runs == 2) return false;
  const Checkpoint a(path_a), b(path_b);
  constexpr std::size_t kFewest = 2;
  const bool are_few = a.tensors().size() < kFewest || b.tensors().size() < kFewest;
  if (runs == 1 && are_few) return false;  // a tensor beside a run is no model
  if (fs::is_directory(path_a) != fs::is_directory(path_b) || a.shards() != b.shards()) return true;
  if (are_few) return false;
  const auto is_quantised = [](const StoredTensor& tensor) { return tensor.is_quantised; };
  if (std::ranges::any_of(a.tensors(), is_quantised) || std::ranges::any_of(b.tensors(), is_quantised)) return true;
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : a.tensors()) names.insert(tensor.name);
  const auto common = static_cast<std::size_t>(
      std::ranges::count_if(b.tensors(), [&](const StoredTensor& tensor) { return names.contains(tensor.name); }));
  const std::size_t least = std::min(a.tensors().size(), b.tensors().size());
  return 2 * common < least || (common >= kFewest && common < least);
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
