#include "compare/align_content.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tenscope::compare {
namespace {

class ContentAligner {
 public:
  ContentAligner(Alignment& alignment, LanePair& pair, const Interner& interner)
      : alignment_(alignment), pair_(pair), interner_(interner), a_(pair.a->items), b_(pair.b->items) {}

  void align(const ContentSource& source, std::vector<double> weight_errors) {
    const ContentMatch match = match_by_content(*pair_.a, *pair_.b, pair_.to_b, pair_.to_a, interner_, source);
    if (match.pairs.empty() && weight_errors.empty()) return;
    pair_.is_by_content = true;
    if (match.weight_error > 0) weight_errors.push_back(match.weight_error);
    std::ranges::sort(weight_errors);
    pair_.weight_error = weight_errors.empty() ? 0 : weight_errors[weight_errors.size() / 2];
    pair_.how_b.assign(b_.size(), ContentHow::Content);
    note_weights(match);
    note_parts(match.pairs);
    join(match.pairs, source);
    join_last_numbers();
    note_ends();
  }

 private:
  std::string name_a(std::size_t item) const { return std::string(interner_.text(a_[item].name)); }
  std::string name_b(std::size_t item) const { return std::string(interner_.text(b_[item].name)); }

  // ---- pairs

  void join(const std::vector<ContentPair>& pairs, const ContentSource& source) {
    std::set<std::pair<TextId, TextId>> renamed;
    for (const ContentPair& one : pairs) {
      if (pair_.to_b[one.a] == kAlone) {
        pair_.join(one.a, one.b);
      } else if (pair_.to_a[one.b] == kAlone) {  // a holds several of b
        pair_.further[one.a].push_back(static_cast<std::int64_t>(one.b));
        pair_.to_a[one.b] = static_cast<std::int64_t>(one.a);
      }
      pair_.how_b[one.b] = one.how;
      alignment_.content_pairs.push_back({.a = name_a(one.a),
                                          .b = name_b(one.b),
                                          .step = a_[one.a].step,
                                          .call = a_[one.a].call,
                                          .how = std::string(to_string(one.how)),
                                          .layout = one.layout.in_words(),
                                          .is_part = !one.layout.of_a.empty() || !one.layout.of_b.empty(),
                                          .error = one.error});
      source.keep(a_[one.a], b_[one.b], one.layout);
      if (a_[one.a].name != b_[one.b].name && renamed.emplace(a_[one.a].name, b_[one.b].name).second)
        alignment_.renamed.push_back({"", name_a(one.a), name_b(one.b)});
    }
  }

  // A number that both runs record last (a loss) is the same thing, whatever its name.
  void join_last_numbers() {
    const auto last_number = [](const std::vector<Item>& items, const std::vector<std::int64_t>& partner) -> TextId {
      for (std::size_t i = items.size(); i-- > 0;)
        if (is_value(items[i])) return items[i].is_number() && partner[i] == kAlone ? items[i].name : 0;
      return 0;
    };
    const TextId last_a = last_number(a_, pair_.to_b), last_b = last_number(b_, pair_.to_a);
    if (last_a == 0 || last_b == 0) return;
    const auto all_of = [](const std::vector<Item>& items, TextId name) {
      std::vector<std::size_t> found;
      for (std::size_t i = 0; i < items.size(); ++i)
        if (is_value(items[i]) && items[i].name == name) found.push_back(i);
      return found;
    };
    const std::vector<std::size_t> in_a = all_of(a_, last_a), in_b = all_of(b_, last_b);
    for (std::size_t k = 0; k < std::min(in_a.size(), in_b.size()); ++k) {
      pair_.join(in_a[k], in_b[k]);
      pair_.how_b[in_b[k]] = ContentHow::Order;
    }
    alignment_.renamed.push_back({"", std::string(interner_.text(last_a)), std::string(interner_.text(last_b))});
  }

  // ---- notes

