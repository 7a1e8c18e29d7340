#include "compare/name_rules.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <optional>

namespace tenscope::compare {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// b = slope a + base for all examples, by place `from` of a and place `to` of b.
struct Line {
  double slope = 0, base = 0;
};

template <class Examples>
std::optional<Line> line_through(const Examples& examples, std::size_t from, std::size_t to) {
  const auto& first = examples.front();
  const auto second = std::ranges::find_if(examples, [&](const auto& e) { return e.a[from] != first.a[from]; });
  Line line{.slope = 1, .base = static_cast<double>(first.b[to] - first.a[from])};
  if (second != examples.end()) {
    line.slope =
        static_cast<double>(second->b[to] - first.b[to]) / static_cast<double>(second->a[from] - first.a[from]);
    line.base = static_cast<double>(first.b[to]) - line.slope * static_cast<double>(first.a[from]);
  }
  const bool fits = std::ranges::all_of(examples, [&](const auto& e) {
    return std::abs(line.slope * static_cast<double>(e.a[from]) + line.base - static_cast<double>(e.b[to])) < 1e-9;
  });
  return fits ? std::optional(line) : std::nullopt;
}

struct Fit {
  double value = 0;
  std::size_t votes = 0;  // examples that agree
};

// The places of one name's numbers that the number at place `to` of the other may follow, the likeliest first: the
// last, a name's repetition, goes with the last, the others go in their order. One example does not tell.
std::vector<std::size_t> likely_places(std::size_t to, std::size_t count_b, std::size_t count_a) {
  std::vector<std::size_t> places(count_a);
  std::iota(places.begin(), places.end(), std::size_t{0});
  const std::size_t first = to + 1 == count_b ? count_a - 1 : std::min(to, count_a - 1);
  std::rotate(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(first),
              places.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  return places;
}

// The number at place `to` of the other name: what all examples say, or else what most of them say.
template <class Examples>
std::optional<Fit> fit_number(const Examples& examples, const std::vector<std::int64_t>& numbers, std::size_t to) {
  const bool is_constant = examples.size() > 1 && std::ranges::all_of(examples, [&](const auto& e) {
                             return e.b[to] == examples.front().b[to];
                           });
  if (is_constant) return Fit{static_cast<double>(examples.front().b[to]), examples.size()};
  const std::vector<std::size_t> places = likely_places(to, examples.front().b.size(), numbers.size());
  for (const std::size_t from : places)
    if (const auto line = line_through(examples, from, to))
      return Fit{line->slope * static_cast<double>(numbers[from]) + line->base, examples.size()};
  for (const std::size_t from : places) {
    std::map<std::int64_t, std::size_t> shifts;
    for (const auto& e : examples) ++shifts[e.b[to] - e.a[from]];
    const auto most = std::ranges::max_element(shifts, {}, [](const auto& shift) { return shift.second; });
    if (most->second * 3 >= examples.size() * 2)
      return Fit{static_cast<double>(numbers[from] + most->first), most->second};
  }
  return std::nullopt;
}

}  // namespace

// Digits behind a letter belong to the word (q8, conv1), unless the letter is all there is between an underscore and
// them (cache_k_l3).
NameTemplate numbered(std::string_view name, std::int64_t repetition) {
  NameTemplate result;
  for (std::size_t i = 0; i < name.size();) {
    const bool is_behind_letter = i > 0 && is_letter(name[i - 1]);
    const bool is_short = i > 1 && is_behind_letter && name[i - 2] == '_';
    if (!is_digit(name[i]) || (is_behind_letter && !is_short) || (i > 0 && is_digit(name[i - 1]))) {
      result.text += name[i++];
      continue;
    }
    std::int64_t number = 0;
    for (; i < name.size() && is_digit(name[i]); ++i)
      number = std::min<std::int64_t>(number * 10 + (name[i] - '0'), 1LL << 40);
    result.text += "{}";
    result.numbers.push_back(number);
  }
  result.numbers.push_back(repetition);
  return result;
}

std::string pattern_in_words(const NameTemplate& name) {
  std::string text;
  char letter = 'i';
  for (std::size_t at = 0; at < name.text.size(); ++at) {
    text += name.text[at];
    if (name.text.compare(at, 2, "{}") == 0 && letter <= 'z') text += letter++;
  }
  return text;
}

void NameRules::learn(const NameTemplate& a, const NameTemplate& b) {
  examples_[a.text][b.text].push_back({a.numbers, b.numbers});
}

std::vector<RuleAnswer> NameRules::ask(const NameTemplate& a) const {
  std::vector<RuleAnswer> answers;
  const auto known = examples_.find(a.text);
  if (known == examples_.end()) return answers;
  for (const auto& [text, examples] : known->second) {
    RuleAnswer answer{{text, {}}, examples.size()};
    for (std::size_t to = 0; to < examples.front().b.size(); ++to) {
      const std::optional<Fit> fit = fit_number(examples, a.numbers, to);
      if (!fit || std::abs(fit->value - std::round(fit->value)) > 1e-6) break;
      answer.name.numbers.push_back(std::llround(fit->value));
      answer.votes = std::min(answer.votes, fit->votes);
      answer.is_exact &= fit->votes == examples.size();
    }
    if (answer.name.numbers.size() == examples.front().b.size()) answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace tenscope::compare
