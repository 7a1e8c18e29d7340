#include "report/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/document.hpp"
#include "report/table.hpp"

namespace tenscope::report {
namespace {

using Module = DiffBudget::Module;

std::string error_text(double error) { return error > 0 ? fmt::format("{:.2e}", error) : "0"; }

std::string percent(double share) {
  if (std::isnan(share)) return "";
  if (share <= 0) return "0 %";
  return share < 0.001 ? "<0.1 %" : fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0);
}

std::string amplification(const Module& module) {
  if (std::isnan(module.amplifies)) return "";
  const std::string factor = fmt::format("{:.2g}", module.amplifies);
  return module.is_assumed ? "(" + factor + ")" : factor;
}

class BudgetReport {
 public:
  BudgetReport(Document& out, const RunDiff& diff, const RunDiffTextOptions& options)
      : out_(out), diff_(diff), budget_(*diff.budget), options_(options) {}

  void write() {
    if (budget_.roots.empty()) {
      line("no budget of the modules' errors: the runs have no calls of modules in common");
      return;
    }
    const auto adding = std::ranges::count_if(budget_.modules, [](const Module& one) { return one.adds > 0; });
    table(static_cast<std::size_t>(adding));
    for (const DiffBudget::Root& root : budget_.roots) outermost(root);
    remarks();
  }

 private:
  void line(const std::string& text) { out_.line(text); }

  std::string name_of(const Module& one) const {
    const bool is_alone = budget_.roots.size() == 1;
    std::string name = one.module;
    if (name.empty())
      name = is_alone ? module_in_words("") : one.root;
    else if (!is_alone)
      name = one.root + "." + name;
    return one.is_own_code ? name + " (own code)" : name;
  }

  // A long name without its beginning, so that the row fits.
  std::string shortened(const std::string& name) const {
    constexpr std::size_t kOthers = 2 + 5 * 2 + 8 + 8 + 8 + 6 + 9;
    constexpr std::size_t kLeast = 20;
    const std::size_t room = std::max(options_.width > kOthers ? options_.width - kOthers : 0, kLeast);
    if (options_.width == 0 || display_width(name) <= room) return name;
    std::size_t begin = name.size() - std::min(name.size(), room - 1);
    while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;
    return "…" + name.substr(begin);
  }

  void table(std::size_t adding) {
    if (adding == 0) return line("no module adds an error of its own");
    line("what each module adds to the error |b-a| / |a|, in the forward:");
    Table table({{"  module"},
                 {"arriving", Align::Right},
                 {"leaving", Align::Right},
                 {"adds", Align::Right},
                 {"share", Align::Right},
                 {"amplifies", Align::Right}});
    const std::size_t listed = std::min(adding, options_.top);
    for (std::size_t i = 0; i < listed; ++i) {
      const Module& one = budget_.modules[i];
      has_assumed_ |= one.is_assumed;
      table.add({"  " + shortened(name_of(one)), error_text(one.arriving), error_text(one.leaving),
                 Cell(error_text(one.adds), Tone::Bold), percent(one.share), amplification(one)});
    }
    out_.table(std::move(table));
    if (adding > listed)
      line(fmt::format("  ... {} more, {} or less each", adding - listed, error_text(budget_.modules[listed].adds)));
    if (adding < budget_.modules.size())
      line(fmt::format("  {} add{} nothing", plural(budget_.modules.size() - adding, "module"),
                       budget_.modules.size() - adding == 1 ? "s" : ""));
  }

  // What leaves an outermost module, and where most of it began.
  void outermost(const DiffBudget::Root& root) {
    if (root.left_out > 0)
      line(fmt::format("  {} of {} left out: training has moved the parameters apart by then",
                       plural(root.left_out, "later call"), root.root));
    if (root.calls == 0) return;
    std::string text =
        fmt::format("  {} leaves {} ({})", error_text(root.leaving), root.root, plural(root.calls, "call"));
    std::vector<std::pair<double, std::string>> parts;
    for (const Module& one : budget_.modules)
      if (one.root == root.root && one.share > 0) parts.emplace_back(one.share, name_of(one));
    std::ranges::stable_sort(parts, std::ranges::greater{}, [](const auto& part) { return part.first; });
    constexpr std::size_t kNamed = 3;
    std::vector<std::string> words;
    for (std::size_t i = 0; i < parts.size() && i < kNamed; ++i)
      words.push_back(fmt::format("{} {}", percent(parts[i].first), parts[i].second));
    line(words.empty() ? text : text + "; the largest parts of its square began in");
    if (!words.empty()) line(fmt::format("    {}", fmt::join(words, ", ")));
    if (root.share_of_inputs >= 0.0005)
      line(fmt::format("  {} of it arrived with the inputs", percent(root.share_of_inputs)));
    if (root.share_not_traced >= 0.0005)
      line(fmt::format("  {} of it could not be followed", percent(root.share_not_traced)));
  }

  void remarks() {
    if (has_assumed_) line("  in brackets: assumed, since how the module hands on errors is not known");
    if (!budget_.unknown.empty()) {
      std::string names;
      for (std::size_t i = 0; i < budget_.unknown.size() && i < options_.top; ++i)
        names += (i > 0 ? ", " : "") + budget_.unknown[i];
      line(fmt::format("  {} could not be judged: {}{}", plural(budget_.unknown.size(), "module"), names,
                       budget_.unknown.size() > options_.top ? ", ..." : ""));
    }
    const auto alone = static_cast<std::size_t>(
        std::ranges::count_if(diff_.unmatched, [](const DiffUnmatched& one) { return one.name.empty(); }));
    if (alone > 0)
      line(fmt::format("  {} in one run only: what {} counts as code of the module around {}", plural(alone, "module"),
                       alone == 1 ? "it does" : "they do", alone == 1 ? "it" : "them"));
  }

  Document& out_;
  const RunDiff& diff_;
  const DiffBudget& budget_;
  const RunDiffTextOptions& options_;
  bool has_assumed_ = false;
};

void put(JsonWriter& json, std::string_view name, double value) {
  json.key(name);
  std::isfinite(value) ? json.number(value) : json.null();
}

}  // namespace

void add_budget(Document& document, const RunDiff& diff, const RunDiffTextOptions& options) {
  BudgetReport(document, diff, options).write();
}

void put_budget(JsonWriter& json, const DiffBudget& budget) {
  json.begin_object().key("modules").begin_array();
  for (const Module& one : budget.modules) {
    json.begin_object().key("root").text(one.root).key("module").text(one.module).key("class").text(one.cls);
    json.key("own_code").boolean(one.is_own_code).key("calls").number(static_cast<std::uint64_t>(one.calls));
    put(json, "arriving", one.arriving);
    put(json, "leaving", one.leaving);
    put(json, "adds", one.adds);
    put(json, "amplifies", one.amplifies);
    json.key("assumed").boolean(one.is_assumed);
    put(json, "share", one.share);
    json.end_object();
  }
  json.end_array().key("roots").begin_array();
  for (const DiffBudget::Root& one : budget.roots) {
    json.begin_object().key("root").text(one.root).key("calls").number(static_cast<std::uint64_t>(one.calls));
    json.key("left_out").number(static_cast<std::uint64_t>(one.left_out));
    put(json, "leaving", one.leaving);
    put(json, "share_of_inputs", one.share_of_inputs);
    put(json, "share_not_traced", one.share_not_traced);
    json.end_object();
  }
  json.end_array().key("unknown").begin_array();
  for (const std::string& name : budget.unknown) json.text(name);
  json.end_array().end_object();
}

}  // namespace tenscope::report
