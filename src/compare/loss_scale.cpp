#include "compare/loss_scale.hpp"

#include <simdjson.h>

#include <algorithm>

namespace tenscope::compare {

double loss_scale(const Reader& reader) {
  double largest = 1;
  simdjson::dom::parser parser;
  for (const std::string& name : reader.names()) {
    if (!name.starts_with("loss")) continue;
    for (const EventId id : reader.find({.name = name})) {
      const Event event = reader.event(id);
      double scale = 1;
      const bool is_scaled = event.io == Io::Loss &&
                             parser.parse(simdjson::padded_string(event.meta))["scale"].get(scale) == simdjson::SUCCESS;
      if (is_scaled) largest = std::max(largest, scale);
    }
  }
  return largest;
}

}  // namespace tenscope::compare
