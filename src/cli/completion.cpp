#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/long_options.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "core/json_writer.hpp"
#include "core/printable.hpp"

// The scripts know verbs and options when they are made; run folders and tensor names are asked for as the user types
// (the latter by `tenscope completion names RUN`). The run is the first word that is a folder or a URL, so that the
// values of options before it are not taken for it.
namespace tenscope::cli {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string options_of(const CLI::App& verb) {
  std::string text = join(long_options(verb));
  for (const Command& command : commands())
    if (command.name == verb.get_name() && !command.python_options.empty())
      text += (text.empty() ? "" : " ") + std::string(command.python_options);
  return text;
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> verbs;
  std::string cases;
  for (const CLI::App* verb : app.get_subcommands({})) {
    verbs.push_back(verb->get_name());
    cases += fmt::format("    {}) options='{}' ;;\n", verb->get_name(), options_of(*verb));
  }
  return fmt::format(R"sh(# bash completion of tenscope
_tenscope() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options='' i
  local -a places=()
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{0} help --help --version' -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{1}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ -d ${{COMP_WORDS[i]}} || ${{COMP_WORDS[i]}} == *://* ]]; then places+=("${{COMP_WORDS[i]}}"); fi
  done
  case ${{COMP_WORDS[1]}} in
    completion) COMPREPLY=($(compgen -W 'bash zsh' -- "$word")); return ;;
    help) COMPREPLY=($(compgen -W '{0}' -- "$word")); return ;;
    show|ls|plot)
      if ((${{#places[@]}})); then
        local IFS=$'\n'
        COMPREPLY=($(compgen -W "$(tenscope completion names "${{places[0]}}" 2>/dev/null)" -- "$word"))
        return
      fi ;;
    run|export|explain|diff|map|view) compopt -o default 2>/dev/null; return ;;
  esac
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen -d -- "$word"))
}}
complete -F _tenscope tenscope
)sh",
                     join(verbs), cases);
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != text.npos; at += 4) text.replace(at, 1, "'\\''");
  for (std::size_t at = 0; (at = text.find(':', at)) != text.npos; at += 2) text.replace(at, 1, "\\:");
  return "'" + text + "'";
}

std::string zsh_script(const CLI::App& app) {
  std::string verbs, cases;
  for (const CLI::App* verb : app.get_subcommands({})) {
    verbs += fmt::format("    {}\n", quoted(verb->get_name()) + ":" + quoted(verb->get_description()));
    cases += fmt::format("    {}) options=({}) ;;\n", verb->get_name(), options_of(*verb));
  }
  return fmt::format(R"sh(#compdef tenscope
# zsh completion of tenscope
_tenscope() {{
  local -a verbs options places names
  local word
  verbs=(
{}    'help':'Tell more of a verb'
  )
  if ((CURRENT == 2)); then
    _describe 'verb' verbs
    return
  fi
  case $words[2] in
{}  esac
  if [[ $words[CURRENT] == -* ]]; then
    compadd -a options
    return
  fi
  for word in "${{(@)words[3,CURRENT-1]}}"; do
    if [[ -d $word || $word == *://* ]]; then places+=("$word"); fi
  done
  case $words[2] in
    completion) compadd bash zsh; return ;;
    help) _describe 'verb' verbs; return ;;
    show|ls|plot)
      if (($#places)); then
        names=("${{(@f)$(tenscope completion names "$places[1]" 2>/dev/null)}}")
        compadd -a names
        return
      fi ;;
    run|export|explain|diff|map|view) _files; return ;;
  esac
  _files -/
}}
if [[ $funcstack[1] == _tenscope ]]; then _tenscope "$@"; else compdef _tenscope tenscope; fi
)sh",
                     verbs, cases);
}

std::string names_of(const std::string& run) {
  std::string text;
  for (const std::string& name : open_run(run).names()) text += printable(name) + "\n";
  return text;
}

}  // namespace

Action prepare_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  auto run = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash or zsh; names: the names in a run, a line each")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "names"}));
  app.add_option("run", *run, "With names: the run");
  return [shell, run, &app](const Output& output) {
    const CLI::App& root = *app.get_parent();
    const std::string text = *shell == "bash" ? bash_script(root) : *shell == "zsh" ? zsh_script(root) : names_of(*run);
    if (output.json) {
      std::string document;
      JsonWriter(document).begin_object().key(*shell).text(text).end_object();
      print_json(document);
    } else {
      print_file(text);
    }
    return kFine;
  };
}

}  // namespace tenscope::cli
