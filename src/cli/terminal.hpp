#pragma once

namespace tenscope::cli {

// Whether what is shown may have blocks and Braille dots: stdout is no terminal, or one that shows UTF-8.
bool is_utf8_terminal();

}  // namespace tenscope::cli
