#include <cmath>

#include "core/json_writer.hpp"
#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : json_(out) {}

  void write(const RunDiff& diff) {
    json_.begin_object();
    json_.key("a").text(diff.a).key("b").text(diff.b);
    json_.key("equal").boolean(diff.equal).key("within_tolerance").boolean(diff.within_tolerance);
    json_.key("first_divergence");
    optional_origin(diff.first_divergence);
    json_.key("first_bit_difference");
    optional_origin(diff.first_bit_difference);
    json_.key("origins").begin_array();
    for (const DiffOrigin& one : diff.origins) origin(one);
    json_.end_array();
    json_.key("origin_count").number(static_cast<std::uint64_t>(diff.origin_count));
    unmatched(diff);
    json_.key("renamed").begin_object();
    for (const DiffRenamed& renamed : diff.renamed) json_.key(renamed.a).text(renamed.b);
    json_.end_object();
    texts("settings", diff.settings);
    texts("notes", diff.notes);
    json_.key("counts").begin_object();
    count("compared", diff.compared);
    count("bit_equal", diff.bit_equal);
    count("noise", diff.noise);
    count("consequences", diff.consequences);
    json_.end_object().end_object();
  }

 private:
  void count(std::string_view name, std::size_t value) { json_.key(name).number(static_cast<std::uint64_t>(value)); }

  void texts(std::string_view name, const std::vector<std::string>& values) {
    json_.key(name).begin_array();
    for (const std::string& value : values) json_.text(value);
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
    json_.key("reason").text(origin.reason);
    count("tensors", origin.tensors);
    json_.key("last_agreeing");
    if (origin.last_agreeing) {
      json_.begin_object();
      place_members(*origin.last_agreeing);
      json_.end_object();
    } else {
      json_.null();
    }
    json_.key("metrics");
    metrics(origin.metrics);
    json_.end_object();
  }

  void optional_origin(const std::optional<DiffOrigin>& one) {
    if (one)
      origin(*one);
    else
      json_.null();
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
    number_or_null("correlation", m.correlation);
    json_.key("nan_a").number(m.nan_a).key("nan_b").number(m.nan_b).key("inf_a").number(m.inf_a).key("inf_b").number(
        m.inf_b);
    shape("worst_index", m.worst_index);
    number_or_null("worst_a", m.worst_a);
    number_or_null("worst_b", m.worst_b);
    json_.key("ranges").begin_array();
    for (const auto& range : m.ranges) json_.begin_array().number(range[0]).number(range[1]).end_array();
    json_.end_array();
    json_.key("relation");
    m.relation.empty() ? json_.null() : json_.text(m.relation);
    json_.key("remark");
    m.remark.empty() ? json_.null() : json_.text(m.remark);
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
