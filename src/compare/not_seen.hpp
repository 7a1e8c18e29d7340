#pragma once

#include <string>

namespace tenscope::compare {

// What a note of modules that were not seen says: why, and which they are, the first of them by name.
std::string not_seen_in_words(const std::string& meta);

}  // namespace tenscope::compare
