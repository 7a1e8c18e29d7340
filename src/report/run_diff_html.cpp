#include <fmt/format.h>

#include "report/html.hpp"
#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 "
    "1rem;color:#1a1a1a;background:#fff}"
    "h1{font-size:1.3rem;padding:.8rem "
    "1rem;border-radius:6px;color:#fff}h1.bad{background:#b3261e}h1.good{background:#1e7d32}h1.unknown{background:#"
    "8a6d00}"
    "h2{font-size:1.05rem;margin-top:2rem}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid "
    "#ddd;vertical-align:top}th{color:#555;font-weight:600}"
    "code{font:13px ui-monospace,monospace;background:#f2f2f2;padding:.1rem .25rem;border-radius:3px}"
    ".bar{display:flex;height:1.2rem;border-radius:4px;overflow:hidden;margin:.5rem 0}"
    ".bar span{display:block;height:100%}.muted{color:#666}"
    ".strip{display:flex;flex-wrap:wrap;gap:2px;margin:.5rem 0}.strip span{width:.8rem;height:1.2rem;border-radius:2px}"
    ".dot{display:inline-block;width:.7rem;height:.7rem;border-radius:50%}summary{cursor:pointer}"
    "@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#1b1b1b}code{background:#2d2d2d}td,th{border-"
    "color:#3a3a3a}th,.muted{color:#aaa}}";

constexpr std::string_view kEqual = "#1e7d32", kNoise = "#d9a400", kUnknown = "#888888", kBeyond = "#b3261e";

std::string_view color_of(const DiffModule& module) {
  if (!module.is_within_tolerance) return kBeyond;
  return module.is_unknown ? kUnknown : module.is_bit_equal ? kEqual : kNoise;
}

std::string state_of(const DiffModule& module) {
  if (!module.is_within_tolerance) return fmt::format("differs from step {} on, {}", module.step, module.phase);
  if (module.is_unknown) return "unknown: only statistics were kept";
  return module.is_bit_equal ? "equal in bits" : "rounding noise only";
}

class Page {
 public:
  explicit Page(const RunDiff& diff) : diff_(diff) {}

  std::string write() {
    out_ = fmt::format(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>tenscope diff</title><style>{}</style>",
        kStyle);
    out_ += fmt::format("<p class=muted><code>{}</code>, the reference, and <code>{}</code></p>", escape_html(diff_.a),
                        escape_html(diff_.b));
    out_ += fmt::format("<h1 class={}>{}</h1>",
                        diff_.within_tolerance()                ? "good"
                        : diff_.verdict == DiffVerdict::Differs ? "bad"
                                                                : "unknown",
                        escape_html(run_diff_answer(diff_)));
    counts();
    if (diff_.first_divergence) evidence("First divergence", *diff_.first_divergence);
    if (diff_.first_bit_difference && diff_.within_tolerance())
      evidence("First difference in bits", *diff_.first_bit_difference);
    origins();
    modules();
    names();
    list("Settings that differ", diff_.settings, setting_in_words);
    if (diff_.rows) {
      std::vector<std::string> lines = rows_in_words(*diff_.rows);
      for (const DiffRowTable& table : diff_.rows->tables) lines.push_back(row_summary_in_words(table));
      list("Rows", lines, +[](const std::string& text) { return text; });
    }
    list("Notes", diff_.notes, note_in_words);
    return std::move(out_);
  }

 private:
  void row(std::string_view name, std::string_view text) {
    if (!text.empty()) out_ += fmt::format("<tr><th>{}<td>{}", name, escape_html(text));
  }

  void counts() {
    const std::size_t equal = diff_.bit_equal + diff_.same_values;
    const std::size_t beyond = diff_.compared - equal - diff_.noise - diff_.unknown - diff_.idle;
    const double all = diff_.compared == 0 ? 1 : static_cast<double>(diff_.compared);
    out_ += "<div class=bar>";
    for (const auto& [count, color] :
         {std::pair{equal, kEqual}, {diff_.noise + diff_.idle, kNoise}, {diff_.unknown, kUnknown}, {beyond, kBeyond}})
      out_ += fmt::format("<span style='width:{:.3f}%;background:{}'></span>", 100 * static_cast<double>(count) / all,
                          color);
    out_ += fmt::format("</div><p>{}.</p>", escape_html(coverage_in_words(diff_)));
  }

