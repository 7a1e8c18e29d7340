#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

std::string said_module(const std::string& path) { return path.empty() ? "the model" : path; }

std::string when(const DiffPlace& place) {
  std::string text = fmt::format("step {}", place.step);
  if (place.io != "param" && place.phase != "init") text += fmt::format(", call {}", place.call);
  if (place.rank != 0) text += fmt::format(", rank {}", place.rank);
  if (!place.phase.empty()) text += ", " + place.phase;
  return text;
}

std::string percent(double part) {
  if (std::isinf(part)) return "a is 0 there";
  if (part >= 10) return fmt::format("{:.3g} times the largest |a|", part);
  if (part >= 0.001) return fmt::format("{:.3g} % of the largest |a|", 100 * part);
  return fmt::format("{:.2g} of the largest |a|", part);
}

bool is_whole_axis(const DiffMetrics& metrics, std::size_t axis) {
  return metrics.ranges[axis][0] == 0 && metrics.ranges[axis][1] == metrics.shape_a[axis];
}

std::string slices(const DiffMetrics& metrics) {
  std::string text;
  for (std::size_t axis = 0; axis < metrics.ranges.size(); ++axis) {
    if (is_whole_axis(metrics, axis)) continue;
    text += fmt::format("{}axis {} in [{}, {})", text.empty() ? "" : ", ", axis, metrics.ranges[axis][0],
                        metrics.ranges[axis][1]);
  }
  return text;
}

std::string plural(std::size_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string where_seen(const DiffPlace& place) {
  if (place.io == "grad") return "gradient of " + place.name;
  return place.name;
}

class TextReport {
 public:
  TextReport(const RunDiff& diff, const RunDiffTextOptions& options) : diff_(diff), options_(options) {}

  std::string write() {
    const bool is_bad = !diff_.within_tolerance;
    line(bold(run_diff_answer(diff_, options_.strict), is_bad ? "31" : "32"));
    if (diff_.first_divergence) evidence(*diff_.first_divergence);
    counts();
    if (diff_.first_bit_difference && !is_first_bit_the_divergence()) bits(*diff_.first_bit_difference);
    more_origins();
    names();
    for (const std::string& setting : diff_.settings) line("setting differs: " + setting);
    for (const std::string& note : diff_.notes) line("note: " + note);
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }
  std::string bold(const std::string& text, const char* color) const {
    return options_.color ? fmt::format("\x1b[1;{}m{}\x1b[0m", color, text) : text;
  }
  void field(std::string_view name, const std::string& text) { line(fmt::format("  {:<14} {}", name, text)); }

  bool is_first_bit_the_divergence() const {
    return diff_.first_divergence && diff_.first_bit_difference->seen_as == diff_.first_divergence->seen_as &&
           diff_.first_bit_difference->place.step == diff_.first_divergence->place.step;
  }

  void evidence(const DiffOrigin& origin) {
    field("why", origin.reason);
    if (!origin.place.cls.empty())
      field("module",
            fmt::format("{} ({}, in {})", said_module(origin.place.module), origin.place.cls, origin.place.root));
    field("difference", metrics_in_words(origin.metrics));
    if (!origin.metrics.relation.empty()) field("relation", origin.metrics.relation);
    if (const std::string text = slices(origin.metrics); !text.empty()) field("only in", text);
    if (origin.seen_as != origin.place.name) field("first seen in", origin.seen_as);
    if (origin.last_agreeing)
      field("last agreeing", fmt::format("{} ({})", where_seen(*origin.last_agreeing), when(*origin.last_agreeing)));
    if (!origin.place.site.empty()) field("source", origin.place.site);
    if (origin.tensors > 1) field("together with", plural(origin.tensors - 1, "tensor") + " of the same kind");
  }

  void counts() {
    line(fmt::format(
        "  {:<14} {} compared: {} equal in bits, {} within rounding noise, {}", "tensors", diff_.compared,
        diff_.bit_equal, diff_.noise,
        diff_.within_tolerance ? "none beyond it" : fmt::format("{} differ as a consequence", diff_.consequences)));
  }

  void bits(const DiffOrigin& origin) {
    field("first in bits",
          fmt::format("{} ({}): {}", tensor_in_words(origin), when(origin.place), metrics_in_words(origin.metrics)));
  }

  void more_origins() {
    if (diff_.origin_count < 2) return;
    line(fmt::format("{} start{} a difference of {} own:", plural(diff_.origin_count - 1, "more place"),
                     diff_.origin_count == 2 ? "s" : "", diff_.origin_count == 2 ? "its" : "their"));
    for (std::size_t i = 1; i < diff_.origins.size() && i <= options_.top; ++i) {
      const DiffOrigin& origin = diff_.origins[i];
      line(fmt::format("  {:<28} {:<40} {:<28} {}", said_module(origin.place.module), tensor_in_words(origin),
                       when(origin.place),
                       std::isfinite(origin.metrics.rel_max) ? fmt::format("{:.2g}", origin.metrics.rel_max)
                                                             : origin.metrics.remark));
    }
    if (diff_.origin_count > options_.top + 1)
      line(fmt::format("  ... {} more", diff_.origin_count - 1 - options_.top));
  }

  void names() {
    if (!diff_.renamed.empty()) {
      line(plural(diff_.renamed.size(), "module") + " renamed:");
      for (std::size_t i = 0; i < diff_.renamed.size() && i < options_.top; ++i)
        line(fmt::format("  {} -> {}", said_module(diff_.renamed[i].a), said_module(diff_.renamed[i].b)));
      if (diff_.renamed.size() > options_.top) line(fmt::format("  ... {} more", diff_.renamed.size() - options_.top));
    }
    for (const int side : {0, 1}) {
      std::vector<const DiffUnmatched*> here;
      for (const DiffUnmatched& unmatched : diff_.unmatched)
        if (unmatched.side == side) here.push_back(&unmatched);
      if (here.empty()) continue;
      line(fmt::format("only in the {} run: {}", side == 0 ? "first" : "second",
                       here.size() == 1 ? "1 module or tensor" : fmt::format("{} modules or tensors", here.size())));
      for (std::size_t i = 0; i < here.size() && i < options_.top; ++i)
        line(fmt::format("  {}{} ({})", here[i]->name.empty() ? said_module(here[i]->module) : here[i]->name,
                         here[i]->cls.empty() ? "" : ", " + here[i]->cls, plural(here[i]->events, "value")));
      if (here.size() > options_.top) line(fmt::format("  ... {} more", here.size() - options_.top));
    }
  }

  const RunDiff& diff_;
  const RunDiffTextOptions& options_;
  std::string out_;
};

}  // namespace

