#include "report/style.hpp"

#include <array>

#include "core/printable.hpp"

namespace tenscope::report {

std::string_view tone_code(Tone tone) noexcept {
  constexpr std::array<std::string_view, 10> kCodes{"",         "\033[1m",  "\033[2m",    "\033[31m",   "\033[32m",
                                                    "\033[33m", "\033[36m", "\033[1;31m", "\033[1;32m", "\033[1;33m"};
  return kCodes[static_cast<std::size_t>(tone)];
}

std::string toned(std::string_view text, Tone tone, bool color) {
  std::string shown = printable(text);
  if (!color || tone == Tone::Plain || text.empty()) return shown;
  return std::string(tone_code(tone)) + shown + "\033[0m";
}

Tone tone_of(RunState state) noexcept {
  switch (state) {
    case RunState::Crashed:
    case RunState::Failed:
      return kBad;
    case RunState::Running:
      return kGood;
    case RunState::Empty:
    case RunState::Repaired:
      return kDoubt;
    case RunState::Closed:
      return Tone::Plain;
  }
  return Tone::Plain;
}

}  // namespace tenscope::report
