#include "cli/terminal.hpp"

#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <string_view>

namespace tenscope::cli {

bool is_utf8_terminal() {
  std::setlocale(LC_CTYPE, "");
  return std::string_view(::nl_langinfo(CODESET)) == "UTF-8" || ::isatty(STDOUT_FILENO) == 0;
}

}  // namespace tenscope::cli
