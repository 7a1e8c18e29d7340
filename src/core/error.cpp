#include "tenscope/error.hpp"

namespace tenscope {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::Io:
      return "Io";
    case ErrorCode::Corrupt:
      return "Corrupt";
    case ErrorCode::Version:
      return "Version";
    case ErrorCode::InvalidArgument:
      return "InvalidArgument";
    case ErrorCode::NotFound:
      return "NotFound";
    case ErrorCode::Unsupported:
      return "Unsupported";
  }
  return "Error";
}

}  // namespace tenscope
