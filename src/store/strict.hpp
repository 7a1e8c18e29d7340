#pragma once

#include <cstdlib>
#include <string_view>

namespace tenscope::store {

// TENSCOPE_STRICT in the environment: what goes wrong in the recorder raises instead of being counted. Empty and "0"
// mean no.
inline bool is_strict_by_environment() {
  const char* value = std::getenv("TENSCOPE_STRICT");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace tenscope::store
