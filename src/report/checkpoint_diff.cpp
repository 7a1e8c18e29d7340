#include "report/checkpoint_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/json_writer.hpp"
#include "report/run_diff.hpp"
#include "report/values.hpp"

namespace tenscope::report {
namespace {

using compare::CheckpointDiff;
using compare::WeightPair;
using compare::WeightRule;
using compare::WeightTensor;

std::string coverage(const CheckpointDiff& diff) {
  return fmt::format("{} of {} tensors of a are paired, {} of {} of b", diff.paired_a, diff.total_a, diff.paired_b,
                     diff.total_b);
}

std::string pairing(const CheckpointDiff& diff) {
  const auto is_named = [](const WeightPair& pair) { return pair.how == "name" || pair.how == "map"; };
  const auto named = static_cast<std::size_t>(std::ranges::count_if(diff.pairs, is_named));
  if (named == diff.pairs.size()) return "by their names";
  return named == 0 ? "by content" : fmt::format("by content, {} of them by their names", named);
}

std::size_t changed_count(const CheckpointDiff& diff) {
  return static_cast<std::size_t>(std::ranges::count_if(diff.pairs, &WeightPair::is_changed));
}

std::string answer(const CheckpointDiff& diff) {
  switch (diff.verdict) {
    case DiffVerdict::Nothing:
      return "nothing was compared: no tensor of one is one of the other";
    case DiffVerdict::Equal:
      return "the same weights: every number of one is in the other";
    case DiffVerdict::Differs: {
      std::string text = "different weights:";
      const auto add = [&](std::size_t count, const std::string& what) {
        if (count > 0) text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", count, what);
      };
      add(changed_count(diff), "changed");
      add(diff.contradictions.size(), "in another's place");
      add(diff.only_a.size(), "only in a");
      add(diff.only_b.size(), "only in b");
      return text;
    }
    default: {
      const auto largest = std::ranges::max_element(diff.pairs, {}, &WeightPair::error);
      return fmt::format(
          "the same weights but for rounding: at most {:.1e} (Euclidean, relative){}", largest->error,
          largest->rounding > 0 ? fmt::format("; {:.1e} is normal for {}", largest->rounding, largest->coarser) : "");
    }
  }
}

std::string types_in_words(const WeightRule& rule) {
  if (rule.type_a == rule.type_b) return rule.type_a;
  return fmt::format("{} → {}", rule.type_a, rule.type_b);
}

std::string error_in_words(double error, double rounding) {
  if (error == 0) return "equal";
  if (rounding == 0) return fmt::format("off by {:.1e}", error);
  return fmt::format("off by {:.1e}, {:.1e} is normal", error, rounding);
}

std::string weight_in_words(const WeightTensor& tensor) {
  return fmt::format("{}  {} {}", tensor.name, tensor.type, shape_text(tensor.shape));
}

class Report {
 public:
  Report(const CheckpointDiff& diff, std::size_t top) : diff_(diff), top_(top) {}

  Document write() {
    const bool is_fine = diff_.verdict == DiffVerdict::Equal || diff_.verdict == DiffVerdict::Noise;
    out_.headline(answer(diff_), is_fine ? Tone::BoldGreen : Tone::BoldRed);
    out_.line(fmt::format("  {}, {}", coverage(diff_), pairing(diff_)));
    out_.line(fmt::format("  a: {} (the reference)", diff_.a));
    out_.line(fmt::format("  b: {}", diff_.b));
    for (const std::string& text : diff_.joined) out_.line("  " + text);
    std::vector<const WeightPair*> changed;
    for (const WeightPair& pair : diff_.pairs)
      if (pair.is_changed) changed.push_back(&pair);
    add("changed", changed, kBad, [](const WeightPair* pair) {
      if (pair->a.name == pair->b.name) return fmt::format("{}: {}", pair->a.name, pair->finding);
      return fmt::format("{} (a: {}{}): {}", pair->b.name, pair->a.name,
                         pair->how == "left" ? ", less sure: both are left over" : "", pair->finding);
    });
    add("in another's place", diff_.contradictions, kBad, [](const std::string& text) { return text; });
    add("only in a", diff_.only_a, kBad, weight_in_words);
    add("only in b", diff_.only_b, kBad, weight_in_words);
    rules();
    add("to know", diff_.notes, Tone::Plain, [](const std::string& text) { return text; });
    return std::move(out_);
  }

