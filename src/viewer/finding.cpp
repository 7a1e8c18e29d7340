#include "viewer/finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/checkpoint_diff.hpp"
#include "report/run_diff.hpp"
#include "report/values.hpp"
#include "viewer/json.hpp"

namespace tenscope::viewer {
namespace {

constexpr std::size_t kMostPlaces = 100;

// "1,234 tensors"
std::string counted(std::size_t number, std::string_view noun) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return fmt::format("{} {}{}", digits, noun, number == 1 ? "" : "s");
}

class FindingWriter {
 public:
  FindingWriter(JsonWriter& json, const State& state) : json_(json), state_(state) {}

  void write(const RunDiff& diff) {
    head("diff", to_string(diff.verdict), report::run_diff_answer(diff), report::coverage_in_words(diff));
    json_.key("counts").begin_object();
    for (const auto& [name, count] : {std::pair{"compared", diff.compared},
                                      {"bit_equal", diff.bit_equal},
                                      {"same_values", diff.same_values},
                                      {"noise", diff.noise},
                                      {"unknown", diff.unknown},
                                      {"consequences", diff.consequences},
                                      {"idle", diff.idle},
                                      {"origins", diff.origin_count}})
      json_.key(name).number(static_cast<std::uint64_t>(count));
    json_.end_object().key("places").begin_array();
    for (std::size_t i = 0; i < std::min(diff.origins.size(), kMostPlaces); ++i)
      origin(diff, diff.origins[i], i == 0 ? "first divergence" : "starts a difference of its own");
    if (diff.origins.empty() && diff.first_bit_difference)
      origin(diff, *diff.first_bit_difference, "first difference in bits");
    json_.end_array().key("origin_count").number(static_cast<std::uint64_t>(diff.origin_count));
    texts("notes", diff.notes, report::note_in_words);
    texts("settings", diff.settings, report::setting_in_words);
    json_.key("renamed").begin_array();
    for (const DiffRenamed& one : diff.renamed) json_.begin_array().text(one.a).text(one.b).end_array();
    json_.end_array().key("unmatched").begin_array();
    for (const DiffUnmatched& one : diff.unmatched) {
      json_.begin_object().key("side").text(one.side == 0 ? "a" : "b").key("module").text(one.module);
      json_.key("class").text(one.cls).key("name");
      one.name.empty() ? json_.null() : json_.text(one.name);
      json_.key("events").number(static_cast<std::uint64_t>(one.events)).end_object();
    }
    json_.end_array();
    ways("diff");
  }

  void write(const CheckReport& report) {
    const bool has_looked = report.has_looked();
    const std::string_view verdict = !has_looked ? "nothing" : report.is_healthy() ? "healthy" : "unhealthy";
    std::string headline = "healthy: nothing found";
    if (!has_looked)
      headline = "nothing was looked at: the run has nothing that a rule is about";
    else if (!report.findings.empty())
      headline = report.findings.front().code + ": " + report.findings.front().message;
    else if (!report.failures.empty())
      headline = report.failures.front();
    else if (!report.missing.empty())
      headline = "not known to be healthy: parts of the run are missing";
    head("check", verdict, headline,
         fmt::format("{}, {}, {} over {} looked at", counted(report.tensors, "tensor"),
                     counted(report.numbers, "number"), counted(report.parameters, "parameter"),
                     counted(report.steps, "step")));
    json_.key("counts").begin_object().key("compared").number(static_cast<std::uint64_t>(report.tensors));
    json_.key("origins").number(static_cast<std::uint64_t>(report.findings.size())).end_object();
    json_.key("places").begin_array();
    for (std::size_t i = 0; i < std::min(report.findings.size(), kMostPlaces); ++i) finding(report.findings[i]);
    json_.end_array().key("origin_count").number(static_cast<std::uint64_t>(report.findings.size()));
    std::vector<std::string> notes = report.failures;
    notes.insert(notes.end(), report.missing.begin(), report.missing.end());
    notes.insert(notes.end(), report.notes.begin(), report.notes.end());
    texts("notes", notes, +[](const std::string& text) { return text; });
    nothing_else();
    ways("check");
  }

