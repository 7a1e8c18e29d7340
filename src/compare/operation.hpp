#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tenscope/event.hpp"

namespace tenscope::compare {

// What an event says of the operation whose result it is (docs/zoom.md).
struct Operation {
  std::string name;                 // "softmax"; "input": a value that no operation has made
  std::string full_name;            // "aten._softmax.default"; empty: no operation
  std::string args;                 // what is no tensor: "dim=-1"
  std::string function, text;       // of the source line: the function and the statement
  std::string assigns;              // the variables that the statement assigns: "att"
  std::vector<std::string> inputs;  // fingerprints of the tensors that went in; empty: one without plain bytes
};

Operation read_operation(const Event& event);

// The line that makes a module's call, of its enter event.
struct CallingLine {
  std::string site, function, text, assigns;
};

std::optional<CallingLine> read_calling_line(const Event& event);

}  // namespace tenscope::compare
