#include "compare/operation.hpp"

#include <simdjson.h>

#include <string_view>
#include <utility>

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

std::optional<CallingLine> read_calling_line(const Event& event) {
  simdjson::dom::parser parser;
  simdjson::dom::element caller;
  if (parser.parse(event.meta)["caller"].get(caller) != simdjson::SUCCESS) return {};
  CallingLine line;
  for (auto [name, out] : {std::pair("site", &line.site), std::pair("function", &line.function),
                           std::pair("text", &line.text), std::pair("assigns", &line.assigns)})
    if (std::string_view found; caller[name].get(found) == simdjson::SUCCESS) *out = found;
  return line;
}

}  // namespace tenscope::compare
