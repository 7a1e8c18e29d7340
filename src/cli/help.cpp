#include "cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "report/layout.hpp"
#include "report/style.hpp"

namespace tenscope::cli {
namespace {

constexpr std::string_view kFirstExamples =
    "  tenscope run train.py               record a script with no change to it\n"
    "  tenscope ls runs                    what was recorded\n"
    "  tenscope show runs loss             a curve, or a tensor's values\n"
    "  tenscope diff runs/good runs/bad    where do they first part\n"
    "  tenscope view runs                  look at it in the browser\n";

// What a value is: the type that CLI11 knows is N or X, and of a text what the option is called says it.
std::string value_name(const CLI::Option& option) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Pair, 32> kTexts{
      {{"--a-command", "COMMAND"}, {"--against", "RUN"},   {"--b-command", "COMMAND"}, {"--call", "MODULE"},
       {"--dask", "ADDRESS"},      {"--export", "FILE"},   {"--function", "NAME"},     {"--host", "ADDRESS"},
       {"--html", "FILE"},         {"--ignore", "CODE"},   {"--into", "DIR"},          {"--keep", "DIR"},
       {"--line", "LINE"},         {"--map", "A=B"},       {"--map-file", "FILE"},     {"--name", "NAME"},
       {"--noise", "PROFILE"},     {"--only", "CODE"},     {"--ops", "MODULE"},        {"--out", "FILE"},
       {"--output", "DIR"},        {"--repo", "PATH|URL"}, {"--rows", "NAMES"},        {"--set", "CODE=X"},
       {"--size", "W,H"},          {"--slice", "INDICES"}, {"--source", "FILE"},       {"--step", "N|A:B"},
       {"--tensorboard", "DIR"},   {"--variable", "NAME"}, {"--write", "FILE"},        {"--write-map", "FILE"}}};
  const std::string type = option.get_type_size() == 0 ? "" : option.get_type_name();
  if (const std::size_t colon = type.find(":{"); colon != type.npos) return type.substr(colon + 1);  // a set of words
  if (type.starts_with("TEXT")) {
    for (const auto& [name, value] : kTexts)
      if (option.check_lname(std::string(name.substr(2)))) return std::string(value);
    return "TEXT";
  }
  return type.empty() ? "" : type.find("INT") != type.npos ? "N" : "X";
}

// "-o,--out FILE", of an argument its name.
std::string name_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string text;
  for (const std::string& name : option.get_snames()) text += fmt::format("{}-{}", text.empty() ? "" : ", ", name);
  for (const std::string& name : option.get_lnames()) text += fmt::format("{}--{}", text.empty() ? "" : ", ", name);
  const std::string value = value_name(option);
  return value.empty() ? text : text + " " + value;
}

std::string description_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" (default: {})", option.get_default_str());
  return text;
}

}  // namespace

std::string HelpFormatter::heading(std::string_view text) const {
  return report::toned(text, report::kHeading, color_) + "\n";
}

std::string HelpFormatter::entries(std::string_view title,
                                   const std::vector<std::pair<std::string, std::string>>& rows) const {
  if (rows.empty()) return "";
  constexpr std::size_t kIndent = 2, kGap = 2, kWidest = 24;
  std::size_t column = 0;
  for (const auto& row : rows)
    if (row.first.size() <= kWidest) column = std::max(column, row.first.size());
  const std::size_t begin = kIndent + column + kGap;
  const std::size_t room = width_ > begin + 20 ? width_ - begin : 0;
  std::string text = "\n" + heading(fmt::format("{}:", title));
  for (const auto& [name, description] : rows) {
    text += std::string(kIndent, ' ') + report::toned(name, report::kName, color_);
    bool is_first = name.size() <= column;
    if (is_first) text += std::string(column - name.size() + kGap, ' ');
    if (!is_first) text += "\n";
    for (const std::string& line : report::wrapped(description, room)) {
      text += (is_first ? "" : std::string(begin, ' ')) + line + "\n";
      is_first = false;
    }
  }
  return text;
}

std::string HelpFormatter::verbs(const CLI::App& app) const {
  std::string text;
  std::vector<std::string_view> groups;
  for (const Command& command : commands())
    if (std::ranges::find(groups, command.group) == groups.end()) groups.push_back(command.group);
  for (const std::string_view group : groups) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const CLI::App* verb : app.get_subcommands({}))
      if (verb->get_group() == group) rows.emplace_back(verb->get_name(), verb->get_description());
    text += entries(group, rows);
  }
  return text;
}

std::string HelpFormatter::words(const CLI::App& app) const {
  std::vector<std::pair<std::string, std::string>> arguments, options;
  for (const CLI::Option* option : app.get_options())
    (option->get_positional() ? arguments : options).emplace_back(name_of(*option), description_of(*option));
  return entries("Arguments", arguments) + entries("Options", options);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::string text;
  for (const std::string& line : report::wrapped(app->get_description(), width_)) text += line + "\n";
  if (app->get_parent() == nullptr) {
    text += "\n" + heading("Examples:") + std::string(kFirstExamples) + verbs(*app) + words(*app);
    return text +
           "\ntenscope help VERB tells more of a verb. Every verb but run takes --json.\n"
           "Exit code: 0 fine or same, 1 unhealthy or different, 2 trouble.\n";
  }
  text += "\n" + heading("Examples:") + app->get_footer() + "\n\n" + heading("Usage:");
  std::string usage = fmt::format("  tenscope {}", app->get_name());
  for (const CLI::Option* option : app->get_options())
    if (option->get_positional()) {
      const std::string name = option->get_name(true) + (option->get_expected_max() > 1 ? "..." : "");
      usage += option->get_required() ? " " + name : fmt::format(" [{}]", name);
    }
  return text + usage + " [options]\n" + words(*app);
}

}  // namespace tenscope::cli
