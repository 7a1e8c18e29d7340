#pragma once

#include <string_view>

#include "bindings/object.hpp"

namespace tenscope::python {

// "train.py:12", the line of Python that is calling: its file below the working directory, else its file's name.
// Copied, as caches may move on while the GIL is away. Needs the GIL.
struct CallSite {
  CallSite() noexcept;
  operator std::string_view() const noexcept { return {text, size}; }

  Ref code;  // which is calling
  char text[240];
  std::size_t size = 0;
};

}  // namespace tenscope::python
