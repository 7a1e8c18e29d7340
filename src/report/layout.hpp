#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::report {

// How many columns a UTF-8 text takes on a terminal: two for East Asian wide characters and emoji, none for marks that
// combine with the character before them and for colours.
std::size_t display_width(std::string_view text) noexcept;

// A text of at most `width` columns: what is longer loses its middle, "model.layers.1…q_proj.weight".
std::string shortened(std::string_view text, std::size_t width);

// Its lines, each at most `width` columns, broken at spaces; a word that is longer stands alone. `first` columns of the
// first line are taken already. 0: any width.
std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t first = 0);

// A line of a report in the width of a terminal, broken where it is longer. What is to be typed stays one line, so that
// it can be copied. 0: any width.
std::string fitted(const std::string& line, std::size_t width);

}  // namespace tenscope::report
