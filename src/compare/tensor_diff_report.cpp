#include <fmt/format.h>

#include <cmath>

#include "compare/tensor_diff.hpp"

namespace tenscope {
namespace {

std::string grouped(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string number(double x) { return std::isnan(x) ? "none" : fmt::format("{:.4g}", x); }

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string type_text(const TensorDiff& diff) {
  std::string a = fmt::format("{} {}", to_string(diff.a_dtype), shape_text(diff.a_shape));
  if (diff.a_dtype == diff.b_dtype && diff.a_shape == diff.b_shape) return a;
  return fmt::format("{} became {} {}", a, to_string(diff.b_dtype), shape_text(diff.b_shape));
}

std::string tolerance_text(const TensorDiff& diff) {
  std::string text = fmt::format("atol {:g}, rtol {:g}", diff.tolerance.absolute, diff.tolerance.relative);
  if (diff.max_ulps_allowed) text += fmt::format(", {} ULP", *diff.max_ulps_allowed);
  return text;
}

std::string pair_text(const ElementPair& pair) {
  return fmt::format("{} became {} at {}", pair.a, pair.b, shape_text(pair.index));
}

std::string sides_text(std::int64_t only_a, std::int64_t only_b, std::int64_t both) {
  std::string text = fmt::format("{} in a only, {} in b only", grouped(only_a), grouped(only_b));
  if (both > 0) text += fmt::format(", {} in both", grouped(both));
  return text;
}

void append_histogram(std::string& out, const TensorDiff& diff, const std::string& margin) {
  std::int64_t largest = diff.zero_error;
  int low = kernels::kErrorBins;
  int high = -1;
  for (int bin = 0; bin < kernels::kErrorBins; ++bin) {
    const auto n = diff.error_histogram[static_cast<std::size_t>(bin)];
    if (n == 0) continue;
    low = std::min(low, bin);
    high = bin;
    largest = std::max(largest, n);
  }
  if (high < 0) return;
  out += margin + "abs error\n";
  const auto line = [&](const std::string& label, std::int64_t n) {
    const double share = static_cast<double>(n) / static_cast<double>(largest);
    const auto width = n == 0 ? 0 : std::max(1, static_cast<int>(std::lround(30 * share)));
    std::string bar;
    for (int i = 0; i < width; ++i) bar += "█";
    out += fmt::format("{}  {:>8} {:>14} {}\n", margin, label, grouped(n), bar);
  };
  if (diff.zero_error > 0) line("0", diff.zero_error);
  for (int bin = low; bin <= high; ++bin) {
    line(fmt::format("1e{:+03d}", bin + kernels::kErrorBinBase), diff.error_histogram[static_cast<std::size_t>(bin)]);
  }
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

std::string to_text(const TensorDiff& diff, int indent) {
  const std::string outer(static_cast<std::size_t>(indent), ' ');
  const std::string margin = outer + "  ";
  std::string out = outer + summary_line(diff) + "\n";
  const auto line = [&](std::string_view label, const std::string& text) {
    out += fmt::format("{}{:<12} {}\n", margin, label, text);
  };
  line("tensors", type_text(diff));
  if (!diff.relation.empty()) line("relation", diff.relation);
  // Where the words are a formula already, it says nothing more.
  if (!diff.relation_numpy.empty() && !diff.relation.starts_with("b = ")) line("", diff.relation_numpy);
  if (!diff.has_elements) return out;
  if (diff.verdict == Verdict::Identical) return out;
  if (diff.first) line("first", pair_text(*diff.first));
  if (diff.worst) line("worst", pair_text(*diff.worst));
  line("abs error", fmt::format("max {}, mean {}", number(diff.max_abs), number(diff.mean_abs)));
  line("rel error", fmt::format("max {}, mean {}", number(diff.max_rel), number(diff.mean_rel)));
  line("as vectors",
       fmt::format("cosine {}, relative L2 {}", std::isnan(diff.cosine) ? "none" : fmt::format("{:.9g}", diff.cosine),
                   number(diff.relative_l2)));
  if (diff.ulps) {
    line("ULP", fmt::format("max {}, median {}, p90 {}, p99 {}", diff.ulps->max, diff.ulps->median, diff.ulps->p90,
                            diff.ulps->p99));
  }
  if (diff.nan_only_a + diff.nan_only_b + diff.nan_both > 0)
    line("NaN", sides_text(diff.nan_only_a, diff.nan_only_b, diff.nan_both));
  if (diff.inf_only_a + diff.inf_only_b > 0) line("Inf", sides_text(diff.inf_only_a, diff.inf_only_b, 0));
  append_histogram(out, diff, margin);
  return out;
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
