#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenscope::cli {

// Becomes `python -m <module> <words...>`, for the verbs whose work lies in the user's own Python. The interpreter is
// that of an active virtual environment, else the one this program was installed with, else python3. Throws NotFound if
// it cannot start.
[[noreturn]] void become_python(std::string_view module, const std::vector<std::string>& words);

}  // namespace tenscope::cli
