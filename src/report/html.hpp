#pragma once

#include <string>
#include <string_view>

namespace tenscope::report {

// Text as HTML shows it, also inside of a quoted attribute. Control characters become spaces, a new line `line_break`.
std::string escape_html(std::string_view text, std::string_view line_break = "\n");

}  // namespace tenscope::report
