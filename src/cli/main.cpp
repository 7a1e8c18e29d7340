#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cmake_dir.hpp"
#include "cli/commands.hpp"
#include "cli/help.hpp"
#include "cli/long_options.hpp"
#include "cli/print.hpp"
#include "cli/url_words.hpp"
#include "core/json_writer.hpp"
#include "core/suggest.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

// COLUMNS, as other programs have it, else what the terminal says.
std::size_t terminal_width() {
  constexpr std::size_t kLeast = 20, kUsual = 80;
  const char* columns = std::getenv("COLUMNS");
  if (const std::size_t width = columns == nullptr ? 0 : std::strtoul(columns, nullptr, 10); width > kLeast)
    return width;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > kLeast ? size.ws_col : kUsual;
}

// A pipe takes lines of any width, unless somebody has set COLUMNS for it. Where LINES is set, too, it was readline: it
// tells the programs that a Python starts of a terminal that is not theirs.
bool is_width_given() {
  const char* columns = std::getenv("COLUMNS");
  const bool is_asked = columns != nullptr && *columns != '\0' && std::getenv("LINES") == nullptr;
  return ::isatty(STDOUT_FILENO) != 0 || is_asked;
}

Output detect_output() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool is_dumb = term != nullptr && std::string_view(term) == "dumb";
  return {.json = false,
          .color = isatty(STDOUT_FILENO) && (no_color == nullptr || *no_color == '\0') && !is_dumb,
          .progress = isatty(STDERR_FILENO) && !is_dumb,
          .width = terminal_width(),
          .is_fitted = is_width_given()};
}

void tell(const Output& output, std::string_view code, std::string_view message) {
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("error").begin_object();
    json.key("code").text(code).key("message").text(message).end_object().end_object();
    print_json(text);
  }
  warn_text(message);
}

const Command& command_named(std::string_view verb) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == verb) return command;
    names.emplace_back(command.name);
  }
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("there is no verb '{}'{} (tenscope --help lists them)", verb, did_you_mean(verb, names)));
}

std::string complaint(const CLI::ParseError& error, const CLI::App& verb) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> words = verb.remaining();
    const auto option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with('-'); });
    if (option != words.end())
      return fmt::format("there is no option '{}'{}", *option, did_you_mean(*option, long_options(verb)));
    if (!words.empty()) return fmt::format("'{}' is one word too many", words.front());
  }
  // "Could not convert: --step = x", "--step: 1 required INT missing"
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    if (const std::size_t is = text.find(" = "), option = text.find("--"); option < is && is != text.npos)
      return fmt::format("{} cannot be '{}'", text.substr(option, is - option), text.substr(is + 3));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with(" missing"))
    return text.substr(0, text.find(':')) + " needs a value behind it";
  return text;
}

// What is wrong with the words after a verb, and where to look.
std::string explain(const CLI::ParseError& error, const CLI::App& app, std::string_view first) {
  for (const CLI::App* verb : app.get_subcommands({}))
    if (verb->get_name() == first)
      return fmt::format("{}: {} (tenscope {} --help tells more)", first, complaint(error, *verb), first);
  return fmt::format("there is no option '{}' (tenscope --help tells more)", first);
}

// `help` is the verb before --help: `tenscope help ls`.
std::vector<std::string_view> without_help_verb(std::vector<std::string_view> words) {
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  if (!words.empty() && !words[0].starts_with('-')) {
    command_named(words[0]);  // throws, with a suggestion
    words.resize(1);
  } else {
    words.clear();
  }
  words.emplace_back("--help");
  return words;
}

// --help and --version end the parsing.
int answer_itself(const CLI::ParseError& error, const CLI::App& app) {
  std::ostringstream text;
  const int code = app.exit(error, text, text);
  print_text(text.str());
  return code;
}

int run(int argc, char** argv, Output& output, UrlWords& urls) {
  CLI::App app{"tenscope: the flight recorder and debugger for tensors"};
  app.name("tenscope");
  app.formatter(std::make_shared<HelpFormatter>(output));
  app.set_version_flag("-v,--version", TENSCOPE_VERSION, "Print the version, and exit");
  app.add_flag_callback(
      "--cmake-dir", [] { throw CLI::CallForVersion(cmake_dir(), 0); },
      "Print the folder that CMake finds the C++ library by, and exit");
  app.add_flag_callback(
      "--pkgconfig-dir", [] { throw CLI::CallForVersion(pkgconfig_dir(), 0); },
      "Print the folder that pkg-config finds it by, and exit");
  app.require_subcommand(1);
  Action action;
  for (const Command& command : commands()) {
    CLI::App* verb = app.add_subcommand(std::string(command.name), std::string(command.summary));
    verb->group(std::string(command.group));
    verb->footer(std::string(command.examples));
    if (command.prepare != prepare_run)  // its stdout is the program's
      verb->add_flag("--json", output.json, "Answer with one JSON document");
    verb->callback([&action, prepared = command.prepare(*verb)] { action = prepared; });
  }
  const std::vector<std::string_view> words = without_help_verb({argv + 1, argv + argc});
  const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
  try {
    if (!words.empty() && !words[0].starts_with('-')) urls.open(command_named(words[0]), words);
    output.mirrors = urls.mirrors();
    std::vector<std::string> parsed = urls.words();
    if (parsed.empty()) parsed.assign(words.begin(), words.end());
    std::ranges::reverse(parsed);  // CLI11 takes them from the back
    app.parse(std::move(parsed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return answer_itself(error, app);
    if (words.empty()) {
      print_text(app.help());
      return kTrouble;
    }
    output.json = wants_json;
    throw Error(ErrorCode::InvalidArgument, explain(error, app, words[0]));
  } catch (const Error&) {
    output.json = wants_json;
    throw;
  }
  return action(output);
}

int guarded_run(int argc, char** argv) {
  Output output = detect_output();
  set_terminal(output.color, output.fitting());
  UrlWords urls;
  try {
    const int code = run(argc, argv, output, urls);
    flush_output();
    return code;
  } catch (const Error& error) {
    tell(output, to_string(error.code()), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    tell(output, to_string(ErrorCode::Io), fmt::format("{}: {}", error.code().message(), error.path1().string()));
  } catch (const std::exception& error) {
    tell(output, "Internal", error.what());
  }
  std::fflush(stdout);
  return kTrouble;
}

}  // namespace
}  // namespace tenscope::cli

int main(int argc, char** argv) { return tenscope::cli::guarded_run(argc, argv); }