  void write(const ValueDiff& diff) {
    const bool is_same = !diff.is_different() && diff.trouble == 0;
    const auto is_close = [](const DiffEntry& entry) {
      return entry.tensor != nullptr && entry.tensor->verdict == Verdict::Close;
    };
    const std::string_view verdict = diff.tensors + diff.values == 0               ? "nothing"
                                     : !is_same                                    ? "differs"
                                     : std::ranges::any_of(diff.entries, is_close) ? "noise"
                                                                                   : "equal";
    const auto count = [](std::int64_t number) { return static_cast<std::size_t>(std::max<std::int64_t>(0, number)); };
    const std::string headline =
        verdict == "equal"     ? "every tensor agrees bit for bit"
        : verdict == "noise"   ? "every tensor agrees within the tolerance of its type"
        : verdict == "nothing" ? "there was nothing to compare"
                               : fmt::format("{} of {} differ{}", diff.different, counted(diff.entries.size(), "value"),
                                             diff.different == 1 ? "s" : "");
    head("files", verdict, headline, fmt::format("{} compared", counted(count(diff.tensors), "tensor")));
    json_.key("counts").begin_object().key("compared").number(diff.tensors);
    json_.key("origins").number(diff.different).end_object().key("places").begin_array();
    std::vector<const DiffEntry*> worst;
    for (const DiffEntry& entry : diff.entries)
      if (entry.status != EntryStatus::Same) worst.push_back(&entry);
    std::ranges::stable_sort(worst, std::greater<>(), [](const DiffEntry* entry) { return size_of(*entry); });
    for (std::size_t i = 0; i < std::min(worst.size(), kMostPlaces); ++i) entry(*worst[i]);
    json_.end_array().key("origin_count").number(diff.different).key("notes").begin_array().end_array();
    nothing_else();
    ways("diff");
  }

  void write(const compare::CheckpointDiff& diff) {
    std::vector<const compare::WeightPair*> changed;
    for (const compare::WeightPair& pair : diff.pairs)
      if (pair.is_changed) changed.push_back(&pair);
    std::ranges::stable_sort(changed, std::greater<>(), &compare::WeightPair::error);
    head("files", to_string(diff.verdict), report::checkpoint_answer(diff), report::checkpoint_coverage(diff));
    json_.key("counts").begin_object().key("compared").number(static_cast<std::uint64_t>(diff.pairs.size()));
    json_.key("origins").number(static_cast<std::uint64_t>(changed.size())).end_object().key("places").begin_array();
    for (std::size_t i = 0; i < std::min(changed.size(), kMostPlaces); ++i) weight(*changed[i]);
    json_.end_array().key("origin_count").number(static_cast<std::uint64_t>(changed.size()));
    std::vector<std::string> notes = diff.contradictions;
    notes.insert(notes.end(), diff.joined.begin(), diff.joined.end());
    notes.insert(notes.end(), diff.notes.begin(), diff.notes.end());
    texts("notes", notes, +[](const std::string& text) { return text; });
    json_.key("settings").begin_array().end_array().key("renamed").begin_array();
    for (const compare::WeightRule& rule : diff.rules) json_.begin_array().text(rule.a).text(rule.b).end_array();
    json_.end_array().key("unmatched").begin_array();
    for (const bool is_of_b : {false, true})
      for (const compare::WeightTensor& one : is_of_b ? diff.only_b : diff.only_a) {
        json_.begin_object().key("side").text(is_of_b ? "b" : "a").key("module").text("").key("class").text(one.type);
        json_.key("name").text(one.name).key("events").number(1).end_object();
      }
    json_.end_array();
    ways("diff");
  }

  void write(std::monostate) {
    head("files", "nothing", state_.is_pair() ? "a run beside a file: look at their tensors" : "a file of tensors", "");
    json_.key("counts").begin_object().end_object().key("places").begin_array().end_array();
    json_.key("origin_count").number(0).key("notes").begin_array().end_array();
    nothing_else();
    ways("show");
  }

 private:
  void head(std::string_view of, std::string_view verdict, std::string_view headline, std::string_view coverage) {
    json_.begin_object().key("state").text("ready").key("of").text(of).key("verdict").text(verdict);
    json_.key("headline").text(headline).key("coverage").text(coverage);
  }

  template <class T>
  void texts(std::string_view name, const std::vector<T>& values, std::string (*in_words)(const T&)) {
    json_.key(name).begin_array();
    for (const T& value : values) json_.text(in_words(value));
    json_.end_array();
  }

  void nothing_else() {
    for (const std::string_view name : {"settings", "renamed", "unmatched"}) json_.key(name).begin_array().end_array();
  }

  // How to ask the same elsewhere.
  void ways(std::string_view verb) {
    const std::string a = state_.sides[0]->shown_path(), b = state_.is_pair() ? state_.sides[1]->shown_path() : "";
    const std::string word = b.empty() ? "" : " " + report::shell_word(b),
                      text = b.empty() ? "" : ", " + python_text(b);
    json_.key("command").text(fmt::format("tenscope {} {}{}", verb, report::shell_word(a), word));
    const std::string function = verb == "diff" ? "diff" : state_.sides[0]->reader() != nullptr ? "open" : "load";
    json_.key("python").text(fmt::format("tenscope.{}({}{})", function, python_text(a), text)).end_object();
  }