 private:
  template <class Items, class Words>
  void add(std::string_view head, const Items& items, Tone tone, Words words) {
    if (items.empty()) return;
    out_.section(std::string(head), tone);
    std::size_t shown = 0;
    for (const auto& item : items) {
      if (top_ > 0 && shown == top_) return out_.line(fmt::format("... {} more", items.size() - shown), kFaint);
      out_.line(words(item));
      ++shown;
    }
  }

  void rules() {
    Table table({{"a"}, {"b"}, {"tensors", Align::Right}, {"order"}, {"types"}, {"values"}});
    for (const WeightRule& rule : diff_.rules)
      table.add({rule.a, rule.a == rule.b ? "same" : rule.b, std::to_string(rule.count),
                 rule.layout.empty() ? "same" : rule.layout, types_in_words(rule),
                 error_in_words(rule.error, rule.rounding)});
    if (table.empty()) return;
    out_.section("", Tone::Plain, 0);
    out_.table(std::move(table));
  }

  const CheckpointDiff& diff_;
  std::size_t top_;
  Document out_;
};

void write_tensor(JsonWriter& json, const WeightTensor& tensor) {
  json.begin_object().key("name").text(tensor.name).key("type").text(tensor.type).key("shape");
  write_shape(json, tensor.shape);
  json.end_object();
}

void write_tensors(JsonWriter& json, std::string_view key, const std::vector<WeightTensor>& tensors) {
  json.key(key).begin_array();
  for (const WeightTensor& tensor : tensors) write_tensor(json, tensor);
  json.end_array();
}

void write_texts(JsonWriter& json, std::string_view key, const std::vector<std::string>& texts) {
  json.key(key).begin_array();
  for (const std::string& text : texts) json.text(text);
  json.end_array();
}

}  // namespace

Document checkpoint_diff_report(const CheckpointDiff& diff, std::size_t top) { return Report(diff, top).write(); }

Document checkpoint_map_report(const CheckpointDiff& diff) {
  Table table({{"a"}, {"b"}, {"by"}, {"error", Align::Right}, {"order"}});
  for (const WeightPair& pair : diff.pairs)
    table.add({pair.a.name, pair.b.name, pair.how, pair.error == 0 ? "0" : fmt::format("{:.1e}", pair.error),
               pair.layout.empty() ? "same" : pair.layout});
  Document out;
  if (!table.empty()) out.table(std::move(table));
  out.line(coverage(diff));
  return out;
}

std::string checkpoint_diff_json(const CheckpointDiff& diff) {
  std::string text;
  JsonWriter json(text);
  const auto number = [&](std::string_view key, std::size_t value) {
    json.key(key).number(static_cast<std::uint64_t>(value));
  };
  json.begin_object().key("a").text(diff.a).key("b").text(diff.b).key("verdict").text(to_string(diff.verdict));
  json.key("equal").boolean(diff.verdict == DiffVerdict::Equal || diff.verdict == DiffVerdict::Noise);
  number("tensors_a", diff.total_a);
  number("tensors_b", diff.total_b);
  number("paired_a", diff.paired_a);
  number("paired_b", diff.paired_b);
  number("changed", changed_count(diff));
  json.key("pairs").begin_array();
  for (const WeightPair& pair : diff.pairs) {
    json.begin_object().key("a");
    write_tensor(json, pair.a);
    json.key("b");
    write_tensor(json, pair.b);
    json.key("how").text(pair.how).key("layout").text(pair.layout).key("error").number(pair.error);
    json.key("coarser")
        .text(pair.coarser)
        .key("rounding")
        .number(pair.rounding)
        .key("changed")
        .boolean(pair.is_changed);
    json.key("finding").text(pair.finding).end_object();
  }
  json.end_array().key("rules").begin_array();
  for (const WeightRule& rule : diff.rules) {
    json.begin_object().key("a").text(rule.a).key("b").text(rule.b);
    number("tensors", rule.count);
    json.key("layout").text(rule.layout).key("type_a").text(rule.type_a).key("type_b").text(rule.type_b);
    json.key("error").number(rule.error).key("rounding").number(rule.rounding).end_object();
  }
  json.end_array();
  write_texts(json, "joined", diff.joined);
  write_texts(json, "contradictions", diff.contradictions);
  write_tensors(json, "only_a", diff.only_a);
  write_tensors(json, "only_b", diff.only_b);
  write_texts(json, "notes", diff.notes);
  json.end_object();
  return text;
}

std::string checkpoint_answer(const CheckpointDiff& diff) { return answer(diff); }

std::string checkpoint_coverage(const CheckpointDiff& diff) {
  return fmt::format("{}, {}", coverage(diff), pairing(diff));
}

}  // namespace tenscope::report
