#include "compare/operation.hpp"

#include <simdjson.h>

#include <string_view>

namespace tenscope::compare {

Operation read_operation(const Event& event) {
  Operation operation{.name = event.name.substr(event.name.rfind(':') + 1)};
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(event.meta).get(root) != simdjson::SUCCESS) return operation;
  const auto text = [&](const char* name, std::string& out) {
    if (std::string_view found; root[name].get(found) == simdjson::SUCCESS) out = found;
  };
  text("op", operation.full_name);
  text("args", operation.args);
  text("function", operation.function);
  text("text", operation.text);
  text("assigns", operation.assigns);
  simdjson::dom::array from;
  if (root["from"].get(from) != simdjson::SUCCESS) return operation;
  for (const simdjson::dom::element each : from)
    if (std::string_view print; each.get(print) == simdjson::SUCCESS) operation.inputs.emplace_back(print);
  return operation;
}

}  // namespace tenscope::compare
