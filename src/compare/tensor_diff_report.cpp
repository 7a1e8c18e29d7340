#include <fmt/format.h>

#include <cmath>

#include "compare/tensor_diff.hpp"
#include "core/printable.hpp"

namespace tenscope {
namespace {

std::string number(double x) { return std::isnan(x) ? "none" : fmt::format("{:.4g}", x); }

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string tolerance_text(const TensorDiff& diff) {
  std::string text = fmt::format("atol {:g}, rtol {:g}", diff.tolerance.absolute, diff.tolerance.relative);
  if (diff.max_ulps_allowed) text += fmt::format(", {} ULP", *diff.max_ulps_allowed);
  return text;
}

void write_number(JsonWriter& json, std::string_view key, double x) {
  json.key(key);
  if (std::isnan(x))
    json.null();
  else
    json.number(x);
}

void write_shape(JsonWriter& json, const std::vector<std::int64_t>& shape) {
  json.begin_array();
  for (auto size : shape) json.number(size);
  json.end_array();
}

void write_pair(JsonWriter& json, std::string_view key, const std::optional<ElementPair>& pair) {
  json.key(key);
  if (!pair) {
    json.null();
    return;
  }
  json.begin_object().key("index");
  write_shape(json, pair->index);
  json.key("a").text(pair->a).key("b").text(pair->b).end_object();
}

}  // namespace

std::string summary_line(const TensorDiff& diff) {
  if (!diff.has_elements) {
    return fmt::format("different: shape {} became {}", shape_text(diff.a_shape), shape_text(diff.b_shape));
  }
  if (diff.verdict == Verdict::Identical)
    return fmt::format("identical: {} elements, bit for bit", grouped(diff.count));
  if (diff.verdict == Verdict::Close) {
    return fmt::format("close: {} elements within {}, largest error {}", grouped(diff.count), tolerance_text(diff),
                       number(diff.max_abs));
  }
  const double percent = 100.0 * static_cast<double>(diff.mismatches) / static_cast<double>(diff.count);
  return fmt::format("different: {} of {} elements ({:.3g} %) beyond {}, {}", grouped(diff.mismatches),
                     grouped(diff.count), percent, tolerance_text(diff), diff.where);
}

void write_json(JsonWriter& json, const TensorDiff& diff) {
  json.begin_object();
  json.key("verdict").text(to_string(diff.verdict));
  json.key("a").begin_object().key("dtype").text(to_string(diff.a_dtype)).key("shape");
  write_shape(json, diff.a_shape);
  json.end_object().key("b").begin_object().key("dtype").text(to_string(diff.b_dtype)).key("shape");
  write_shape(json, diff.b_shape);
  json.end_object();
  json.key("atol").number(diff.tolerance.absolute).key("rtol").number(diff.tolerance.relative);
  if (diff.max_ulps_allowed) json.key("ulp").number(*diff.max_ulps_allowed);
  json.key("relation");
  diff.relation.empty() ? json.null() : json.text(diff.relation);
  json.key("relation_numpy");
  diff.relation_numpy.empty() ? json.null() : json.text(diff.relation_numpy);
  if (!diff.has_elements) {
    json.key("reason").text("shapes differ").end_object();
    return;
  }
  json.key("bit_equal").boolean(diff.verdict == Verdict::Identical);
  json.key("count").number(diff.count).key("mismatches").number(diff.mismatches);
  json.key("share").number(diff.count == 0 ? 0.0
                                           : static_cast<double>(diff.mismatches) / static_cast<double>(diff.count));
  write_number(json, "max_abs", diff.max_abs);
  write_number(json, "mean_abs", diff.mean_abs);
  write_number(json, "max_rel", diff.max_rel);
  write_number(json, "mean_rel", diff.mean_rel);
  write_number(json, "cosine", diff.cosine);
  write_number(json, "relative_l2", diff.relative_l2);
  json.key("ulps");
  if (diff.ulps) {
    json.begin_object().key("max").number(diff.ulps->max).key("median").number(diff.ulps->median);
    json.key("p90").number(diff.ulps->p90).key("p99").number(diff.ulps->p99).end_object();
  } else {
    json.null();
  }
  json.key("nan").begin_object().key("only_a").number(diff.nan_only_a).key("only_b").number(diff.nan_only_b);
  json.key("both").number(diff.nan_both).end_object();
  json.key("inf")
      .begin_object()
      .key("only_a")
      .number(diff.inf_only_a)
      .key("only_b")
      .number(diff.inf_only_b)
      .end_object();
  write_pair(json, "first", diff.first);
  write_pair(json, "worst", diff.worst);
  json.key("where").text(diff.where);
  json.key("axes").begin_array();
  for (const auto& place : diff.places) {
    json.begin_object().key("size").number(place.size).key("indices").number(place.indices).key("ranges").begin_array();
    for (const auto& [begin, end] : place.ranges) json.begin_array().number(begin).number(end).end_array();
    json.end_array().key("truncated").boolean(place.is_truncated).end_object();
  }
  json.end_array();
  json.key("histogram").begin_object().key("zero").number(diff.zero_error).key("decades").begin_array();
  for (int bin = 0; bin < kernels::kErrorBins; ++bin) {
    const auto n = diff.error_histogram[static_cast<std::size_t>(bin)];
    if (n == 0) continue;
    const int decade = bin + kernels::kErrorBinBase;
    json.begin_object().key("exponent").number(decade).key("count").number(n).end_object();
  }
  json.end_array().end_object().end_object();
}

}  // namespace tenscope
