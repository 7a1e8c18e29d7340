#pragma once

#include <string>
#include <string_view>

#include "tenscope/reader.hpp"

// The one place that knows colours, and what they mean.
namespace tenscope::report {

// How a piece of text stands out on a terminal.
enum class Tone { Plain, Bold, Dim, Red, Green, Yellow, Cyan, BoldRed, BoldGreen, BoldYellow };

inline constexpr Tone kHeading = Tone::Bold;
inline constexpr Tone kFaint = Tone::Dim;  // what one need not read: times, sites, heads of tables
inline constexpr Tone kName = Tone::Cyan;
inline constexpr Tone kGood = Tone::Green;
inline constexpr Tone kDoubt = Tone::Yellow;
inline constexpr Tone kBad = Tone::Red;

// What is written to switch a tone on: "\033[1m"; empty for Plain.
std::string_view tone_code(Tone tone) noexcept;

// `text` with the escape codes of its tone where `color` is on. What a terminal would obey in it is written out.
std::string toned(std::string_view text, Tone tone, bool color);

// Closed is nothing to look at, running is good, the rest needs a look.
Tone tone_of(RunState state) noexcept;

}  // namespace tenscope::report
