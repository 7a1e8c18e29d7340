#include "tenscope/event.hpp"

#include <array>

namespace tenscope {
namespace {
constexpr std::array<std::string_view, 7> kKindNames{"value", "enter", "exit", "change", "step", "note", "dropped"};
}

std::string_view to_string(EventKind kind) noexcept { return kKindNames[static_cast<std::size_t>(kind)]; }

std::optional<EventKind> parse_event_kind(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) return static_cast<EventKind>(i);
  }
  return std::nullopt;
}

}  // namespace tenscope
