#pragma once

#include <string_view>

namespace tenscope::viewer {

// The page, as it was built into this program: the files of web/dist.
std::string_view page_html();
std::string_view page_script();
std::string_view page_style();

}  // namespace tenscope::viewer
