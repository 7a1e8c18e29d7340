#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "core/json_writer.hpp"
#include "report/budget.hpp"
#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : json_(out) {}

  void write(const RunDiff& diff) {
    json_.begin_object();
    json_.key("a").text(diff.a).key("b").text(diff.b);
    json_.key("verdict").text(to_string(diff.verdict));
    json_.key("equal").boolean(diff.equal()).key("within_tolerance").boolean(diff.within_tolerance());
    json_.key("first_divergence");
    optional_origin(diff.first_divergence);
    json_.key("rounding");
    rounding(diff.rounding);
    json_.key("show").begin_array();
    if (diff.first_divergence)
      for (const std::string& command : show_commands(diff, *diff.first_divergence)) json_.text(command);
    json_.end_array();
    json_.key("first_bit_difference");
    optional_origin(diff.first_bit_difference);
    json_.key("first_unknown");
    optional_place(diff.first_unknown);
    json_.key("origins").begin_array();
    for (const DiffOrigin& one : diff.origins) origin(one);
    json_.end_array();
    count("origin_count", diff.origin_count);
    count("other_draws", diff.other_draws);
    unmatched(diff);
    json_.key("renamed").begin_object();
    for (const DiffRenamed& renamed : diff.renamed) json_.key(renamed.a).text(renamed.b);
    json_.end_object();
    content_pairs(diff);
    layouts(diff);
    json_.key("engine_noise");
    if (diff.engine_noise) {
      json_.begin_object().key("tensor").text(diff.engine_noise->tensor);
      number_or_null("weights", diff.engine_noise->weights);
      number_or_null("largest", diff.engine_noise->largest);
      json_.end_object();
    } else {
      json_.null();
    }
    json_.key("noise_profiles").begin_array();
    for (const std::string& path : diff.noise_profiles) json_.text(path);
    json_.end_array();
    json_.key("budget");
    diff.budget ? put_budget(json_, *diff.budget) : static_cast<void>(json_.null());
    json_.key("rows");
    diff.rows ? rows(*diff.rows) : static_cast<void>(json_.null());
    texts("settings", diff.settings, setting_in_words);
    json_.key("attributes");
    attributes(diff.attributes, true);
    count("attribute_count", diff.attribute_count);
    texts("notes", diff.notes, note_in_words);
    json_.key("counts").begin_object();
    count("first_run", diff.total_a);
    count("second_run", diff.total_b);
    count("compared", diff.compared);
    count("bit_equal", diff.bit_equal);
    count("same_values", diff.same_values);
    count("noise", diff.noise);
    count("judged_by_profile", diff.judged_by_profile);
    count("unknown", diff.unknown);
    count("idle", diff.idle);
    count("consequences", diff.consequences);
    json_.end_object().end_object();
  }

 private:
  void count(std::string_view name, std::size_t value) { json_.key(name).number(static_cast<std::uint64_t>(value)); }

  template <class T>
  void texts(std::string_view name, const std::vector<T>& values, std::string (*in_words)(const T&)) {
    json_.key(name).begin_array();
    for (const T& value : values) json_.text(in_words(value));
    json_.end_array();
  }

  void unmatched(const RunDiff& diff) {
    json_.key("unmatched").begin_array();
    for (const DiffUnmatched& one : diff.unmatched) {
      json_.begin_object().key("side").text(one.side == 0 ? "a" : "b");
      json_.key("root").text(one.root).key("module").text(one.module).key("class").text(one.cls);
      json_.key("name");
      one.name.empty() ? json_.null() : json_.text(one.name);
      count("events", one.events);
      json_.end_object();
    }
    json_.end_array();
  }

  void content_pairs(const RunDiff& diff) {
    json_.key("content_pairs").begin_array();
    for (const DiffContentPair& pair : diff.content_pairs) {
      json_.begin_object().key("a").text(pair.a).key("b").text(pair.b);
      json_.key("step").number(pair.step).key("call").number(pair.call);
      json_.key("how").text(pair.how).key("layout").text(pair.layout);
      number_or_null("error", pair.error);
      json_.end_object();
    }
    json_.end_array();
  }

  void layouts(const RunDiff& diff) {
    json_.key("layouts").begin_array();
    for (const DiffLayout& one : diff.layouts) {
      json_.begin_object().key("tensor").text(one.tensor).key("a").text(one.a).key("b").text(one.b);
      count("count", one.count);
      json_.end_object();
    }
    json_.end_array();
  }

  void parts(const DiffMetrics& m) {
    json_.key("assembled_a").text(m.assembled_a).key("assembled_b").text(m.assembled_b);
    json_.key("sum_is_missing").boolean(m.is_sum_missing).key("parts").begin_array();
    for (const DiffPart& part : m.parts) {
      json_.begin_object().key("run").text(part.run == 0 ? "a" : "b").key("rank").number(std::int64_t{part.rank});
      json_.key("pass");
      part.pass < 0 ? json_.null() : json_.number(part.pass);
      number_or_null("rel_l2", part.rel_l2);
      json_.key("like");
      part.like < 0 ? json_.null() : json_.number(std::int64_t{part.like});
      json_.key("like_pass");
      part.like_pass < 0 ? json_.null() : json_.number(part.like_pass);
      json_.end_object();
    }
    json_.end_array();
  }

  void rows(const DiffRows& all) {
    json_.begin_object().key("keys").begin_array();
    for (const std::string& key : all.keys) json_.text(key);
    json_.end_array();
    count("first_run", all.first);
    count("second_run", all.second);
    count("common", all.common);
    count("padding_first", all.padding_first);
    count("padding_second", all.padding_second);
    count("duplicates", all.duplicates);
    json_.key("of_duplicates").text(all.takes_first ? "first" : "last");
    count("unplaced", all.unplaced);
    json_.key("are_keys_doubtful").boolean(all.are_keys_doubtful);
    for (const auto& [name, left_out] : {std::pair{"left_out_first", &all.left_out_a},
                                         {"left_out_second", &all.left_out_b},
                                         {"ambiguous_first", &all.ambiguous_a},
                                         {"ambiguous_second", &all.ambiguous_b},
                                         {"partial", &all.partial},
                                         {"as_they_are", &all.as_they_are}}) {
      json_.key(name).begin_array();
      for (const std::string& tensor : *left_out) json_.text(tensor);
      json_.end_array();
    }
    json_.key("tables").begin_array();
    for (const DiffRowTable& table : all.tables) {
      json_.begin_object().key("a").text(table.a).key("b").text(table.b).key("rows").begin_array();
      for (const DiffRowTable::Row& row : table.rows) {
        json_.begin_object().key("key").begin_array();
        for (const std::uint64_t number : row.key) json_.number(number);
        json_.end_array();
        number_or_null("a", row.a);
        number_or_null("b", row.b);
        json_.end_object();
      }
      json_.end_array().end_object();
    }
    json_.end_array().end_object();
  }

  void place_members(const DiffPlace& place) {
    json_.key("root")
        .text(place.root)
        .key("module")
        .text(place.module)
        .key("name")
        .text(place.name)
        .key("io")
        .text(place.io);
    json_.key("step").number(place.step).key("call").number(place.call).key("rank").number(place.rank);
    json_.key("phase").text(place.phase).key("class").text(place.cls);
    json_.key("site");
    place.site.empty() ? json_.null() : json_.text(place.site);
  }

  void origin(const DiffOrigin& origin) {
    json_.begin_object();
    place_members(origin.place);
    json_.key("seen_in").text(origin.seen_in).key("seen_as").text(origin.seen_as);
    json_.key("cause").text(to_string(origin.reason.cause)).key("reason").text(reason_in_words(origin));
    json_.key("confidence").text(to_string(confidence_of(origin.reason.doubt)));
    json_.key("confidence_reason").text(confidence_in_words(origin));
    count("tensors", origin.tensors);
    json_.key("event_a");
    event(origin.event_a);
    json_.key("event_b");
    event(origin.event_b);
    json_.key("distribution");
    distribution(origin.distribution);
    json_.key("update");
    update(origin.update);
    json_.key("last_agreeing");
    optional_place(origin.last_agreeing);
    json_.key("metrics");
    metrics(origin.metrics);
    code(origin.code);
    json_.end_object();
  }

  void attributes(const std::vector<DiffAttribute>& all, bool has_module) {
    json_.begin_array();
    for (const DiffAttribute& one : all) {
      json_.begin_object();
      if (has_module) json_.key("root").text(one.root).key("module").text(one.module);
      json_.key("name").text(one.name);
      for (const auto& [side, value] : {std::pair{"a", &one.a}, {"b", &one.b}})
        if (!value->empty()) json_.key(side).raw(*value);
      if (one.step >= 0) json_.key("step").number(one.step).key("call").number(one.call);
      json_.end_object();
    }
    json_.end_array();
  }

  void text_or_null(std::string_view name, const std::string& text) {
    json_.key(name);
    text.empty() ? json_.null() : json_.text(text);
  }

  void code(const std::optional<DiffCode>& code) {
    json_.key("source_diff");
    if (code && !code->lines.empty())
      json_.text(fmt::format("{}\n", fmt::join(code->lines, "\n")));
    else
      json_.null();
    json_.key("code");
    if (!code) {
      json_.null();
      return;
    }
    json_.begin_object();
    text_or_null("class_a", code->class_a);
    text_or_null("class_b", code->class_b);
    text_or_null("site_a", code->site_a);
    text_or_null("site_b", code->site_b);
    for (const auto& [name, sites] :
         {std::pair{"wrappers_a", &code->wrappers_a}, std::pair{"wrappers_b", &code->wrappers_b}}) {
      json_.key(name).begin_array();
      for (const std::string& site : *sites) json_.text(site);
      json_.end_array();
    }
    json_.key("forward_elsewhere").boolean(code->is_forward_elsewhere);
    json_.key("source").text(to_string(code->source));
    text_or_null("why_unknown", code->why_unknown);
    count("lines_removed", code->removed);
    count("lines_added", code->added);
    count("lines_left_out", code->left_out);
    json_.key("elsewhere").begin_array();
    for (const std::string& name : code->elsewhere) json_.text(name);
    json_.end_array().key("attributes");
    attributes(code->attributes, false);
    json_.end_object();
  }

  void event(const std::optional<DiffEvent>& event) {
    if (!event) {
      json_.null();
      return;
    }
    json_.begin_object().key("name").text(event->name).key("step").number(event->step).key("call").number(event->call);
    if (event->rank) json_.key("rank").number(*event->rank);
    if (!event->slice.empty()) json_.key("slice").text(event->slice);
    json_.end_object();
  }

  void distribution(const std::optional<DiffDistribution>& d) {
    if (!d) {
      json_.null();
      return;
    }
    json_.begin_object()
        .key("another_draw")
        .boolean(d->is_another_draw())
        .key("independent")
        .boolean(d->is_independent);
    number_or_null("mean_a", d->mean_a);
    number_or_null("mean_b", d->mean_b);
    number_or_null("std_a", d->std_a);
    number_or_null("std_b", d->std_b);
    json_.key("zeros_a").number(d->zeros_a).key("zeros_b").number(d->zeros_b).end_object();
  }

  void update(const std::optional<DiffUpdate>& u) {
    if (!u) {
      json_.null();
      return;
    }
    json_.begin_object().key("optimizer_a").text(u->optimizer_a).key("optimizer_b").text(u->optimizer_b);
    number_or_null("ratio", u->ratio);
    json_.key("flipped").number(u->flipped).key("moved_both").number(u->moved_both);
    json_.key("moved_a").number(u->moved_a).key("moved_b").number(u->moved_b).end_object();
  }

  void rounding(const std::optional<DiffRounding>& rounding) {
    if (!rounding) {
      json_.null();
      return;
    }
    json_.begin_object().key("dtype").text(rounding->dtype).key("beyond");
    optional_origin(rounding->beyond);
    json_.end_object();
  }

  void optional_origin(const std::optional<DiffOrigin>& one) {
    if (one)
      origin(*one);
    else
      json_.null();
  }

  void optional_place(const std::optional<DiffPlace>& place) {
    if (!place) {
      json_.null();
      return;
    }
    json_.begin_object();
    place_members(*place);
    json_.end_object();
  }

  // A number where JSON has it; else a text ("nan", "(1+2j)"), or null for nothing.
  void value(std::string_view name, const std::string& text) {
    json_.key(name);
    double number = 0;
    std::int64_t integer = 0;
    const char *begin = text.data(), *end = begin + text.size();
    if (text.empty()) {
      json_.null();
    } else if (const auto read = std::from_chars(begin, end, integer); read.ec == std::errc() && read.ptr == end) {
      json_.number(integer);
    } else if (const auto read = std::from_chars(begin, end, number);
               read.ec == std::errc() && read.ptr == end && std::isfinite(number)) {
      json_.number(number);
    } else {
      json_.text(text);
    }
  }

  void number_or_null(std::string_view name, double value) {
    json_.key(name);
    std::isfinite(value) ? json_.number(value) : json_.null();
  }

  void shape(std::string_view name, const std::vector<std::int64_t>& values) {
    json_.key(name).begin_array();
    for (const std::int64_t value : values) json_.number(value);
    json_.end_array();
  }

  void metrics(const DiffMetrics& m) {
    json_.begin_object();
    json_.key("dtype_a").text(m.dtype_a).key("dtype_b").text(m.dtype_b);
    shape("shape_a", m.shape_a);
    shape("shape_b", m.shape_b);
    json_.key("count").number(m.count).key("differing").number(m.differing);
    number_or_null("max_abs", m.max_abs);
    number_or_null("rel_max", m.rel_max);
    number_or_null("rel_l2", m.rel_l2);
    number_or_null("rel_l2_error", m.rel_l2_error);
    number_or_null("correlation", m.correlation);
    json_.key("nan_a").number(m.nan_a).key("nan_b").number(m.nan_b).key("inf_a").number(m.inf_a).key("inf_b").number(
        m.inf_b);
    shape("worst_index", m.worst_index);
    json_.key("row");
    m.row.empty() ? json_.null() : json_.text(m.row);
    json_.key("rows");
    m.rows.empty() ? json_.null() : json_.text(m.rows);
    value("worst_a", m.worst_a);
    value("worst_b", m.worst_b);
    json_.key("ranges").begin_array();
    for (const auto& range : m.ranges) json_.begin_array().number(range[0]).number(range[1]).end_array();
    json_.end_array();
    json_.key("layout");
    m.layout.empty() ? json_.null() : json_.text(m.layout);
    json_.key("relation");
    m.relation.empty() ? json_.null() : json_.text(m.relation);
    json_.key("relation_numpy");
    m.relation_numpy.empty() ? json_.null() : json_.text(m.relation_numpy);
    parts(m);
    json_.key("remark");
    m.obstacle == DiffObstacle::None ? json_.null() : json_.text(obstacle_in_words(m.obstacle));
    json_.end_object();
  }

  JsonWriter json_;
};

}  // namespace

std::string run_diff_json(const RunDiff& diff) {
  std::string out;
  Writer(out).write(diff);
  return out;
}

}  // namespace tenscope::report