std::string tensor_in_words(const DiffOrigin& origin) {
  const DiffPlace& place = origin.place;
  if (place.io == "loss") return "the loss";
  if (place.io == "grad") return "gradient of " + place.name;
  if (place.io == "param") return "parameter " + place.name;
  if (place.io == "buffer") return "buffer " + place.name;
  if (place.io == "input" && origin.seen_in.empty()) return "input of the model (" + place.name + ")";
  return place.name;
}

std::string metrics_in_words(const DiffMetrics& metrics) {
  if (!metrics.remark.empty() && !(metrics.max_abs > 0)) {
    std::string text = metrics.remark;
    if (metrics.shape_a != metrics.shape_b)
      text += fmt::format(": [{}] and [{}]", fmt::join(metrics.shape_a, ", "), fmt::join(metrics.shape_b, ", "));
    return text;
  }
  std::string text;
  if (metrics.nan_a != metrics.nan_b)
    text += fmt::format("{} NaN in the first, {} in the second; ", metrics.nan_a, metrics.nan_b);
  if (metrics.inf_a != metrics.inf_b)
    text += fmt::format("{} infinities in the first, {} in the second; ", metrics.inf_a, metrics.inf_b);
  text += fmt::format("max |b-a| {:.3g} ({}), {} of {} elements", metrics.max_abs, percent(metrics.rel_max),
                      metrics.differing, metrics.count);
  if (!metrics.worst_index.empty())
    text += fmt::format(", worst at [{}]: {:.6g} became {:.6g}", fmt::join(metrics.worst_index, ", "), metrics.worst_a,
                        metrics.worst_b);
  if (metrics.dtype_a != metrics.dtype_b) text += fmt::format("; {} became {}", metrics.dtype_a, metrics.dtype_b);
  return text;
}

std::string run_diff_answer(const RunDiff& diff, bool strict) {
  if (diff.first_divergence) {
    const DiffOrigin& first = *diff.first_divergence;
    return fmt::format("first divergence: {} in {} ({})", tensor_in_words(first), said_module(first.place.module),
                       when(first.place));
  }
  if (!diff.within_tolerance) return "the runs have nothing in common";
  if (diff.compared == 0 && diff.unmatched.empty()) return "nothing to compare: neither run has a tensor or a number";
  const bool is_other = !diff.renamed.empty() || !diff.unmatched.empty();
  std::string text = diff.equal                        ? "equal: every tensor agrees bit for bit"
                     : diff.compared == diff.bit_equal ? "equal numbers: every tensor on both sides agrees bit for bit"
                                                       : "equal within tolerance: only rounding noise";
  if (!diff.renamed.empty()) text += fmt::format("; {} renamed", plural(diff.renamed.size(), "module"));
  if (!diff.unmatched.empty()) text += fmt::format("; {} on one side only", diff.unmatched.size());
  if (strict && is_other) text += " (a difference, by --strict)";
  return text;
}

std::string run_diff_text(const RunDiff& diff, const RunDiffTextOptions& options) {
  return TextReport(diff, options).write();
}

}  // namespace tenscope::report
