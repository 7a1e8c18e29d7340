#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace tenscope {

enum class ErrorCode { Io, Corrupt, Version, InvalidArgument, NotFound, Unsupported };

std::string_view to_string(ErrorCode code);

// The one exception type of the library. The message says what failed, then why, and names the path last.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace tenscope
#pragma GCC visibility pop
