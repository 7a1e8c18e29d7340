#include "tenscope/event.hpp"

#include <algorithm>

namespace tenscope {
namespace {

constexpr std::array<std::string_view, 7> kKindNames{"value", "enter", "exit", "change", "step", "note", "dropped"};
constexpr std::array<std::string_view, 13> kIoNames{"",     "input",  "output", "grad_output", "grad_input",
                                                    "loss", "grad",   "param",  "buffer",      "local",
                                                    "op",   "oracle", "other"};
constexpr std::array<std::string_view, 6> kPhaseNames{"", "init", "forward", "backward", "optimizer", "other"};

template <class Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& names, std::string_view name) noexcept {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<Enum>(found - names.begin()));
}

std::string_view without_suffix(std::string_view name, std::string_view suffix) noexcept {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

}  // namespace

std::string_view to_string(EventKind kind) noexcept { return kKindNames[static_cast<std::size_t>(kind)]; }
std::string_view to_string(Io io) noexcept { return kIoNames[static_cast<std::size_t>(io)]; }
std::string_view to_string(Phase phase) noexcept { return kPhaseNames[static_cast<std::size_t>(phase)]; }

std::optional<EventKind> parse_event_kind(std::string_view name) noexcept { return parse<EventKind>(kKindNames, name); }
Io parse_io(std::string_view word) noexcept { return parse<Io>(kIoNames, word).value_or(Io::Other); }
Phase parse_phase(std::string_view word) noexcept { return parse<Phase>(kPhaseNames, word).value_or(Phase::Other); }

std::string_view parameter_of_gradient(std::string_view name) noexcept { return without_suffix(name, kGradientSuffix); }

std::string_view input_of_changed_input(std::string_view name) noexcept {
  return without_suffix(name, kChangedInputSuffix);
}

bool is_changed_input(std::string_view name, std::string_view scope, Io io) noexcept {
  return io == Io::Output && name.ends_with(kChangedInputSuffix) &&
         name_in_scope(name, scope).starts_with(kInputPrefix);
}

std::string_view name_in_scope(std::string_view name, std::string_view scope) noexcept {
  if (scope.empty() || !name.starts_with(scope)) return name;
  if (name.size() == scope.size()) return {};
  return name[scope.size()] == '.' ? name.substr(scope.size() + 1) : name;
}

}  // namespace tenscope