  // Weights that have changed places, or that lie otherwise than others.
  void note_weights(const ContentMatch& match) {
    std::size_t last = 0;
    for (const Contradiction& one : match.contradictions) {
      last = std::max(last, one.a);
      alignment_.notes.push_back({.kind = DiffNote::Kind::Exchanged,
                                  .subject = name_b(one.b),
                                  .a = name_a(one.a),
                                  .b = name_b(one.expected),
                                  .count = one.votes});
    }
    for (const OddLayout& one : match.odd_layouts) {
      last = std::max(last, one.a);
      alignment_.notes.push_back({.kind = DiffNote::Kind::OddLayout,
                                  .subject = fmt::format("{} -> {}", name_a(one.a), name_b(one.b)),
                                  .a = one.layout,
                                  .b = one.usual,
                                  .count = one.votes});
    }
    if (!match.other_forms.empty())
      alignment_.notes.push_back({.kind = DiffNote::Kind::OtherForm,
                                  .a = name_a(match.other_forms.front().first),
                                  .b = name_b(match.other_forms.front().second),
                                  .count = match.other_forms.size()});
    const bool is_any = !match.contradictions.empty() || !match.odd_layouts.empty();
    const auto is_result = [&](const ContentPair& pair) { return pair.a > last && a_[pair.a].io != Io::Param; };
    if (is_any && std::ranges::none_of(match.pairs, is_result)) alignment_.are_weights_in_doubt = true;
  }

  // A tensor of which the other run has one part and no more: a row, say.
  void note_parts(const std::vector<ContentPair>& pairs) {
    for (const int side : {0, 1}) {
      std::map<std::size_t, std::vector<const ContentPair*>> wholes;
      for (const ContentPair& one : pairs)
        if (one.how != ContentHow::Content && !(side == 0 ? one.layout.of_a : one.layout.of_b).empty())
          wholes[side == 0 ? one.a : one.b].push_back(&one);
      std::erase_if(wholes, [](const auto& whole) { return whole.second.size() > 1; });
      if (wholes.empty()) continue;
      const ContentPair& last = *wholes.rbegin()->second.front();
      alignment_.notes.push_back({.kind = DiffNote::Kind::InPart,
                                  .side = side,
                                  .subject = side == 0 ? name_a(last.a) : name_b(last.b),
                                  .a = last.layout.in_words(),
                                  .count = wholes.size()});
    }
  }

  // What a model returns is recorded last. Where it has no partner, nothing is known of it. What the other run records
  // last may be something else: of one run alone only the output of a model counts.
  void note_ends() {
    const std::optional<std::size_t> a = last_tensor(a_), b = last_tensor(b_);
    if (!a || !b) return;
    const bool is_a_alone = !has_partner(a_, pair_.to_b, *a), is_b_alone = !has_partner(b_, pair_.to_a, *b);
    const bool is_a_missed = is_a_alone && (is_b_alone || is_output(a_[*a])),
               is_b_missed = is_b_alone && (is_a_alone || is_output(b_[*b]));
    if (is_a_missed || is_b_missed)
      alignment_.notes.push_back({.kind = DiffNote::Kind::EndsUnpaired,
                                  .a = is_a_missed ? name_a(*a) : "",
                                  .b = is_b_missed ? name_b(*b) : ""});
  }

  static std::optional<std::size_t> last_tensor(const std::vector<Item>& items) {
    for (std::size_t i = items.size(); i-- > 0;)
      if (items[i].is_tensor() && items[i].io != Io::Param && items[i].io != Io::Buffer) return i;
    return std::nullopt;
  }

  // A tensor, or one of the same bytes: what the last module returns is what the model does.
  static bool has_partner(const std::vector<Item>& items, const std::vector<std::int64_t>& partner, std::size_t item) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (partner[i] != kAlone && items[i].is_tensor() && items[i].fingerprint == items[item].fingerprint) return true;
    return false;
  }

  bool is_output(const Item& item) const { return item.io == Io::Output && !interner_.text(item.shape).empty(); }

  Alignment& alignment_;
  LanePair& pair_;
  const Interner& interner_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;
};

}  // namespace

void align_by_content(Alignment& alignment, LanePair& pair, const Interner& interner, const ContentSource& source,
                      std::vector<double> weight_errors) {
  ContentAligner(alignment, pair, interner).align(source, std::move(weight_errors));
}

}  // namespace tenscope::compare