  void evidence(std::string_view title, const DiffOrigin& origin) {
    out_ += fmt::format("<h2>{}</h2><table>", title);
    row("module", fmt::format("{} {}", blamed_in_words(origin.place),
                              origin.place.cls.empty() ? "" : "(" + origin.place.cls + ")"));
    row("tensor", tensor_in_words(origin));
    row("seen as", origin.seen_as);
    row("when", fmt::format("step {}, call {}, rank {}, {}", origin.place.step, origin.place.call, origin.place.rank,
                            origin.place.phase));
    row("why", reason_in_words(origin));
    row("confidence", confidence_in_words(origin));
    row("difference", metrics_in_words(origin.metrics));
    if (origin.distribution) row("distribution", distribution_in_words(*origin.distribution));
    if (origin.update) row("update", update_in_words(*origin.update));
    row("relation", origin.metrics.relation);
    row("in NumPy", origin.metrics.relation_numpy);
    if (origin.last_agreeing) row("last agreeing", origin.last_agreeing->name);
    row("source", origin.place.site);
    if (diff_.rounding) row("after it", rounding_in_words(*diff_.rounding));
    for (const std::string& command : show_commands(diff_, origin)) row("to see it", command);
    out_ += "</table>";
  }

  void origins() {
    if (diff_.origin_count < 2) return;
    out_ += fmt::format(
        "<h2>Places that start a difference of their own: "
        "{}</h2><table><tr><th>module<th>tensor<th>step<th>phase<th>difference",
        diff_.origin_count);
    for (const DiffOrigin& origin : diff_.origins)
      out_ += fmt::format("<tr><td><code>{}</code><td><code>{}</code><td>{}<td>{}<td>{}",
                          escape_html(blamed_in_words(origin.place)), escape_html(origin.place.name), origin.place.step,
                          origin.place.phase, escape_html(metrics_in_words(origin.metrics)));
    out_ += "</table>";
  }

  // In the order of the calls, so that one sees where the red begins.
  void modules() {
    if (diff_.modules.empty()) return;
    out_ +=
        fmt::format("<h2>Modules, in the order of their first call: {}</h2><div class=strip>", diff_.modules.size());
    for (const DiffModule& module : diff_.modules)
      out_ += fmt::format("<span style='background:{}' title=\"{}: {}\"></span>", color_of(module),
                          escape_html(module_in_words(module.module)), state_of(module));
    out_ += fmt::format("</div><details{}><summary>list</summary><table>", diff_.modules.size() <= 40 ? " open" : "");
    for (const DiffModule& module : diff_.modules)
      out_ += fmt::format("<tr><td><span class=dot style='background:{}'></span> <code>{}</code><td>{}",
                          color_of(module), escape_html(module_in_words(module.module)), state_of(module));
    out_ += "</table></details>";
  }

  void names() {
    if (!diff_.renamed.empty()) {
      out_ += "<h2>Renamed</h2><table>";
      for (const DiffRenamed& renamed : diff_.renamed)
        out_ += fmt::format("<tr><td><code>{}</code><td><code>{}</code>", escape_html(module_in_words(renamed.a)),
                            escape_html(module_in_words(renamed.b)));
      out_ += "</table>";
    }
    if (diff_.unmatched.empty()) return;
    out_ += "<h2>On one side only</h2><table>";
    for (const DiffUnmatched& one : diff_.unmatched)
      out_ += fmt::format("<tr><td>{}<td><code>{}</code><td>{}<td>{} values", one.side == 0 ? "first" : "second",
                          escape_html(one.name.empty() ? module_in_words(one.module) : one.name), escape_html(one.cls),
                          one.events);
    out_ += "</table>";
  }

  template <class T>
  void list(std::string_view title, const std::vector<T>& members, std::string (*in_words)(const T&)) {
    if (members.empty()) return;
    out_ += fmt::format("<h2>{}</h2><ul>", title);
    for (const T& member : members) out_ += "<li>" + escape_html(in_words(member));
    out_ += "</ul>";
  }

  const RunDiff& diff_;
  std::string out_;
};

}  // namespace

std::string run_diff_html(const RunDiff& diff) { return Page(diff).write(); }

}  // namespace tenscope::report