  std::optional<EventId> find(std::size_t side, const std::string& name, std::int64_t step, std::int64_t call,
                              int rank) const {
    if (state_.sides[side] == nullptr || state_.catalogs[side] == nullptr) return std::nullopt;
    return find_event(*state_.sides[side], *state_.catalogs[side], name, step, call, rank);
  }

  void event(std::string_view key, std::size_t side, std::optional<EventId> id) {
    json_.key(key);
    if (id)
      json_.number(state_.sides[side]->number_of(*id));
    else
      json_.null();
  }

  void place(const DiffPlace& place) {
    json_.key("module").text(place.module).key("class").text(place.cls).key("root").text(place.root);
    json_.key("name").text(place.name).key("step").number(place.step).key("call").number(place.call);
    json_.key("rank").number(place.rank).key("phase").text(place.phase).key("io").text(place.io).key("site");
    place.site.empty() ? json_.null() : json_.text(place.site);
  }

  // Of a parameter's gradient a place has the parameter's name.
  std::optional<EventId> event_at(const DiffPlace& place) const {
    const std::string own = place.io == "grad" ? place.name + std::string(kGradientSuffix) : place.name;
    const auto found = find(0, own, place.step, place.call, place.rank);
    return found ? found : find(0, place.name, place.step, place.call, place.rank);
  }

  void agreeing(const std::optional<DiffPlace>& last) {
    json_.key("last_agreeing");
    if (!last) {
      json_.null();
      return;
    }
    const std::optional<EventId> id = event_at(*last);
    json_.begin_object().key("name").text(last->name).key("step").number(last->step).key("call").number(last->call);
    json_.key("rank").number(last->rank);
    event("event_a", 0, id);
    event("event_b", 1, id && state_.pairs != nullptr ? state_.pairs->of(0, *id).partner : std::nullopt);
    json_.end_object();
  }

  void origin(const RunDiff& diff, const DiffOrigin& origin, std::string_view title) {
    json_.begin_object().key("title").text(title).key("tensor").text(report::tensor_in_words(origin));
    place(origin.place);
    const auto found = [&](std::size_t side, const std::optional<DiffEvent>& of) {
      return of ? find(side, of->name, of->step, of->call, of->rank.value_or(origin.place.rank)) : std::nullopt;
    };
    event("event_a", 0, found(0, origin.event_a));
    event("event_b", 1, found(1, origin.event_b));
    rows(report::evidence_in_words(diff, origin));
    agreeing(origin.last_agreeing);
    json_.key("commands").begin_array();
    for (const std::string& command : report::show_commands(diff, origin)) json_.text(command);
    json_.end_array().key("rel_l2");
    std::isfinite(origin.metrics.rel_l2) ? json_.number(origin.metrics.rel_l2) : json_.null();
    json_.key("tensors").number(static_cast<std::uint64_t>(origin.tensors));
    if (origin.code) code(*origin.code);
    json_.end_object();
  }

  void code(const DiffCode& code) {
    json_.key("code").begin_object();
    for (const auto& [name, text] : {std::pair{"class_a", &code.class_a},
                                     {"class_b", &code.class_b},
                                     {"site_a", &code.site_a},
                                     {"site_b", &code.site_b},
                                     {"why_unknown", &code.why_unknown}}) {
      json_.key(name);
      text->empty() ? json_.null() : json_.text(*text);
    }
    json_.key("source").text(to_string(code.source)).key("lines").begin_array();
    for (const std::string& line : code.lines) json_.text(line);
    json_.end_array().key("removed").number(static_cast<std::uint64_t>(code.removed));
    json_.key("added").number(static_cast<std::uint64_t>(code.added));
    json_.key("left_out").number(static_cast<std::uint64_t>(code.left_out)).key("elsewhere").begin_array();
    for (const std::string& name : code.elsewhere) json_.text(name);
    json_.end_array().key("attributes").begin_array();
    for (const DiffAttribute& one : code.attributes) {
      json_.begin_object().key("name").text(one.name);
      for (const auto& [side, value] : {std::pair{"a", &one.a}, {"b", &one.b}}) {
        json_.key(side);
        value->empty() ? json_.null() : json_.text(*value);
      }
      json_.end_object();
    }
    json_.end_array().end_object();
  }

