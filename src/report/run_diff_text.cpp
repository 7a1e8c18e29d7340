#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/budget.hpp"
#include "report/document.hpp"
#include "report/run_diff.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

// What is known of the weights themselves is a diagnosis, and stands with the answer.
bool is_of_weights(const DiffNote& note) {
  return note.kind == DiffNote::Kind::Exchanged || note.kind == DiffNote::Kind::OddLayout;
}

constexpr std::string_view kSourceRow = "source";
constexpr std::size_t kShownAttributes = 3;

class Report {
 public:
  Report(const RunDiff& diff, const RunDiffTextOptions& options) : diff_(diff), options_(options) {}

  Document write() {
    const Tone tone = diff_.within_tolerance()                ? Tone::BoldGreen
                      : diff_.verdict == DiffVerdict::Differs ? Tone::BoldRed
                                                              : Tone::BoldYellow;
    out_.headline(run_diff_answer(diff_, options_.strict), tone);
    settings();
    for (const DiffNote& note : diff_.notes)
      if (is_of_weights(note)) field("weights", note_in_words(note));
    if (diff_.first_divergence) evidence(*diff_.first_divergence);
    field("tensors", coverage_in_words(diff_));
    if (diff_.engine_noise) field("noise", engine_noise_in_words(*diff_.engine_noise));
    if (!diff_.noise_profiles.empty()) field("noise", measured_noise_in_words(diff_));
    if (diff_.rows) rows(*diff_.rows);
    if (diff_.first_unknown) field("first unknown", place_in_words(*diff_.first_unknown));
    if (diff_.first_bit_difference && !is_first_bit_the_divergence()) bits(*diff_.first_bit_difference);
    more_origins();
    if (diff_.rows) add_row_tables(out_, diff_, options_);
    if (diff_.budget) add_budget(out_, diff_, options_);
    names();
    for (const DiffNote& note : diff_.notes)
      if (!is_of_weights(note)) line("note: " + note_in_words(note));
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_.line(text); }
  void field(std::string_view name, const std::string& text) { out_.field(std::string(name), text); }

  bool is_first_bit_the_divergence() const {
    return diff_.first_divergence && diff_.first_bit_difference->seen_as == diff_.first_divergence->seen_as &&
           diff_.first_bit_difference->place.step == diff_.first_divergence->place.step;
  }

  // Right behind the answer: in an upgrade that is what one looks for. Versions first, the layout of ranks last.
  void settings() {
    std::vector<DiffSetting> sorted = diff_.settings;
    const auto place = [](const DiffSetting& setting) {
      return setting.name.starts_with("versions.") ? 0 : setting.name.starts_with("layout.") ? 2 : 1;
    };
    std::ranges::stable_sort(sorted, {}, place);
    for (std::size_t i = 0; i < sorted.size() && i < options_.top; ++i)
      field(i == 0 ? "settings" : "", setting_in_words(sorted[i]));
    if (sorted.size() > options_.top) field("", fmt::format("... {} more", sorted.size() - options_.top));
  }

  void evidence(const DiffOrigin& origin) {
    for (const auto& [name, text] : evidence_in_words(diff_, origin)) {
      field(name, text);
      if (name == kSourceRow && origin.code) changed_lines(*origin.code);
    }
    out_.fields("elsewhere", other_attributes_in_words(diff_, kShownAttributes));
    const std::vector<std::string> commands = show_commands(diff_, origin);
    for (std::size_t i = 0; i < commands.size(); ++i) out_.code(i == 0 ? "to see it" : "", commands[i]);
  }

  void changed_lines(const DiffCode& code) {
    for (const std::string& text : code.lines) {
      const char mark = text.empty() ? ' ' : text.front();
      const bool is_of_file = text.starts_with("--- ") || text.starts_with("+++ ");
      const Tone tone = is_of_file    ? kHeading
                        : mark == '-' ? kBad
                        : mark == '+' ? kGood
                        : mark == '@' ? kName
                                      : Tone::Plain;
      out_.code("", text, tone);
    }
    if (code.left_out > 0) field("", fmt::format("... {} more of this", plural(code.left_out, "line")));
  }

  void rows(const DiffRows& all) { out_.fields("rows", rows_in_words(all)); }

  void bits(const DiffOrigin& origin) {
    field("first in bits", fmt::format("{} ({}): {}", tensor_in_words(origin), moment_in_words(origin.place),
                                       metrics_in_words(origin.metrics)));
  }

  void more_origins() {
    // A note tells how many initial values are but another draw.
    const auto is_listed = [](const DiffOrigin& origin) {
      return !origin.distribution || !origin.distribution->is_another_draw();
    };
    const std::size_t first = diff_.first_divergence && is_listed(*diff_.first_divergence) ? 1 : 0;
    const std::size_t count = diff_.origin_count - diff_.other_draws - first;
    if (count == 0) return;
    line(fmt::format("{} start{} a difference of {} own:", plural(count, "more place"), count == 1 ? "s" : "",
                     count == 1 ? "its" : "their"));
    std::size_t listed = 0;
    Table table({{""},
                 {"module", Align::Left, Fit::Middle},
                 {"tensor", Align::Left, Fit::Middle},
                 {"moment", Align::Left, Fit::Words},
                 {"max |b-a| / max |a|"}});
    for (std::size_t i = 1; i < diff_.origins.size() && listed < options_.top; ++i) {
      const DiffOrigin& origin = diff_.origins[i];
      if (!is_listed(origin)) continue;
      ++listed;
      const double size = origin.metrics.rel_max;
      table.add({"", blamed_in_words(origin.place), tensor_in_words(origin), moment_in_words(origin.place),
                 origin.reason.cause == DiffCause::End
                     ? fmt::format("the {} run ends", origin.reason.ended == 0 ? "first" : "second")
                 : std::isfinite(size) ? fmt::format("{:.2g}", size)
                                       : obstacle_in_words(origin.metrics.obstacle)});
    }
    out_.table(std::move(table));
    if (count > listed) line(fmt::format("  ... {} more", count - listed));
  }

  void names() {
    if (!diff_.renamed.empty()) {
      line(renamed_in_words(diff_) + " renamed:");
      for (std::size_t i = 0; i < diff_.renamed.size() && i < options_.top; ++i)
        line(fmt::format("  {} -> {}", module_in_words(diff_.renamed[i].a), module_in_words(diff_.renamed[i].b)));
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
        line(fmt::format("  {}{} ({})", here[i]->name.empty() ? module_in_words(here[i]->module) : here[i]->name,
                         here[i]->cls.empty() ? "" : ", " + here[i]->cls, plural(here[i]->events, "value")));
      if (here.size() > options_.top) line(fmt::format("  ... {} more", here.size() - options_.top));
    }
  }

  const RunDiff& diff_;
  const RunDiffTextOptions& options_;
  Document out_;
};

}  // namespace

std::string run_diff_text(const RunDiff& diff, const RunDiffTextOptions& options) {
  return Report(diff, options).write().text(options.color, options.width);
}

std::string run_diff_html(const RunDiff& diff, const RunDiffTextOptions& options) {
  return Report(diff, options).write().html();
}

}  // namespace tenscope::report
