#include "report/op_diff.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/json_writer.hpp"
#include "report/run_diff.hpp"
#include "report/style.hpp"

namespace tenscope::report {
namespace {

std::string where(const OpPlace& place) {
  const std::string site = place.site.empty() ? std::string("a place that is not known") : place.site;
  const std::string module = place.module.empty() ? std::string() : fmt::format(" in {}", place.module);
  const std::string phase = place.phase.empty() ? std::string() : fmt::format(", {}", place.phase);
  return fmt::format("{} at {}{} (step {}{})", place.op, site, module, place.step, phase);
}

// What the two runs have in common stays plain; of the rest the first run's is toned as a removed line is, the second's
// as an added one.
class PlaceLines {
 public:
  PlaceLines(const OpDiff& diff, bool color) : diff_(diff), color_(color) {}

  std::string text() const {
    std::string text;
    if (diff_.a) text += place("A", *diff_.a, diff_.b, kBad);
    if (diff_.next_a) text += next("A", *diff_.next_a);
    if (diff_.b) text += place("B", *diff_.b, diff_.a, kGood);
    if (diff_.next_b) text += next("B", *diff_.next_b);
    return text;
  }

 private:
  std::string place(std::string_view side, const OpPlace& here, const std::optional<OpPlace>& other, Tone tone) const {
    const auto unless = [&](bool is_same) { return is_same ? Tone::Plain : tone; };
    const std::string statement = toned(here.text, unless(other && other->text == here.text), color_);
    std::string text = fmt::format("  {}  {}   {}\n", side, toned(here.site, Tone::Plain, color_), statement);
    if (!here.inside.empty()) text += fmt::format("       {} at {}\n", here.op, here.inside);
    const bool is_same_op = other && other->op == here.op;
    if (here.args.empty() && (is_same_op || !other)) return text;
    const std::string words = here.args.empty() ? here.op : fmt::format("{}: {}", here.op, here.args);
    return text + fmt::format("       {}\n", toned(words, unless(is_same_op && other->args == here.args), color_));
  }

  std::string next(std::string_view side, const OpPlace& here) const {
    return fmt::format("  {}  goes on with {} at {}   {}\n", side, here.op, here.site,
                       toned(here.text, Tone::Plain, color_));
  }

  const OpDiff& diff_;
  bool color_;
};

std::string reason(const OpDiff& diff) {
  const std::string_view agree =
      diff.are_inputs_equal ? "its inputs agree in bits" : "its inputs agree but for rounding";
  switch (diff.verdict) {
    case OpVerdict::Differs:
      if (diff.are_inputs_exchanged)
        return "both runs have all that goes into it, but make it of different ones of these";
      return fmt::format("{}, its result does not", agree);
    case OpVerdict::Other:
      return fmt::format("{}; the runs make different operations of them", agree);
    case OpVerdict::OnlyInA:
      return fmt::format("{}; B does not make this operation", agree);
    case OpVerdict::OnlyInB:
      return fmt::format("{}; A does not make this operation", agree);
    case OpVerdict::OtherInput:
      return "an input that no recorded operation has made differs";
    default:
      return {};
  }
}

std::string closed(const OpDiff& diff) {
  if (!diff.is_compiled_a && !diff.is_compiled_b) return {};
  const std::string_view of = diff.is_compiled_a && diff.is_compiled_b ? "both runs" : diff.is_compiled_a ? "A" : "B";
  return fmt::format("  operations of compiled code of {} were not seen: --eager runs it as plain Python\n", of);
}

// JSON of the recording, or null where it has none.
void put_value(JsonWriter& json, std::string_view name, const std::string& value) {
  json.key(name);
  value.empty() ? json.null() : json.raw(value);
}

void put_place(JsonWriter& json, std::string_view name, const std::optional<OpPlace>& place) {
  json.key(name);
  if (!place) {
    json.null();
    return;
  }
  const std::size_t colon = place->site.rfind(':');
  const bool has_line = colon != std::string::npos;
  json.begin_object().key("file").text(has_line ? place->site.substr(0, colon) : place->site).key("line");
  has_line ? json.raw(place->site.substr(colon + 1)) : json.null();
  json.key("function").text(place->function).key("op").text(place->op).key("full_op").text(place->full_op);
  json.key("args").text(place->args).key("text").text(place->text);
  json.key("assigns").text(place->assigns).key("module").text(place->module).key("inside");
  place->inside.empty() ? json.null() : json.text(place->inside);
  json.key("phase").text(place->phase).key("step").number(place->step).end_object();
}

}  // namespace

std::string op_diff_text(const OpDiff& diff, bool color) {
  if (diff.verdict == OpVerdict::Nothing)
    return toned(fmt::format("no operation could be compared: {} of A, {} of B were seen", diff.total_a, diff.total_b),
                 Tone::BoldYellow, color) +
           '\n' + closed(diff);
  if (!diff.has_divergence())
    return toned(fmt::format("every operation has its equal{}: {} of A, {} of B",
                             diff.verdict == OpVerdict::Noise ? ", but for rounding noise" : "", diff.total_a,
                             diff.total_b),
                 Tone::BoldYellow, color) +
           '\n' + closed(diff);
  const std::string answer = fmt::format("first divergence: {}", where(diff.b && !diff.a ? *diff.b : *diff.a));
  std::string text = toned(answer, Tone::BoldRed, color) + '\n' + PlaceLines(diff, color).text();
  text += fmt::format("  {}", reason(diff));
  if (diff.metrics) text += fmt::format("; {}", metrics_in_words(*diff.metrics));
  text += '\n';
  for (const OptimizerOption& option : diff.options)
    text += fmt::format("  the optimizer's {}: {} became {}\n", option.name, option.a.empty() ? "nothing" : option.a,
                        option.b.empty() ? "nothing" : option.b);
  return text + closed(diff);
}

std::string op_diff_json(const OpDiff& diff) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("verdict").text(to_string(diff.verdict));
  json.key("line");
  if (diff.has_divergence()) {
    json.begin_object();
    put_place(json, "a", diff.a);
    put_place(json, "b", diff.b);
    json.end_object();
  } else {
    json.null();
  }
  put_place(json, "next_a", diff.next_a);
  put_place(json, "next_b", diff.next_b);
  json.key("optimizer").begin_object();
  for (const OptimizerOption& option : diff.options) {
    json.key(option.name).begin_object();
    put_value(json, "a", option.a);
    put_value(json, "b", option.b);
    json.end_object();
  }
  json.end_object();
  json.key("compiled_a").boolean(diff.is_compiled_a).key("compiled_b").boolean(diff.is_compiled_b);
  json.key("are_inputs_exchanged").boolean(diff.are_inputs_exchanged);
  json.key("are_inputs_equal").boolean(diff.are_inputs_equal);
  json.key("operations_a").number(static_cast<std::uint64_t>(diff.total_a));
  json.key("operations_b").number(static_cast<std::uint64_t>(diff.total_b));
  json.end_object();
  return out;
}

}  // namespace tenscope::report
