// What a report says of the code of a blamed module.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "report/run_diff.hpp"

namespace tenscope::report {
namespace {

std::string class_name(const DiffOrigin& origin) {
  const std::string& path = origin.code->class_a;
  const std::size_t colon = path.find(':');
  return colon == std::string::npos ? origin.place.cls : path.substr(colon + 1);
}

std::string sites_in_words(const DiffCode& code) {
  const std::string a = site_in_words(code.site_a), b = site_in_words(code.site_b);
  if (a.empty() && b.empty()) return "no file";
  if (a == b) return a;
  const auto one = [](const std::string& site) { return site.empty() ? std::string("not known") : site; };
  return fmt::format("{} in the first run, {} in the second", one(a), one(b));
}

std::string names_in_words(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, names.size())));
  for (std::string& name : shown)
    if (name == "<module>") name = "the module's own lines";
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

std::string wrappers_in_words(const DiffCode& code) {
  const auto sites = [](const std::vector<std::string>& wrappers) {
    std::vector<std::string> shown;
    for (const std::string& site : wrappers) shown.push_back(site_in_words(site));
    return shown.empty() ? std::string("nothing") : fmt::format("{}", fmt::join(shown, ", "));
  };
  const std::string a = sites(code.wrappers_a), b = sites(code.wrappers_b);
  return a == b ? a : fmt::format("{} in the first run, {} in the second", a, b);
}

std::string source_in_words(const DiffOrigin& origin) {
  const DiffCode& code = *origin.code;
  const std::string name = class_name(origin);
  switch (code.source) {
    case DiffSource::Unknown:
      return fmt::format("whether the source of {} is the same is not known: {}", name, code.why_unknown);
    case DiffSource::Same:
      return fmt::format("the source of {} is the same in both runs", name);
    case DiffSource::Differs:
      if (code.is_forward_elsewhere)
        return fmt::format("{} has its forward from another place: {}", name,
                           code.removed + code.added == 0
                               ? std::string("the lines are the same")
                               : fmt::format("{} removed, {} added", plural(code.removed, "line"), code.added));
      if (code.removed + code.added == 0)
        return fmt::format("the source of {} is the same, what is wrapped around its forward is not", name);
      return fmt::format("the source of {} differs: {} removed, {} added", name, plural(code.removed, "line"),
                         code.added);
    case DiffSource::Another:
      return fmt::format("the classes are {} and {}, which have little in common", code.class_a, code.class_b);
  }
  return {};
}

bool is_blamed(const RunDiff& diff, const DiffAttribute& attribute) {
  const auto& first = diff.first_divergence;
  return first && first->code && first->place.root == attribute.root && first->place.module == attribute.module;
}

}  // namespace

std::string site_in_words(const std::string& site) {
  constexpr std::string_view kLibraries = "/site-packages/";
  const std::size_t at = site.rfind(kLibraries);
  return at == std::string::npos ? site : site.substr(at + kLibraries.size());
}

std::string attribute_in_words(const DiffAttribute& attribute) {
  const auto value = [](const std::string& json) { return json.empty() ? std::string("not there") : json; };
  const std::string text = fmt::format("{} {} → {}", attribute.name, value(attribute.a), value(attribute.b));
  return attribute.step < 0 ? text : fmt::format("{} from step {}, call {} on", text, attribute.step, attribute.call);
}

std::vector<std::pair<std::string, std::string>> code_in_words(const RunDiff& diff, const DiffOrigin& origin) {
  std::vector<std::pair<std::string, std::string>> rows;
  const DiffCode& code = *origin.code;
  rows.emplace_back("source", fmt::format("{}: {}", sites_in_words(code), source_in_words(origin)));
  if (!code.wrappers_a.empty() || !code.wrappers_b.empty()) rows.emplace_back("wrapped by", wrappers_in_words(code));
  if (!code.elsewhere.empty())
    rows.emplace_back("in its file", fmt::format("these differ, too: {}", names_in_words(code.elsewhere)));
  for (const DiffAttribute& attribute : code.attributes)
    rows.emplace_back(&attribute == &code.attributes.front() ? "attributes" : "", attribute_in_words(attribute));
  if (code.attributes.empty() && code.source == DiffSource::Same)
    rows.emplace_back("attributes", fmt::format("no plain attribute of it differs{}",
                                                diff.settings.empty() ? "" : "; the settings above do"));
  return rows;
}

std::vector<std::string> other_attributes_in_words(const RunDiff& diff, std::size_t most) {
  std::vector<std::string> lines;
  std::size_t of_blamed = 0;
  for (const DiffAttribute& attribute : diff.attributes) {
    if (is_blamed(diff, attribute))
      ++of_blamed;
    else if (lines.size() < most)
      lines.push_back(fmt::format("{}: {}", module_in_words(attribute.module), attribute_in_words(attribute)));
  }
  const std::size_t count = diff.attribute_count - of_blamed;
  if (count > lines.size())
    lines.push_back(fmt::format("... {} of other modules", plural(count - lines.size(), "more attribute")));
  return lines;
}

}  // namespace tenscope::report
