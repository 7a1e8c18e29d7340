#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::cli {

// Becomes `python -m <module> <words...>`, for the verbs whose work lies in the user's own Python. Unless an
// interpreter is named, it is the one of the environment that this program is installed in, else that of the active
// virtual environment, else python3. Throws NotFound if it cannot start.
[[noreturn]] void become_python(std::string_view module, const std::vector<std::string>& words,
                                const std::string& interpreter = {});

// What `python -m <module> <words...>` writes to its standard output. Throws where it fails: then that is the reason.
std::string output_of_python(std::string_view module, const std::vector<std::string>& words);

// Starts `python -m <module> <words...>` beside this program, with these files open under the same numbers; what it
// prints goes to stderr. Returns its process id. Throws NotFound if it cannot start.
pid_t start_python(std::string_view module, const std::vector<std::string>& words, const std::vector<int>& files);

std::vector<std::filesystem::path> folders_above_program();  // the innermost first
// Where Python packages may lie in an environment: its lib/pythonX.Y/site-packages and the like.
std::vector<std::filesystem::path> site_packages(const std::filesystem::path& environment);

}  // namespace tenscope::cli