  void rows(const std::vector<std::pair<std::string, std::string>>& all) {
    json_.key("rows").begin_array();
    for (const auto& [name, text] : all) json_.begin_array().text(name).text(text).end_array();
    json_.end_array();
  }

  void finding(const CheckFinding& finding) {
    json_.begin_object().key("title").text(finding.code).key("tensor").text(finding.place.name);
    place(finding.place);
    event("event_a", 0, event_at(finding.place));
    json_.key("event_b").null();
    std::vector<std::pair<std::string, std::string>> all{{"what", finding.message}};
    if (finding.count > 1) all.emplace_back("with it", counted(finding.count - 1, "other"));
    for (std::size_t i = 0; i < finding.others.size(); ++i) all.emplace_back(i == 0 ? "others" : "", finding.others[i]);
    rows(all);
    json_.key("last_agreeing").null().key("commands").begin_array();
    json_.text(fmt::format("tenscope show {} {} --step {} --call {}", report::shell_word(state_.sides[0]->shown_path()),
                           report::shell_word(finding.place.name), finding.place.step, finding.place.call));
    json_.end_array().key("rel_l2").null().key("tensors").number(static_cast<std::uint64_t>(finding.count));
    json_.end_object();
  }

  void weight(const compare::WeightPair& pair) {
    DiffPlace here;
    here.name = pair.a.name;
    json_.begin_object().key("title").text("changed").key("tensor").text(pair.a.name);
    place(here);
    event("event_a", 0, find(0, pair.a.name, 0, 0, 0));
    event("event_b", 1, find(1, pair.b.name, 0, 0, 0));
    std::vector<std::pair<std::string, std::string>> all;
    if (!pair.finding.empty()) all.emplace_back("why", pair.finding);
    all.emplace_back("in the other", pair.b.name + (pair.layout.empty() ? "" : ": " + pair.layout));
    if (std::isfinite(pair.error)) all.emplace_back("difference", fmt::format("rel. L2 {:.2g}", pair.error));
    rows(all);
    json_.key("last_agreeing").null().key("commands").begin_array().end_array().key("rel_l2");
    std::isfinite(pair.error) ? json_.number(pair.error) : json_.null();
    json_.key("tensors").number(1).end_object();
  }

  static double size_of(const DiffEntry& entry) {
    return entry.tensor != nullptr && entry.tensor->has_elements ? entry.tensor->relative_l2
                                                                 : std::numeric_limits<double>::infinity();
  }

  void entry(const DiffEntry& entry) {
    DiffPlace here;
    here.name = entry.name.empty() ? state_.sides[0]->label() : entry.name;  // a file that is one tensor
    json_.begin_object().key("title").text(to_string(entry.status)).key("tensor").text(here.name);
    place(here);
    auto a = find(0, entry.name, 0, 0, 0), b = find(1, entry.name, 0, 0, 0);
    if (!a && state_.sides[0]->event_count() == 1) a = 0;
    if (!b && state_.sides[1]->event_count() == 1) b = 0;
    event("event_a", 0, entry.status == EntryStatus::OnlyB ? std::nullopt : a);
    event("event_b", 1, entry.status == EntryStatus::OnlyA ? std::nullopt : b);
    std::vector<std::pair<std::string, std::string>> all;
    const std::string difference = entry.tensor != nullptr ? summary_line(*entry.tensor) : "";
    if (!entry.message.empty() && entry.message != difference) all.emplace_back("what", entry.message);
    if (entry.tensor != nullptr) {
      all.emplace_back("difference", difference);
      if (!entry.tensor->where.empty()) all.emplace_back("where", entry.tensor->where);
      if (!entry.tensor->relation.empty()) all.emplace_back("relation", entry.tensor->relation);
    }
    rows(all);
    json_.key("last_agreeing").null().key("commands").begin_array().end_array().key("rel_l2");
    const double error = size_of(entry);
    std::isfinite(error) ? json_.number(error) : json_.null();
    json_.key("tensors").number(1).end_object();
  }

  JsonWriter& json_;
  const State& state_;
};

}  // namespace

Answer finding_answer(const State& state, double done) {
  std::string body;
  JsonWriter json(body);
  if (state.finding != nullptr) {
    FindingWriter writer(json, state);
    std::visit([&](const auto& finding) { writer.write(finding); }, *state.finding);
  } else if (!state.failure.empty()) {
    json.begin_object().key("state").text("failed").key("error").text(state.failure).end_object();
  } else {
    json.begin_object().key("state").text("working").key("done").number(done).end_object();
  }
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
